"""bench_moe.py: what tests/bench_moe.cu measures, by PyTorch: grouped products (torch._grouped_mm) and whole layers with them, in
bf16, eager and compiled, replayed as CUDA graphs; medians of warm runs."""
import torch

torch.manual_seed(0)
DEVICE = "cuda"


def timed(call, runs=10, each=3):
    """Milliseconds of one call; a graph of several hides what launches cost."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        for _ in range(each):
            call()
    times = []
    for _ in range(runs):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record(), graph.replay(), end.record(), end.synchronize()
        times.append(begin.elapsed_time(end) / each)
    return sorted(times)[len(times) // 2]


def layer(name, tokens, slots, experts, hidden, ffn):
    def normal(*size):
        return torch.randn(*size, device=DEVICE, dtype=torch.bfloat16)

    x, w1 = normal(tokens, hidden), normal(experts, 2 * ffn, hidden) * 0.02
    w1_rows, w2 = normal(experts, hidden, 2 * ffn) * 0.02, normal(experts, ffn, hidden) * 0.02
    chosen = torch.rand(tokens, experts, device=DEVICE).topk(slots, 1).indices
    weights = torch.rand(tokens, slots, device=DEVICE, dtype=torch.bfloat16)
    order = torch.argsort(chosen.reshape(-1), stable=True)
    ends = torch.bincount(chosen.reshape(-1), minlength=experts).cumsum(0).to(torch.int32)
    rows, inner, both = x[order // slots], normal(tokens * slots, ffn), normal(tokens * slots, 2 * ffn)
    flops, grouped = 2 * tokens * slots * hidden * ffn, torch._grouped_mm

    def whole():
        flat = chosen.reshape(-1)
        by_expert = torch.argsort(flat, stable=True)
        counts = torch.zeros(experts, device=DEVICE, dtype=torch.int32)
        counts = counts.scatter_add_(0, flat, torch.ones_like(flat, dtype=torch.int32))
        until = counts.cumsum(0).to(torch.int32)
        gate, up = grouped(x[by_expert // slots], w1.transpose(1, 2), until).chunk(2, 1)
        y = grouped(torch.nn.functional.silu(gate) * up, w2, until) * weights.reshape(-1)[by_expert, None]
        back = torch.empty_like(by_expert)
        back[by_expert] = torch.arange(tokens * slots, device=DEVICE)
        return y[back].view(tokens, slots, hidden).sum(1)

    def say(what, call, work):
        try:
            ms = timed(call)
            print(f"{name:34} {what:24} {ms * 1e3:9.1f} us {work / ms / 1e9:8.1f} TFLOP/s", flush=True)
        except Exception as error:  # a peer that can't is named
            print(f"{name:34} {what:24} failed: {str(error)[:120]}", flush=True)

    say("gate and up", lambda: grouped(rows, w1.transpose(1, 2), ends), 2 * flops)
    say("gate and up, W by rows", lambda: grouped(rows, w1_rows, ends), 2 * flops)
    say("down", lambda: grouped(inner, w2, ends), flops)
    if tokens > 1000:
        say("dW2", lambda: grouped(inner.t(), rows, ends), flops)
        say("dW1, dW3", lambda: grouped(rows.t(), both, ends), 2 * flops)
    say("layer", whole, 3 * flops)
    say("layer, compiled", torch.compile(whole), 3 * flops)


if __name__ == "__main__":
    layer("Qwen3-30B, 32768 tokens", 32768, 8, 128, 2048, 768)
    layer("Mixtral-8x7B, 8192 tokens", 8192, 2, 8, 4096, 14336)
    for some in (16, 128, 256):
        layer(f"Qwen3-30B, {some} tokens", some, 8, 128, 2048, 768)
