#!/usr/bin/env python3
"""Mutants: tests/mutants.txt lists edits of the sources, each with the test that must fail for it. A test suite that lets one
pass has a hole. Each edit must find its text exactly once, so that the list can't go stale unnoticed.

    mutants.py [--check] [--all] [--sample N] [--seed TEXT] [--jobs N] [--cuda] [--gpu] [names...]

--check looks only whether every edit finds its text; --sample takes N of those that need no nvcc (default 60), by the seed
(default: the commit); --cuda adds the host side of the CUDA backend, against the stand-in for the runtime (nvcc: minutes once),
--gpu adds the kernels' (nvcc and a GPU). Names, or parts of them, choose by name."""
import argparse
import concurrent.futures
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time

LIST, WORK = "tests/mutants.txt", os.environ.get("WORK", "build/mutants")
FLAGS = ["-std=c99", "-w", "-I.", "-Itests", '-DBSRSPARSE_USER_FUNCTIONS="tests/test_functions.h"']
PORTABLE = ("errors", "matrices")  # programs to which instruction sets are all the same: half the compile time
DEVICE = {"device": ("device_checks",), "deviceconv": ("conv_checks", "--conv"),
          "devicescales": ("scales_checks", "--scales"),
          "deviceshifted": ("scales_checks-DTEST_SHIFTED", "--scales", "--shifted"),
          "devicelines": ("scales_checks-DTEST_SHIFTED", "--scales", "--shifted", "--wgmma"),
          "devicemasks": ("masks_checks", "--masks"),
          "deviceretile": ("retile_checks", "--retile"),
          "devicequantise": ("quantise_checks", "--quantise")}  # programs of tests/test_device.sh
LIMIT = 300  # seconds that a test may take: a mutant that never ends is caught, too


class Mutant:
    def __init__(self, file, name, test, reason, line):
        self.file, self.name, self.test, self.reason, self.line = file, name, test, reason, line
        self.old = self.new = None
        self.program, _, self.filter = test.partition(":")


def read_list(path):
    """As the head of the list says."""
    mutants, file, comment = [], None, re.compile(r"#|$")
    for number, line in enumerate(open(path), 1):
        line = line.rstrip("\n")
        mark, rest = line[:2], line[2:]
        if comment.match(line):
            continue
        if mark == "= ":
            file = rest
        elif mark == "@ ":
            name, test = rest.split()
            mutants.append(Mutant(file, name, test, None, number))
        elif mark == "~ ":
            name, reason = rest.split(" ", 1)
            mutants.append(Mutant(file, name, "", reason, number))
        elif mark == "- " and mutants[-1].new is None:
            mutants[-1].old = rest if mutants[-1].old is None else mutants[-1].old + "\n" + rest
        elif mark == "+ " and mutants[-1].old is not None:
            mutants[-1].new = rest if mutants[-1].new is None else mutants[-1].new + "\n" + rest
        else:
            sys.exit(f"{path}:{number}: can't be read: {line}")
    return mutants


def wrong_in_list(mutants):
    """What is wrong with the list itself, a line each."""
    texts, names = {}, set()
    for m in mutants:
        text = texts.setdefault(m.file, open(m.file).read() if os.path.exists(m.file) else "")
        if m.old is None or m.new is None or m.old == m.new:
            yield f"{m.name} (line {m.line}): wants '- text' and another '+ text'"
        elif text.count(m.old) != 1:
            yield f"{m.name} (line {m.line}): its text occurs {text.count(m.old)} times in {m.file}: {m.old}"
        if m.name in names:
            yield f"{m.name} (line {m.line}): for the second time"
        if not m.reason and m.program not in ("gpu", "cudart", *DEVICE) and not os.path.exists(f"tests/test_{m.program}.c"):
            yield f"{m.name} (line {m.line}): there is no tests/test_{m.program}.c"
        names.add(m.name)


def run(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **more)


