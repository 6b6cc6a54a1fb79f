// A C++20 program without exceptions: the context in a unique_ptr, errors as values. It smooths a signal by a band of blocks.
#include "bsrsparse.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

struct destroy {
    void operator()(bsr_context *ctx) const { bsr_destroy(ctx); }
};
using context = std::unique_ptr<bsr_context, destroy>;

[[nodiscard]] static bool failed(bsr_status status, const bsr_error &error) {
    std::array<char, 256> line;
    if (status != BSR_OK) bsr_error_string(&error, line.data(), line.size()), std::puts(line.data());
    return status != BSR_OK;
}

int main() {
    constexpr int64_t block = 8, blocks = 32, n = block * blocks;
    std::vector<int32_t> crow{0}, col;
    for (int32_t r = 0; r < blocks; r++) { // the block on the diagonal and its neighbours
        for (int32_t c = r > 0 ? r - 1 : 0; c <= r + 1 && c < blocks; c++) col.push_back(c);
        crow.push_back(static_cast<int32_t>(col.size()));
    }
    const std::vector<float> values(col.size() * block * block, 1.0f / (3 * block)), x(n, 1.0f);
    std::vector<float> y(n, -1.0f);
    const bsr_matrix a = bsr_matrix_make(n, n, block, block, static_cast<int64_t>(col.size()), crow.data(), col.data(), BSR_I32,
                                         values.data(), BSR_F32);
    const bsr_dense in = bsr_dense_row_major(x.data(), BSR_F32, n, 1), out = bsr_dense_row_major(y.data(), BSR_F32, n, 1);
    bsr_error error;
    bsr_exec exec = BSR_ZERO;
    bsr_context *made = nullptr;
    exec.error = &error;
    if (failed(bsr_create(nullptr, &made, &error), error)) return 1;
    const context ctx(made);
    if (failed(bsr_dense_mm(ctx.get(), 0, &a, &in, &out, &exec), error)) return 1;
    for (int64_t i = 0; i < n; i++) {
        const float want = i < block || i >= n - block ? 2.0f / 3 : 1.0f; // the first and the last have one neighbour
        if (!(std::fabs(y[i] - want) < 1e-5f)) return std::printf("%lld: %g\n", static_cast<long long>(i), double(y[i])), 1;
    }
    std::puts("ok");
    return 0;
}
