# Benchmarks on a GPU beside PyTorch and cuSPARSE; included by the Makefile. GPU_ARCH and gpu_target are those of tests/gpu.mk.
#   gpu-bench    bench_gpu.py (without PyTorch: bench_gpu), then gpu-bench-edges and bench_cusparse; records in tests/results/
#   gpu-bench-edges  what a step off the fast lane costs, by class, beside neighbours, cuSPARSE, cuBLAS and what bounds each case;
#                EDGES="small strides" takes these classes only (bench_edges --help lists them)
#   gpu-bench-moe    mixtures of experts beside PyTorch's grouped products; MOE="qwen mixtral decode" takes these cases only
#   gpu-parity   PyTorch's and DeepSpeed's own tests against this library
#   parity       the same on the CPU, which takes hours: PARITY_ARGS="--part 0/100" takes a share of the cases
# BENCH_ARGS goes to bench_gpu.py: --sections product,skinny --seconds 60 and so on, PARITY_ARGS to parity.py (--help).

NVCC ?= nvcc
BENCH_B := build/gpu
bench_nvcc = @echo "  nvcc  $@"; mkdir -p $(@D); $(NVCC) -std=c++17 -O2 -I. $(call gpu_target,$(or $(GPU_ARCH),90a))

.PHONY: gpu-bench gpu-bench-alone gpu-bench-edges gpu-bench-moe gpu-parity parity bench_cusparse
$(BENCH_B)/libbsrsparse.so: tests/bench_gpu.cu $(HEADERS)
	$(bench_nvcc) -shared -Xcompiler -fPIC $< -o $@
$(BENCH_B)/bench_gpu: tests/bench_gpu.cu tests/bench.cuh $(HEADERS)
	$(bench_nvcc) -DBENCH_MAIN $< -o $@
$(BENCH_B)/bench_cusparse: tests/bench_cusparse.cu tests/bench.cuh
	$(bench_nvcc) $< -o $@ -lcusparse -lcublas
# With the library's object of the GPU tests (tests/gpu.mk).
$(BENCH_B)/bench_edges: tests/bench_edges.cu tests/bench.cuh $(GPU_B)/library.o
	$(bench_nvcc) $< $(GPU_B)/library.o -o $@ -lcusparse -lcublas
$(BENCH_B)/bench_moe: tests/bench_moe.cu tests/bench.cuh $(GPU_B)/library.o
	$(bench_nvcc) $< $(GPU_B)/library.o -o $@
bench_cusparse: $(BENCH_B)/bench_cusparse

# What bench_gpu.py can't run without PyTorch, bench_gpu runs; it is built only then.
gpu-bench: $(BENCH_B)/libbsrsparse.so $(BENCH_B)/bench_cusparse
	@mkdir -p tests/results
	@if $(PYTHON) -c "import torch" 2>/dev/null; then $(PYTHON) tests/bench_gpu.py $(BENCH_ARGS); \
	else echo "PyTorch is absent: no peers but cuSPARSE"; $(MAKE) gpu-bench-alone; fi
	@$(MAKE) gpu-bench-edges
	@$(BENCH_B)/bench_cusparse | tee tests/results/cusparse_bench.csv

gpu-bench-edges: $(BENCH_B)/bench_edges
	@mkdir -p tests/results
	@$< --csv build/gpu/edges.csv $(EDGES)
	@{ echo "# $$(sh tests/record.sh)"; cat build/gpu/edges.csv; } > tests/results/edges_bench.csv

gpu-bench-moe: $(BENCH_B)/bench_moe
	@mkdir -p tests/results
	@$< --csv build/gpu/moe.csv $(MOE)
	@{ echo "# $$(sh tests/record.sh)"; cat build/gpu/moe.csv; } > tests/results/moe_bench.csv
	@if $(PYTHON) -c "import torch" 2>/dev/null; then $(PYTHON) tests/bench_moe.py; fi

gpu-bench-alone: $(BENCH_B)/bench_gpu
	@$< | tee tests/results/gpu_bench_alone.csv

gpu-parity: $(BENCH_B)/libbsrsparse.so
	@$(PYTHON) tests/parity.py $(PARITY_ARGS)

# The CPU backend as a library, for parity.py.
$(B)/plain/libbsrsparse.so: tests/bench_gpu.cu $(HEADERS)
	@echo "  cc    $@"; mkdir -p $(@D); $(CC) -x c -std=gnu99 -Wall -Wextra -I. $(CFLAGS) $(OPENMP) -fPIC -shared $< -o $@ -lm
parity:
	@if $(PYTHON) -c "import torch" 2>/dev/null; then $(MAKE) $(B)/plain/libbsrsparse.so && \
	    $(PYTHON) tests/parity.py --backend cpu --lib $(B)/plain/libbsrsparse.so $(PARITY_ARGS); \
	else echo "skip parity: PyTorch is absent"; echo "0 passed, 0 failed, 1 skipped"; fi