class Cpu:
    """The CPU backend: the library is compiled anew, the test program only once; a program that holds the library, too."""
    def __init__(self, mutants, jobs):
        self.whole = {m.program for m in mutants if "#undef BSRI_IMPLEMENTED" in open(f"tests/test_{m.program}.c").read()}
        programs = sorted({m.program for m in mutants} - self.whole)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            done = pool.map(lambda p: run([CC, *FLAGS, "-O1", "-DBSRI_IMPLEMENTED", "-c", f"tests/test_{p}.c", "-o",
                                           f"{WORK}/{p}.o"]), programs)
            for p, result in zip(programs, done):
                if result.returncode:
                    sys.exit(f"tests/test_{p}.c does not compile:\n{result.stdout}")
        self.same = {}  # libraries without a mutant
        for program in programs:
            portable = program in PORTABLE
            if portable not in self.same:
                self.same[portable] = f"{WORK}/same{portable:d}.o"
                self.library(".", program, self.same[portable])

    def library(self, folder, program, to):
        portable = ["-DBSRSPARSE_NO_SIMD"] if program in PORTABLE else []
        return run([CC, f"-I{folder}", *FLAGS, "-O0", *portable, "-c", "tests/compile/implementation.c", "-o", to])

    def build(self, folder, m):
        arguments = m.filter.split(",") if m.filter else []
        if m.program in self.whole:
            made = run([CC, f"-I{folder}", *FLAGS, "-O1", f"tests/test_{m.program}.c", "-o", f"{folder}/program", "-lm",
                        "-lpthread"])
            return made, [f"{folder}/program", *arguments]
        library = self.same[m.program in PORTABLE] if m.old == m.new else f"{folder}/library.o"
        made = None if m.old == m.new else self.library(folder, m.program, library)
        if not made or not made.returncode:
            made = run([CC, f"{WORK}/{m.program}.o", library, "-o", f"{folder}/program", "-lm", "-lpthread"])
        return made, [f"{folder}/program", *arguments]


class Device:
    """Kernels on the host: see tests/test_device.sh, which cuts them out of the sources."""
    def __init__(self, mutants, jobs):
        pass

    def build(self, folder, m):
        os.symlink(os.path.abspath("tests"), f"{folder}/tests")
        program, *options = DEVICE[m.program]
        made = run(["sh", "tests/test_device.sh", *options, "-l"], cwd=folder, env=dict(os.environ, W="device"))
        of_program = [o for o in options if o == "--wgmma"]  # the others say which program
        return made, [f"{folder}/device/{program}", *of_program, *m.filter.split(",")]


class Cudart:
    """The host side of the CUDA backend against tests/cudart, where nothing runs on a device: of the kernels only their stubs are
    needed, which an edit of the host side leaves as they are. So it is compiled without them: seconds, not minutes."""
    KEPT = "build/cudart/host"  # see tests/test_cudart.sh

    def __init__(self, mutants, jobs):
        made = run(["sh", "tests/test_cudart.sh", "--build"])
        if made.returncode or not os.path.exists("build/cudart/test_cudart"):
            sys.exit(f"tests/test_cudart.sh can't be built without a mutant:\n{made.stdout[-2000:]}")

    def build(self, folder, m):
        for kept in os.listdir(self.KEPT):
            shutil.copy(f"{self.KEPT}/{kept}", folder)
        asked = run([NVCC, "--dryrun", "--keep", "--keep-dir", folder, f"-I{folder}", "-std=c++17", "-O0", "-I.", "-gencode",
                     "arch=compute_90a,code=sm_90a", "-c", "tests/cudart/library.cu", "-o", f"{folder}/library.o"])
        if asked.returncode:
            return asked, []
        lines = [line[3:] for line in asked.stdout.split("\n") if line.startswith("#$ ")]
        path = next(line[5:] for line in lines if line.startswith("PATH="))
        # preprocessed for the host, split from the kernels, compiled; the name of the module is the stubs'
        steps = [line.replace("--gen_module_id_file ", "") for line in lines
                 if line.startswith("cudafe++ ") or re.search(" -c +-x c[+][+] ", line)
                 or (re.search(" -E +-x c[+][+] ", line) and "-D__CUDA_ARCH__=" not in line)]
        made = run(["sh", "-ec", "\n".join(steps)], env=dict(os.environ, PATH=path))
        if not made.returncode:
            made = run(["c++", "build/cudart/test_cudart.o", f"{folder}/library.o", "build/cudart/stand_in.o", "-o",
                        f"{folder}/program", "-lm"])
        for name in os.listdir(folder):
            if name.startswith("library."):
                os.remove(f"{folder}/{name}")
        return made, [f"{folder}/program", "build/kernels.txt", "sm_90a", *m.filter.split(",")]


class Gpu:
    """The kernels, on a GPU: build/gpu/test of `make gpu-build`, with another library."""
    def __init__(self, mutants, jobs):
        made = run(["make", "gpu-build"])
        if made.returncode:
            sys.exit(f"make gpu-build fails without a mutant:\n{made.stdout[-2000:]}")
        capability = run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]).stdout.split("\n")[0]
        self.arch = capability.replace(".", "") + ("a" if capability == "9.0" else "")

    def build(self, folder, m):
        code = f"-gencode=arch=compute_{self.arch},code=sm_{self.arch}"
        made = run([NVCC, f"-I{folder}", "-O2", "-std=c++17", "-I.", "-Itests", code, "-c", "tests/gpu/library.cu", "-o",
                    f"{folder}/library.o"])
        objects = [f"build/gpu/test/{o}" for o in sorted(os.listdir("build/gpu/test")) if o.endswith(".o") and o != "library.o"]
        if not made.returncode:
            made = run([NVCC, code, f"{folder}/library.o", *objects, "-o", f"{folder}/program", "-lpthread"])
        return made, [f"{folder}/program", *m.filter.split(",")]


