# The CUDA backend on a GPU; included by the Makefile. Wants nvcc; without a GPU, gpu-build and archs still work.
#   gpu-build      all GPU test programs into build/gpu, for GPU_ARCH (default: the GPU that is there, else 90a)
#   gpu-test       builds (GPU_BUILD=no: takes build/gpu as it is) and runs everything; record in tests/results/
#   gpu-sanitize   compute-sanitizer over CALLS (3) calls of each kernel: TOOLS (memcheck racecheck initcheck synccheck)
#   archs          compiles every kernel for every supported architecture: no warning, no spilled register (tests/archs.sh)
#   build-times    how long builds take that the README names

NVCC ?= nvcc
gpu_cc = command -v $(NVCC) >/dev/null && nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .
GPU_CC = $(eval GPU_CC := $(shell $(gpu_cc)))$(GPU_CC)
GPU_ARCH ?= $(if $(filter 90,$(GPU_CC)),90a,$(or $(GPU_CC),90a))
GPU_B := build/gpu/test
GPU_PROGRAMS := $(basename $(notdir $(wildcard tests/gpu/gpu_*.cpp)))
GPU_FLAGS := -std=c++17 -I. -Itests
gpu_target = -gencode=arch=compute_$(1),code=sm_$(1)
# Kernels side by side on all cores, where this nvcc knows how (12.1); asked once, when first needed. Not where registers or times
# are measured: the code is a little different then (a few bytes of spilled registers).
SPLIT = $(eval SPLIT := $(shell $(NVCC) --help 2>/dev/null | grep -q -- --split-compile && echo --split-compile=0))$(SPLIT)
# -lnccl where its header is there.
NCCL = $(eval NCCL := $(shell echo '$(hash)include <nccl.h>' | $(NVCC) -x c++ -E - > /dev/null 2>&1 && echo -lnccl))$(NCCL)
ARCHS := 75 80 86 89 90a 100 120

.PHONY: gpu-build gpu-test gpu-sanitize archs build-times
gpu-build: $(GPU_B)/gpu_tests $(GPU_B)/modules $(addprefix build/gpu/examples/,$(filter-out smallest tune pool,$(EXAMPLES))) \
    $(if $(NCCL),build/gpu/examples/multi_gpu)

# One object holds the library; the tests are plain C++ and make one program with it.
$(GPU_B)/library.o: tests/gpu/library.cu tests/test_functions.h $(HEADERS)
	@echo "  nvcc  $@ (sm_$(GPU_ARCH))"; mkdir -p $(@D)
	@$(NVCC) -O2 $(GPU_FLAGS) $(call gpu_target,$(GPU_ARCH)) $(SPLIT) -Xcompiler -Wall,-Wextra -c $< -o $@
$(GPU_B)/%.o: tests/gpu/%.cpp $(wildcard tests/gpu/*.h) $(wildcard tests/*.c tests/*.h tests/*.inc) bsrsparse.h
	@echo "  c++   $@"; mkdir -p $(@D)
	@$(NVCC) -O1 $(GPU_FLAGS) -DBSRI_IMPLEMENTED -Dmain=main_$* -Xcompiler -Wall,-Wextra -c $< -o $@
$(GPU_B)/main.o: tests/gpu/main.cpp
	@mkdir -p $(@D); $(NVCC) -O1 $(GPU_FLAGS) -c $< -o $@
$(GPU_B)/gpu_tests: $(addprefix $(GPU_B)/,library.o main.o $(addsuffix .o,$(GPU_PROGRAMS)))
	@echo "  link  $@"
	@$(NVCC) $(call gpu_target,$(GPU_ARCH)) $^ -o $@ -lpthread

gpu-test: $(if $(filter no,$(GPU_BUILD)),,gpu-build)
	@B="$(GPU_B)" PROGRAMS="$(GPU_PROGRAMS)" TIERS="$(TIERS)" EXAMPLES="$(filter-out smallest tune pool,$(EXAMPLES))" sh tests/gpu/run.sh test
gpu-sanitize: $(if $(filter no,$(GPU_BUILD)),,gpu-build)
	@B="$(GPU_B)" PROGRAMS="$(GPU_PROGRAMS)" TIERS="$(TIERS)" CALLS="$(CALLS)" TOOLS="$(TOOLS)" sh tests/gpu/run.sh sanitize

# Two private copies of the library in one program.
$(GPU_B)/modules: $(wildcard tests/modules/*) $(HEADERS)
	@echo "  nvcc  $@ (sm_$(GPU_ARCH))"; mkdir -p $(@D)
	@$(NVCC) -x cu -O1 $(GPU_FLAGS) $(call only,PRODUCT F32) $(call gpu_target,$(GPU_ARCH)) $(SPLIT) -Xcompiler -Wall,-Wextra \
	    $(addprefix tests/modules/,main.c one.c two.c) -o $@

# The examples on the GPU, each with the kernels that it uses.
only = $(foreach x,$(1),-DBSRSPARSE_ONLY_$(x))
ONLY_spmm := $(call only,PRODUCT F32)
ONLY_cg := $(call only,PRODUCT F64)
ONLY_mlp := $(call only,PRODUCT SAMPLED F64)
ONLY_attention := $(call only,ATTENTION F32)
ONLY_attention_train := $(call only,PRODUCT SAMPLED ATTENTION F32)
ONLY_decode := $(call only,PRODUCT ATTENTION F32 BF16)
ONLY_moe := $(call only,PRODUCT SAMPLED MAPS MOE F32)
ONLY_tune := $(call only,PRODUCT SAMPLED ATTENTION)
ONLY_user_functions := $(call only,PRODUCT ATTENTION F32)
build/gpu/examples/%: examples/%.c $(wildcard examples/*.h) $(HEADERS)
	@echo "  nvcc  $@ (sm_$(GPU_ARCH))"; mkdir -p $(@D)
	@$(NVCC) -x cu -O2 -std=c++17 -I. $(ONLY_$*) $(call gpu_target,$(GPU_ARCH)) $(SPLIT) -Xcompiler -Wall,-Wextra \
	    $< -o $@

build/gpu/examples/multi_gpu: examples/multi_gpu.cu $(wildcard examples/*.h) $(HEADERS)
	@echo "  nvcc  $@ (sm_$(GPU_ARCH))"; mkdir -p $(@D)
	@$(NVCC) -O2 -std=c++17 -I. $(call gpu_target,$(GPU_ARCH)) $(SPLIT) -Xcompiler -Wall,-Wextra $< -lnccl -o $@

archs:
	@JOBS="$(JOBS)" sh tests/archs.sh $(ARCHS)
build-times:
	@sh tests/build_times.sh host
	@for x in "" BF16 F32 I8 F64; do for split in "" $(SPLIT); do GPU_ARCH="$(GPU_ARCH)" sh tests/build_times.sh "$$x" "$$split"; done; done
