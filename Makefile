# bsrsparse. `make help` lists the targets. Wants a C compiler and GNU Make 4; everything else is optional.
MAKEFLAGS += --no-builtin-rules --no-print-directory
.SUFFIXES:
.DELETE_ON_ERROR:

CFLAGS ?= -O2
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local
SECONDS ?= 60
FUZZ_CC ?= clang
PYTHON ?= python3
DATA ?= ../shared/data
# Beside other work threads that spin while they wait cost several times what they save.
export OMP_WAIT_POLICY ?= passive

# The strictest flags that each compiler passes with its own system headers. The compile matrix (tests/compile.sh) uses them.
STRICT_gcc     := -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Werror
STRICT_clang   := -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Wcast-align -Wformat=2 -Werror
STRICT_mingw   := -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Werror
STRICT_aarch64 := -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Werror
STRICT_nvcc    := --Werror all-warnings -Xcompiler -Wall,-Wextra,-Wconversion,-Wshadow,-Werror
STRICT_tcc     := -Wall -Werror
STRICT_C       := -Wstrict-prototypes
export STRICT_gcc STRICT_clang STRICT_mingw STRICT_aarch64 STRICT_nvcc STRICT_tcc STRICT_C

# Each compiler has a build folder of its own.
B := build/$(notdir $(firstword $(CC)))
HEADERS := bsrsparse.h tune_table.h $(wildcard bsrsparse_kernels.cuh)
EXAMPLES := $(basename $(notdir $(wildcard examples/*.c)))
TESTS := $(basename $(notdir $(wildcard tests/test_*.c)))
FUZZERS := $(basename $(notdir $(wildcard tests/fuzz/fuzz_*.c)))

# -fopenmp, sanitizers and OpenBLAS where the compiler can build a program with them; asked once, when first needed.
probe = $(shell mkdir -p $(B) && printf '$(1)\nint main(void) { return 0; }\n' > $(B)/probe.c && \
        $(CC) $(2) $(B)/probe.c -o $(B)/probe $(3) >/dev/null 2>&1 && $(B)/probe >/dev/null 2>&1 && echo $(2) $(3))
comma := ,
hash := \#
OPENMP = $(eval OPENMP := $(call probe,$(hash)include <omp.h>,-fopenmp))$(OPENMP)
SANITIZE = $(eval SANITIZE := $(call probe,,-fsanitize=address$(comma)undefined))$(SANITIZE)
TSAN = $(eval TSAN := $(call probe,,-fsanitize=thread))$(TSAN)
BLAS = $(eval BLAS := $(call probe,$(hash)include <cblas.h>,,-lopenblas))$(BLAS)

SAN_FLAGS = -O1 -g1 $(SANITIZE) -fno-sanitize-recover=undefined -fno-omit-frame-pointer
compile = @echo "  cc    $@"; mkdir -p $(@D); $(CC) -std=c99 -Wall -Wextra -I. -Itests

.PHONY: all run tune test test-programs mutants bench fuzz examples check shared install install-shared uninstall clean help
all: examples

help:
	@echo "make run            the main job: builds and runs examples/spmm.c (ARGS=\"--help\", \"--backend cpu\" and the like)"
	@echo "make tune           searches the fastest plans on this machine (ARGS=\"--help\"), writes build/tune_table.h"
	@echo "make test           tests, sanitizers, compile matrix, examples, fuzz targets; what repeats by turns (SHARE=all: everything)"
	@echo "make bench          speed against OpenBLAS and SciPy, where they are installed"
	@echo "make fuzz           libFuzzer for SECONDS=60 per target, with clang; random calls against NumPy for as long"
	@echo "make mutants        edits of the sources that tests must notice: SAMPLE=60 of tests/mutants.txt, ALL=1; GPU=1, CUDA=1"
	@echo "make examples       builds the examples into $(B)/plain"
	@echo "make check          contents list, anchors, symbols, README"
	@echo "make shared         $(B)/libbsrsparse.so, all public calls"
	@echo "make install        headers, pkg-config and CMake files to PREFIX=$(PREFIX), LIBDIR, INCLUDEDIR, DOCDIR, below DESTDIR"
	@echo "make install-shared the same and libbsrsparse.so; make uninstall takes both away"
	@echo "make parity         PyTorch's tests against the CPU backend, a share of them: PARITY_ARGS=\"--part 0/100\""
	@echo "make gpu-test, gpu-bench, gpu-parity, gpu-sanitize, archs, build-times: with nvcc; see tests/gpu.mk, tests/bench.mk"
	@echo "make clean          removes build/"
	@echo "CC=clang, CFLAGS=-O3, JOBS=8 and so on are taken as usual, by shared CPPFLAGS and LDFLAGS, too."

# On the GPU where there is one and nvcc compiles for it.
SPMM = $(if $(GPU_CC),build/gpu/examples/spmm,$(B)/plain/spmm)
run:
	@$(MAKE) $(SPMM)
	@$(SPMM) $(ARGS)

# Tunes on this machine; what beats the heuristic is written to build/tune_table.h, for BSRSPARSE_TUNE_TABLE or in place of ours.
TUNE = $(if $(GPU_CC),build/gpu/examples/tune,$(B)/plain/tune)
tune:
	@$(MAKE) $(TUNE)
	@$(TUNE) --sources $$(cat bsrsparse.h bsrsparse_kernels.cuh | sha256sum | cut -d ' ' -f 1) $(ARGS)

# ---- programs: plain, and with sanitizers ----

EXAMPLE_HEADERS := $(wildcard examples/*.h)
TEST_HEADERS := $(wildcard tests/*.h tests/*.inc tests/fuzz/*.h)

# Each example is a whole program; to save time they share one object of the library, too (BSRI_IMPLEMENTED, see below), but for
# user_functions, whose library calls its functions.
$(B)/plain/examples.o: tests/compile/implementation.c $(HEADERS)
	$(compile) $(CFLAGS) $(OPENMP) -c $< -o $@
$(B)/plain/user_functions: examples/user_functions.c $(EXAMPLE_HEADERS) $(HEADERS)
	$(compile) $(CFLAGS) $(OPENMP) $< -o $@ -lm
$(B)/plain/%: examples/%.c $(B)/plain/examples.o $(EXAMPLE_HEADERS)
	$(compile) $(CFLAGS) $(OPENMP) -DBSRI_IMPLEMENTED $< $(@D)/examples.o -o $@ -lm -lpthread

# Each program could be compiled alone. To save time the tests share one object of the library
# (BSRI_IMPLEMENTED: the implementation is elsewhere), compiled with the user functions of the tests. Threads share the
# smallest work there (BSRI_PARALLEL_NS), so that every test runs on several.
SHARED_LIBRARY = '-DBSRSPARSE_USER_FUNCTIONS="tests/test_functions.h"' '-DBSRI_STAND_INS="tests/stand_ins.h"' \
    -DBSRI_PARALLEL_NS=0.0 -c tests/compile/implementation.c
$(B)/plain/library.o: tests/compile/implementation.c tests/test_functions.h tests/stand_ins.h $(HEADERS)
	$(compile) $(CFLAGS) $(OPENMP) -fPIC $(SHARED_LIBRARY) -o $@
$(B)/san/library.o: tests/compile/implementation.c tests/test_functions.h tests/stand_ins.h $(HEADERS)
	$(compile) $(SAN_FLAGS) $(OPENMP) $(SHARED_LIBRARY) -o $@

# A test is compiled once, for the plain library and the one with sanitizers. With these itself, which takes four times as long, a
# program is compiled where it holds a copy of the library, and by turns: one in four by the commit (tests/cases.sh; SHARE=all:
# each).
WITH_LIBRARY := $(basename $(notdir $(shell grep -l 'undef BSRI_IMPLEMENTED' tests/test_*.c)))
OWN_SAN = $(eval OWN_SAN := $(WITH_LIBRARY) $(shell SHARE='$(SHARE)' TURN='$(TURN)'; . tests/cases.sh; t=$$(turn); n=0; for p in $(TESTS) $(FUZZERS) $(EXAMPLES); do \
    n=$$((n + 1)); ! { whole || [ $$(((n + t) % 4)) -eq 0 ]; } || echo $$p; done))$(OWN_SAN)
TEST_OBJECTS := $(addprefix $(B)/plain/,$(TESTS:=.o))
$(TEST_OBJECTS): $(B)/plain/%.o: tests/%.c $(TEST_HEADERS) $(HEADERS)
	$(compile) $(CFLAGS) $(OPENMP) -DBSRI_IMPLEMENTED -c $< -o $@
link = @echo "  link  $@"; mkdir -p $(@D); $(CC) $(CFLAGS)
$(TEST_OBJECTS:.o=): $(B)/plain/%: $(B)/plain/%.o $(B)/plain/library.o
	$(link) $(OPENMP) $^ -o $@ -lm -lpthread
$(B)/plain/bench_few.so: tests/bench_few.c $(HEADERS)
	@echo "  cc    $@"; mkdir -p $(@D); $(CC) -std=gnu99 -Wall -Wextra -I. $(CFLAGS) $(OPENMP) -fPIC -shared $< -o $@ -lm
# The library as Python's tests load it.
PYTHON_LIBRARY = $(B)/python/libbsrsparse.so
$(PYTHON_LIBRARY): $(B)/plain/library.o
	$(link) $(OPENMP) -shared $< -o $@ -lm
$(B)/plain/%: tests/fuzz/%.c $(B)/plain/library.o $(TEST_HEADERS)
	$(compile) $(CFLAGS) $(OPENMP) -DBSRI_IMPLEMENTED -DFUZZ_MAIN $< $(@D)/library.o -o $@ -lm
# Which those are: another turn's programs are made anew.
$(B)/san/own: FORCE
	@mkdir -p $(@D); echo '$(OWN_SAN)' | cmp -s - $@ || echo '$(OWN_SAN)' > $@
FORCE:
$(addprefix $(B)/san/,$(TESTS)): $(B)/san/%: $(B)/plain/%.o $(B)/san/library.o $(B)/san/own
	$(if $(filter $*,$(OWN_SAN)),$(compile) $(SAN_FLAGS) $(OPENMP) -DBSRI_IMPLEMENTED tests/$*.c,$(link) $(SANITIZE) $(OPENMP) $<) \
	    $(@D)/library.o -o $@ -lm -lpthread
# Without OpenMP, whose own threads this sanitizer does not know.
$(B)/tsan/%: tests/%.c tests/test_functions.h $(TEST_HEADERS) $(HEADERS)
	$(compile) -O1 -g $(TSAN) '-DBSRSPARSE_USER_FUNCTIONS="tests/test_functions.h"' $< -o $@ -lm -lpthread
san_compile = $(compile) $(if $(filter $*,$(OWN_SAN)),$(SAN_FLAGS),-O1) $(OPENMP) -DBSRI_IMPLEMENTED -c $< -o $@.o
san_link = @$(CC) $(SANITIZE) $(OPENMP) $@.o $(@D)/library.o -o $@ -lm -lpthread && rm -f $@.o
$(B)/san/%: tests/fuzz/%.c $(B)/san/library.o $(TEST_HEADERS) $(B)/san/own
	$(san_compile) -DFUZZ_MAIN
	$(san_link)
$(B)/san/%: examples/%.c $(B)/san/library.o $(EXAMPLE_HEADERS) $(B)/san/own
	$(san_compile)
	$(san_link)

examples: $(addprefix $(B)/plain/,$(EXAMPLES))

# ---- tests ----

# Fuzz targets run with sanitizers where there are any. user_functions has functions of its own and is run plain only.
SAN_EXAMPLES := $(filter-out user_functions,$(EXAMPLES))
PLAIN = $(addprefix $(B)/plain/,$(TESTS) $(EXAMPLES) $(if $(SANITIZE),,$(FUZZERS)))
SANITIZED = $(if $(SANITIZE),$(addprefix $(B)/san/,$(TESTS) $(FUZZERS) $(SAN_EXAMPLES)))
test-programs: $(PLAIN) $(SANITIZED) $(if $(TSAN),$(B)/tsan/test_threads) $(PYTHON_LIBRARY)

# A program that does not compile counts as failed in tests/run.sh, so the build goes on after an error.
test:
	@echo "building the test programs"
	@$(MAKE) -k -j$(JOBS) test-programs || true
	@CC="$(CC)" B="$(B)" JOBS="$(JOBS)" DATA="$(DATA)" OPENMP="$(OPENMP)" SANITIZE="$(SANITIZE)" TSAN="$(TSAN)" \
	 TESTS="$(TESTS)" FUZZERS="$(FUZZERS)" EXAMPLES="$(EXAMPLES)" SAN_EXAMPLES="$(SAN_EXAMPLES)" PYTHON="$(PYTHON)" \
	 sh tests/run.sh

# Edits of the sources, each of which a test must notice; see tests/mutants.py.
SAMPLE ?= 60
mutants:
	@CC="$(CC)" NVCC="$(NVCC)" $(PYTHON) tests/mutants.py --jobs $(JOBS) --sample $(SAMPLE) $(if $(ALL),--all) $(if $(CUDA),--cuda) \
	    $(if $(GPU),--gpu) $(NAMES)

check:
	@CC="$(CC)" B="$(B)" sh tests/check.sh

# ---- fuzzing ----

FUZZ_FLAGS := -std=c99 -O1 -g -I. -Itests -fno-sanitize-recover=undefined -fsanitize=address,undefined
build/fuzz/library.o: tests/compile/implementation.c tests/test_functions.h tests/stand_ins.h $(HEADERS)
	@echo "  fuzz  $@"; mkdir -p $(@D)
	@$(FUZZ_CC) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link $(SHARED_LIBRARY) -o $@
build/fuzz/%: tests/fuzz/%.c build/fuzz/library.o $(TEST_HEADERS)
	@echo "  fuzz  $@"
	@$(FUZZ_CC) $(FUZZ_FLAGS) -fsanitize=fuzzer -DBSRI_IMPLEMENTED $< build/fuzz/library.o -o $@ -lm

# What an input breaks is left in build/fuzz/TARGET-crash-...; build/fuzz/TARGET FILE repeats it.
# What is worth keeping: `build/fuzz/TARGET -merge=1 tests/fuzz/corpus/TARGET build/fuzz/found/TARGET`.
fuzz: $(addprefix build/fuzz/,$(FUZZERS)) $(PYTHON_LIBRARY)
	@bad=0; for f in $(FUZZERS); do \
	    mkdir -p build/fuzz/found/$$f; echo "$$f: $(SECONDS) s"; \
	    build/fuzz/$$f -max_total_time=$(SECONDS) -verbosity=0 -print_funcs=0 -artifact_prefix=build/fuzz/$$f- \
	        build/fuzz/found/$$f $$(ls -d tests/fuzz/corpus/$$f 2> /dev/null) || bad=$$((bad + 1)); \
	done; echo "against NumPy: $(SECONDS) s"; \
	$(PYTHON) tests/numpy_differ.py $(PYTHON_LIBRARY) --seconds $(SECONDS) --seed $$(date +%s) || bad=$$((bad + 1)); \
	echo "$$(($(words $(FUZZERS)) + 1 - bad)) passed, $$bad failed, 0 skipped"; [ $$bad -eq 0 ]

# ---- speed ----

$(B)/plain/bench_cpu: tests/bench_cpu.c examples/example.h $(HEADERS)
	$(compile) -Iexamples $(CFLAGS) $(OPENMP) $(if $(BLAS),-DHAVE_OPENBLAS) $< -o $@ $(BLAS) -lm
bench: $(B)/plain/bench_cpu
	@$(if $(BLAS),true,echo "OpenBLAS is absent: sgemm is not compared (Debian: apt install libopenblas-dev)")
	@$(PYTHON) -c "import numpy, scipy" 2>/dev/null || \
	    echo "SciPy is absent: bsr_matrix is not compared (Debian: apt install python3-scipy; or pip install numpy scipy)"
	@$< build/bench_cpu.csv
	@if $(PYTHON) -c "import numpy, scipy" 2>/dev/null; then $(PYTHON) tests/bench_peers.py build/bench_cpu.csv && \
	    $(MAKE) $(B)/plain/bench_few.so && $(PYTHON) tests/bench_few.py $(B)/plain/bench_few.so; fi

# ---- the library as a shared object ----

# All public calls and nothing else. Its name has major and minor version: while the major one is 0 a minor one may change the
# ABI.
VERSION = $(shell awk '/define BSR_VERSION_(MAJOR|MINOR|PATCH)/ { printf "%s%s", dot, $$3; dot = "." }' bsrsparse.h)
SONAME = libbsrsparse.so.$(basename $(VERSION))
shared: $(B)/libbsrsparse.so
$(B)/libbsrsparse.so: tests/compile/implementation.c $(HEADERS)
	$(compile) $(CPPFLAGS) $(CFLAGS) $(OPENMP) -fPIC -shared -fvisibility=hidden \
	    '-DBSR_API=__attribute__((visibility("default")))' $(LDFLAGS) -Wl,-soname,$(SONAME) $< -o $@ -lm
	@ln -sf libbsrsparse.so $(@D)/$(SONAME)

# ---- installing ----

# Headers in a folder of their own, pkg-config and CMake files, licence; install-shared: the shared object besides. uninstall
# takes away what either has put there, and folders of ours that are empty then.
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
DOCDIR ?= $(PREFIX)/share/doc/bsrsparse
HERE = $(DESTDIR)$(1)
HEADER_DIR = $(call HERE,$(INCLUDEDIR))/bsrsparse
CMAKE_DIR = $(call HERE,$(LIBDIR))/cmake/bsrsparse
PC_DIR = $(call HERE,$(LIBDIR))/pkgconfig
# A folder as a file names it that may be moved along with PREFIX, or with the folder of the CMake files.
below = $(patsubst $(PREFIX)/%,$${prefix}/%,$(1))
to_headers = $(shell realpath -m --relative-to="$(LIBDIR)/cmake/bsrsparse" "$(INCLUDEDIR)/bsrsparse" 2> /dev/null)
pc = umask 022; printf '%s\n' 'prefix=$(PREFIX)' 'includedir=$(call below,$(INCLUDEDIR))/bsrsparse' 'libdir=$(call below,$(LIBDIR))' '' \
     'Name: $(1)' 'Version: $(VERSION)' 'Description: block-sparse matrix products, softmax and attention' $(2) \
     > "$(PC_DIR)/$(1).pc" && chmod 644 "$(PC_DIR)/$(1).pc"
# Everybody may read what is installed, whatever the umask, and the modes of the source tree are.
install:
	umask 022; mkdir -p "$(HEADER_DIR)" "$(PC_DIR)" "$(CMAKE_DIR)" "$(call HERE,$(DOCDIR))"
	install -m 644 bsrsparse.h bsrsparse_kernels.cuh tune_table.h "$(HEADER_DIR)"
	install -m 644 LICENSE "$(call HERE,$(DOCDIR))"
	$(call pc,bsrsparse,'Cflags: -I$${includedir}' 'Libs: -lm')
	$(call pc,bsrsparse-openmp,'Requires: bsrsparse' 'Cflags: -fopenmp' 'Libs: -fopenmp')
	install -m 644 examples/cmake/package/bsrsparse-targets.cmake "$(CMAKE_DIR)"
	umask 022; sed -e 's|@HEADERS@|$(or $(addprefix $${CMAKE_CURRENT_LIST_DIR}/,$(to_headers)),$(INCLUDEDIR)/bsrsparse)|' \
	    -e 's|@VERSION@|$(VERSION)|' examples/cmake/package/bsrsparse-config.cmake.in > "$(CMAKE_DIR)/bsrsparse-config.cmake"
	umask 022; sed 's|@VERSION@|$(VERSION)|' examples/cmake/package/bsrsparse-config-version.cmake.in \
	    > "$(CMAKE_DIR)/bsrsparse-config-version.cmake"
	chmod 644 "$(CMAKE_DIR)/bsrsparse-config.cmake" "$(CMAKE_DIR)/bsrsparse-config-version.cmake"
install-shared: install $(B)/libbsrsparse.so
	install -m 755 $(B)/libbsrsparse.so "$(call HERE,$(LIBDIR))/libbsrsparse.so.$(VERSION)"
	ln -sf libbsrsparse.so.$(VERSION) "$(call HERE,$(LIBDIR))/$(SONAME)"
	ln -sf $(SONAME) "$(call HERE,$(LIBDIR))/libbsrsparse.so"
	$(call pc,bsrsparse-shared,'Cflags: -I$${includedir}' 'Libs: -L$${libdir} -lbsrsparse -lm')
uninstall:
	cd "$(HEADER_DIR)" 2> /dev/null && rm -f bsrsparse.h bsrsparse_kernels.cuh tune_table.h || true
	cd "$(CMAKE_DIR)" 2> /dev/null && rm -f bsrsparse-targets.cmake bsrsparse-config.cmake \
	    bsrsparse-config-version.cmake || true
	cd "$(PC_DIR)" 2> /dev/null && rm -f bsrsparse.pc bsrsparse-openmp.pc bsrsparse-shared.pc || true
	cd "$(call HERE,$(LIBDIR))" 2> /dev/null && rm -f libbsrsparse.so $(SONAME) libbsrsparse.so.$(VERSION) || true
	cd "$(call HERE,$(DOCDIR))" 2> /dev/null && rm -f LICENSE || true
	rmdir "$(HEADER_DIR)" "$(CMAKE_DIR)" "$(call HERE,$(DOCDIR))" 2> /dev/null || true

clean:
	rm -rf build

# ---- on a GPU ----

-include tests/gpu.mk tests/bench.mk
