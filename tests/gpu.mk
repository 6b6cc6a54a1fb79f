# The CUDA backend on a GPU; included by the Makefile. Wants nvcc; without a GPU, gpu-build and archs still work.
#   gpu-build      all GPU test programs into build/gpu, for GPU_ARCH (default: the GPU that is there, else 90a)
#   gpu-test       builds (GPU_BUILD=no: takes build/gpu as it is) and runs everything; record in tests/results/
#   gpu-sanitize   compute-sanitizer over a part of the cases: memcheck, racecheck, initcheck, synccheck
#   archs          compiles every kernel for every supported architecture, warnings are errors

NVCC ?= nvcc
gpu_cc = nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .
GPU_CC = $(eval GPU_CC := $(shell $(gpu_cc)))$(GPU_CC)
GPU_ARCH ?= $(if $(filter 90,$(GPU_CC)),90a,$(or $(GPU_CC),90a))
GPU_B := build/gpu/test
GPU_PROGRAMS := $(basename $(notdir $(wildcard tests/gpu/gpu_*.cpp)))
GPU_FLAGS := -std=c++17 -I. -Itests
gpu_target = -gencode=arch=compute_$(1),code=sm_$(1)
ARCHS := 75 80 86 89 90a 100 120

.PHONY: gpu-build gpu-test gpu-sanitize archs
gpu-build: $(GPU_B)/gpu_tests

# One object holds the library; the tests are plain C++ and make one program with it.
$(GPU_B)/library.o: tests/gpu/library.cu tests/test_functions.h $(HEADERS)
	@echo "  nvcc  $@ (sm_$(GPU_ARCH))"; mkdir -p $(@D)
	@$(NVCC) -O2 $(GPU_FLAGS) $(call gpu_target,$(GPU_ARCH)) -Xcompiler -Wall,-Wextra -c $< -o $@
$(GPU_B)/%.o: tests/gpu/%.cpp tests/gpu/mirror.h $(wildcard tests/*.c tests/*.h tests/*.inc) bsrsparse.h
	@echo "  c++   $@"; mkdir -p $(@D)
	@$(NVCC) -O1 $(GPU_FLAGS) -DBSRI_IMPLEMENTED -Dmain=main_$* -Xcompiler -Wall,-Wextra -c $< -o $@
$(GPU_B)/main.o: tests/gpu/main.cpp
	@mkdir -p $(@D); $(NVCC) -O1 $(GPU_FLAGS) -c $< -o $@
$(GPU_B)/gpu_tests: $(addprefix $(GPU_B)/,library.o main.o $(addsuffix .o,$(GPU_PROGRAMS)))
	@echo "  link  $@"
	@$(NVCC) $(call gpu_target,$(GPU_ARCH)) $^ -o $@ -lpthread

gpu-test: $(if $(filter no,$(GPU_BUILD)),,gpu-build)
	@B="$(GPU_B)" PROGRAMS="$(GPU_PROGRAMS)" TIERS="$(TIERS)" sh tests/gpu/run.sh test
gpu-sanitize: $(if $(filter no,$(GPU_BUILD)),,gpu-build)
	@B="$(GPU_B)" PROGRAMS="$(GPU_PROGRAMS)" TIERS="$(TIERS)" EVERY="$(EVERY)" sh tests/gpu/run.sh sanitize

archs: $(addprefix build/gpu/archs/,$(addsuffix .o,$(ARCHS)))
	@echo "$(words $^) passed, 0 failed, 0 skipped"
build/gpu/archs/%.o: tests/compile/implementation.c tests/test_functions.h $(HEADERS)
	@echo "  nvcc  sm_$*"; mkdir -p $(@D)
	@$(NVCC) -x cu -std=c++17 -I. '-DBSRSPARSE_USER_FUNCTIONS="tests/test_functions.h"' $(STRICT_nvcc) -Xptxas -v \
	    $(call gpu_target,$*) -c $< -o $@ 2> build/gpu/archs/$*.log || { grep -v "ptxas info" build/gpu/archs/$*.log; exit 1; }
	@if grep -E "[1-9][0-9]* bytes spill" build/gpu/archs/$*.log; then echo "sm_$*: registers are spilled"; rm -f $@; exit 1; fi
