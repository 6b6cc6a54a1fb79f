"""Peers of tests/bench_decode.cu on one GPU: FlexAttention and torch's SDPA, the same shapes, one line a case."""
import sys
import warnings

warnings.filterwarnings("ignore")
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import BlockMask, flex_attention

dev, dt = "cuda", torch.bfloat16
flex = torch.compile(flex_attention, dynamic=False)


def us(call, copies):
    """The median of 9 times 24 calls, whose operands are used in turn."""
    n, times = 0, []
    for _ in range(10):
        call(n % copies)
        n += 1
    for _ in range(9):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        for _ in range(24):
            call(n % copies)
            n += 1
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b) * 1000 / 24)
    return sorted(times)[4]


def graphed(call, copies):
    """The same as a CUDA graph of 24 calls: without the host's time."""
    call(0)
    torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        for i in range(24):
            call(i % copies)
    times = []
    for _ in range(12):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        g.replay()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b) * 1000 / 24)
    return sorted(times[3:])[4]


def case(name, B, Hq, Hk, Lq, S, D, s=0.0, block=128, cold=True):
    each = B * Hk * S * D
    copies = max(1, (600 << 20) // (4 * each)) if cold else 1
    q = torch.randn(B, Hq, Lq, D, device=dev, dtype=dt)
    kv = [(torch.randn(B, Hk, S, D, device=dev, dtype=dt), torch.randn(B, Hk, S, D, device=dev, dtype=dt)) for _ in range(copies)]
    kept = S // block if not s else round((1 - s) * (S // block))
    nbytes = 4.0 * D * B * Hk * kept * block
    out = []
    peers = {}
    if s:
        idx = torch.rand(B, Hq if s else 1, 1, S // block, device=dev).argsort(-1)[..., :].to(torch.int32)
        num = torch.full((B, Hq, 1), kept, dtype=torch.int32, device=dev)
        zero = torch.zeros_like(num)
        bm = BlockMask.from_kv_blocks(zero, idx, num, idx, BLOCK_SIZE=(128, block), seq_lengths=(Lq, S))
        opts = {"BLOCK_N": min(block, 64)}
        peers["flex"] = lambda i: flex(q, *kv[i], block_mask=bm, enable_gqa=True, kernel_options=opts)
    else:
        peers["flex"] = lambda i: flex(q, *kv[i], enable_gqa=True)
        peers["sdpa"] = lambda i: F.scaled_dot_product_attention(q, *kv[i], enable_gqa=True)
    for peer, call in peers.items():
        try:
            torch._dynamo.reset()
            with torch.no_grad():
                t, g = us(call, copies), graphed(call, copies)
            out.append(f"{peer} {t:.1f} us, in a graph {g:.1f} us {nbytes / g * 1e-6:.2f} TB/s")
        except Exception as e:
            out.append(f"{peer} failed: {str(e)[:100]!r}")
    print(f"{name:36s}", "; ".join(out), flush=True)


print(torch.__version__, torch.cuda.get_device_name())
case("B32 S4k", 32, 32, 8, 1, 4096, 128)
case("B1 S8k", 1, 32, 8, 1, 8192, 128)
case("B1 S1k", 1, 32, 8, 1, 1024, 128, cold=False)
case("B1 S128k", 1, 32, 8, 1, 131072, 128)
if "--all" in sys.argv:
    case("B8 S32k", 8, 32, 8, 1, 32768, 128)
    case("B32 S4k Lq 4", 32, 32, 8, 4, 4096, 128)
case("B1 S128k s .9 blocks of 64", 1, 32, 8, 1, 131072, 128, 0.9, 64)