def outcome(kind, m):
    """'' where the mutant is caught, else what happened; m.old == m.new: the sources as they are."""
    folder = f"{WORK}/{m.name}"
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    text = open(m.file).read()
    for source in ("bsrsparse.h", "bsrsparse_kernels.cuh", "tune_table.h"):
        with open(f"{folder}/{source}", "w") as f:
            f.write(text.replace(m.old, m.new) if source == m.file else open(source).read())
    made, command = kind.build(folder, m)
    if made.returncode:
        return "does not compile: " + next((l for l in made.stdout.split("\n") if "error" in l), made.stdout[:200])
    try:
        ran = run(command, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return ""
    with open(f"{folder}/log", "w") as f:
        f.write(ran.stdout)
    if m.program == "gpu" and not ran.returncode and re.search(r"^0 passed, 0 failed", ran.stdout, re.M):
        return "no test was run"
    for big in ("program", "library.o"):
        if os.path.exists(f"{folder}/{big}"):
            os.remove(f"{folder}/{big}")
    return "" if ran.returncode else "passes all of " + m.test


def main():
    global CC, NVCC
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--check", action="store_true")
    args.add_argument("--all", action="store_true")
    args.add_argument("--sample", type=int, default=60)
    args.add_argument("--seed", default="")
    args.add_argument("--jobs", type=int, default=os.cpu_count())
    args.add_argument("--cuda", action="store_true")
    args.add_argument("--gpu", action="store_true")
    args.add_argument("names", nargs="*")
    a = args.parse_args()
    CC, NVCC = os.environ.get("CC", "cc"), os.environ.get("NVCC", "nvcc")
    CC = CC if shutil.which(CC) else "gcc"
    mutants = read_list(LIST)
    bad = list(wrong_in_list(mutants))
    print("\n".join(f"FAIL {line}" for line in bad) or f"{len(mutants)} edits find their text, "
          f"{sum(m.reason is not None for m in mutants)} of them change no result")
    if a.check or bad:
        return bool(bad)
    seed = a.seed or run(["git", "rev-parse", "HEAD"]).stdout
    mutants = [m for m in mutants if not m.reason and (not a.names or any(n in m.name for n in a.names))]
    picked = [m for m in mutants if m.program not in ("gpu", "cudart")]
    if not a.all and not a.names:
        picked = sorted(picked, key=lambda m: hashlib.sha256((seed + m.name).encode()).digest())[:a.sample]
    groups = [(Cpu, [m for m in picked if m.program not in DEVICE], a.jobs),
              (Device, [m for m in picked if m.program in DEVICE], a.jobs)]
    if a.cuda:
        groups.append((Cudart, [m for m in mutants if m.program == "cudart"], a.jobs))
    if a.gpu:
        groups.append((Gpu, [m for m in mutants if m.program == "gpu"], 1))
    os.makedirs(WORK, exist_ok=True)
    caught = missed = 0
    began = time.time()
    for make, chosen, jobs in groups:
        if not chosen:
            continue
        kind = make(chosen, jobs)
        same = [Mutant(m.file, "none-" + m.program, m.program + ":" + m.filter, None, 0) for m in chosen]
        same = list({m.test: m for m in same}.values())  # each test once without a mutant: it must pass
        for i, m in enumerate(same):
            m.old = m.new = "\n"
            m.name += f"-{i}"
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for m, what in zip(same, pool.map(lambda m: outcome(kind, m), same)):
                if what != "passes all of " + m.test:
                    print(f"FAIL {m.test} without a mutant: {what or 'fails'}", flush=True)
                    missed += 1
            for m, what in zip(chosen, pool.map(lambda m: outcome(kind, m), chosen)):
                caught, missed = caught + (not what), missed + bool(what)
                if what:
                    print(f"FAIL {m.name} (line {m.line} of {LIST}): {what}\n- {m.old}\n+ {m.new}", flush=True)
    print(f"{time.time() - began:.0f} s")
    print(f"{caught} passed, {missed} failed, 0 skipped")
    return missed > 0 or not caught


if __name__ == "__main__":
    sys.exit(main())
