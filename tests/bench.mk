# Benchmarks on a GPU beside PyTorch and cuSPARSE; included by the Makefile. GPU_ARCH and gpu_target are those of tests/gpu.mk.
#   gpu-bench    bench_gpu.py (without PyTorch: bench_gpu), then bench_cusparse; records in tests/results/
#   gpu-parity   PyTorch's own test matrix against this library
# BENCH_ARGS goes to bench_gpu.py: --sections product,skinny --seconds 60 and so on (--help).

NVCC ?= nvcc
BENCH_B := build/gpu
bench_nvcc = @echo "  nvcc  $@"; mkdir -p $(@D); $(NVCC) -std=c++17 -O2 -I. $(call gpu_target,$(or $(GPU_ARCH),90a))

.PHONY: gpu-bench gpu-bench-alone gpu-parity bench_cusparse
$(BENCH_B)/libbsrsparse.so: tests/bench_gpu.cu $(HEADERS)
	$(bench_nvcc) -shared -Xcompiler -fPIC $< -o $@
$(BENCH_B)/bench_gpu: tests/bench_gpu.cu $(HEADERS)
	$(bench_nvcc) -DBENCH_MAIN $< -o $@
$(BENCH_B)/bench_cusparse: tests/bench_cusparse.cu
	$(bench_nvcc) $< -o $@ -lcusparse -lcublas
bench_cusparse: $(BENCH_B)/bench_cusparse

# What bench_gpu.py can't run without PyTorch, bench_gpu runs; it is built only then.
gpu-bench: $(BENCH_B)/libbsrsparse.so $(BENCH_B)/bench_cusparse
	@mkdir -p tests/results
	@if $(PYTHON) -c "import torch" 2>/dev/null; then $(PYTHON) tests/bench_gpu.py $(BENCH_ARGS); \
	else echo "PyTorch is absent: no peers but cuSPARSE"; $(MAKE) gpu-bench-alone; fi
	@$(BENCH_B)/bench_cusparse | tee tests/results/cusparse_bench.csv

gpu-bench-alone: $(BENCH_B)/bench_gpu
	@$< | tee tests/results/gpu_bench_alone.csv

gpu-parity: $(BENCH_B)/libbsrsparse.so
	@$(PYTHON) tests/parity.py $(PARITY_ARGS)
