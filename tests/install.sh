#!/bin/sh
# What `make install`, `install-shared` and `uninstall` put and take away; programs built from what is installed: by pkg-config,
# by CMake (examples/cmake: installed, and from the source tree), from a Debian package. The shared object is built once,
# unoptimised. Environment: CC, B, JOBS, OPENMP.
set -u
. tests/cases.sh
here=$(pwd)
w=$here/${B:-build}/install
rm -rf "$w" && mkdir -p "$w/v"
cases_begin "$w/cases"
if command -v "${CC:-cc}" > /dev/null 2>&1; then cc=${CC:-cc}; else cc=gcc; fi
part() { sed -n "s/^#define BSR_VERSION_$1 \([0-9]*\)\$/\1/p" bsrsparse.h; }
major=$(part MAJOR) minor=$(part MINOR)
version=$major.$minor.$(part PATCH)
make="${MAKE:-make} -s CC='$cc' CFLAGS=-O0 B=$w/build"

root="$w/a root" # with a blank
ours="PREFIX=/opt/it LIBDIR=/opt/it/lib64 INCLUDEDIR=/opt/it/inc"
mkdir -p "$root/opt/it/inc/bsrsparse" "$root/opt/it/lib64/pkgconfig" "$root/opt/it/share/doc"
echo other > "$root/opt/it/inc/tune_table.h"
echo other > "$root/opt/it/inc/bsrsparse/mine.h"
echo other > "$root/opt/it/lib64/pkgconfig/other.pc"
(cd "$root" && find . | sort) > "$w/before"
eval "$make install-shared DESTDIR='$root' $ours" > "$w/log" 2>&1 || cat "$w/log"
eval "$make install-shared DESTDIR= PREFIX='$w/usr'" > "$w/log" 2>&1 || cat "$w/log"
cp -r "$w/usr" "$w/moved"

cat > "$w/want" << END
inc/bsrsparse/bsrsparse.h
inc/bsrsparse/bsrsparse_kernels.cuh
inc/bsrsparse/mine.h
inc/bsrsparse/tune_table.h
inc/tune_table.h
lib64/cmake/bsrsparse/bsrsparse-config-version.cmake
lib64/cmake/bsrsparse/bsrsparse-config.cmake
lib64/cmake/bsrsparse/bsrsparse-targets.cmake
lib64/libbsrsparse.so
lib64/libbsrsparse.so.$major.$minor
lib64/libbsrsparse.so.$version
lib64/pkgconfig/bsrsparse-openmp.pc
lib64/pkgconfig/bsrsparse-shared.pc
lib64/pkgconfig/bsrsparse.pc
lib64/pkgconfig/other.pc
share/doc/bsrsparse/LICENSE
END
case_ "installs these files" "cd '$root/opt/it'; find . ! -type d | sed 's:^\\./::' | sort > $w/have
sort $w/want | diff - $w/have
cmp inc/bsrsparse/bsrsparse.h $here/bsrsparse.h; cmp share/doc/bsrsparse/LICENSE $here/LICENSE
[ \"\$(cat inc/tune_table.h)\" = other ]"
case_ "everybody may read what is installed, whatever umask and source tree say" "t=$w/tight; mkdir -p \$t/tests \$t/b
cp -r Makefile *.h bsrsparse_kernels.cuh LICENSE examples \$t; cp -r tests/compile \$t/tests; chmod -R go= \$t
(cd \$t; umask 077; cp $w/build/libbsrsparse.so b; $make install-shared B=b DESTDIR=$w/open PREFIX=/usr)
find $w/open/usr ! -perm -044 ! -type l > $w/closed; find $w/open/usr -type d ! -perm -055 >> $w/closed; ! grep . $w/closed"
case_ "make shared takes a packager's flags" "$make -n shared CPPFLAGS=-DMINE=1 LDFLAGS=-Wl,-z,now B=$w/none | tr '\\n' ' ' |
    grep -q -- '-DMINE=1.*-Wl,-z,now'"
case_ "uninstall takes away what install put, and nothing else" "cp -r '$root' '$w/copy of it'
for again in 1 2; do # the second time there is nothing to do
    $make uninstall DESTDIR='$w/copy of it' $ours
    (cd '$w/copy of it' && find . ! -path ./opt/it/lib64/cmake | sort) | diff $w/before -
done; [ \"\$(cat '$w/copy of it/opt/it/inc/bsrsparse/mine.h')\" = other ]"
case_ "nobody else's tune_table.h is taken" "mkdir -p $w/t; cp -r $w/usr $w/t
echo '#error another' > $w/t/usr/include/tune_table.h
printf '%s\n' '#include <bsrsparse/bsrsparse.h>' 'int main(void) { return bsr_tune_built_in().row_count > 0 ? 0 : 1; }' > $w/t/t.c
$cc -std=c99 -I$w/t/usr/include $w/t/t.c -L$w/usr/lib -lbsrsparse -o $w/t/t; LD_LIBRARY_PATH=$w/usr/lib $w/t/t
$cc -std=c99 -DBSRSPARSE_IMPLEMENTATION -I$w/t/usr/include -fsyntax-only $w/t/t.c"

# ---- pkg-config ----

with_pc() {
    case_ "pkg-config: $1" "command -v pkg-config > /dev/null ||
    { echo 'pkg-config is absent (Debian: apt install pkg-config)'; exit 77; }
export PKG_CONFIG_PATH=$w/usr/lib/pkgconfig
$2"
}
with_pc "headers" "[ \"\$(echo \$(pkg-config --cflags --libs bsrsparse))\" = '-I$w/usr/include/bsrsparse -lm' ]
$cc -std=c99 -O0 $here/examples/smallest.c \$(pkg-config --cflags --libs bsrsparse) -o $w/p && $w/p | grep -q '16   17'
[ \$(pkg-config --modversion bsrsparse) = $version ]"
all=$(sed -n 's/^all="\(.*\)"/\1/p' tests/compile.sh) # one list
with_pc "with OpenMP" "[ -n '${OPENMP:-}' ] || { echo '$cc has no OpenMP'; exit 77; }
$cc -std=c99 -O0 -DBSRSPARSE_NO_SIMD $here/tests/compile/switches.c \$(pkg-config --cflags --libs bsrsparse-openmp) -o $w/o
OMP_NUM_THREADS=2 $w/o '$all threads text'"
plain="$here/tests/compile/plain.c $here/tests/compile/main_plain.c"
with_pc "the shared object" "$cc -std=c99 $plain \$(pkg-config --cflags --libs bsrsparse-shared) -o $w/s
LD_LIBRARY_PATH=$w/usr/lib $w/s; readelf -d $w/s | grep -qF 'library: [libbsrsparse.so.$major.$minor]'"
with_pc "moved elsewhere" "export PKG_CONFIG_PATH=$w/moved/lib/pkgconfig
[ \"\$(pkg-config --define-variable=prefix=$w/moved --variable=includedir bsrsparse)\" = $w/moved/include/bsrsparse ]"
case_ "the shared object: all public calls and nothing else" "so=$w/usr/lib/libbsrsparse.so
readelf -d \$so | grep -qF 'soname: [libbsrsparse.so.$major.$minor]'
nm -D --defined-only \$so | awk '{ print \$3 }' | grep -v '^_' | sort > $w/calls
sh $here/tests/declared.sh $here/bsrsparse.h | diff - $w/calls"

# ---- Python ----

case_ "the README's Python finds what make shared builds" "
python3 -c 'import numpy, scipy' 2> /dev/null || { echo 'NumPy or SciPy is absent (pip install numpy scipy)'; exit 77; }
t=$w/tree; mkdir -p \$t/build/compiler; cp -r Makefile *.h bsrsparse_kernels.cuh examples tests/compile \$t
mkdir \$t/tests; mv \$t/compile \$t/tests; cp $w/build/libbsrsparse.so \$t/build/compiler
ln -s libbsrsparse.so \$t/build/compiler/libbsrsparse.so.$major.$minor
sed -n '/^make shared && cd examples.python\$/,/^\`\`\`/{ /\`\`\`/d; p; }' README.md > $w/readme.sh
[ \$(grep -c . $w/readme.sh) -gt 1 ]
(cd \$t; make() { command make -s -q B=build/compiler \"\$@\"; }; . $w/readme.sh) > $w/readme.txt
grep -q '^ \[0. 0. 0. 0. 0. 1.\]\]' $w/readme.txt"

# ---- CMake ----

# cmake_ NAME CC CXX OPTIONS: examples/cmake, built by these and run
cmake_() {
    case_ "CMake: $1" "command -v cmake > /dev/null || { echo 'cmake is absent (Debian: apt install cmake)'; exit 77; }
command -v $3 > /dev/null || { echo '$3 is absent'; exit 77; }
echo 'int main() { return 0; }' > $w/$1.cpp
$3 -std=c++20 $w/$1.cpp -o $w/$1.probe 2> /dev/null || { echo '$3 has no C++20'; exit 77; }
CC=$2 CXX=$3 cmake -S $here/examples/cmake -B $w/cmake-$1 $4 > $w/$1.log 2>&1 || { tail -n 20 $w/$1.log; exit 1; }
cmake --build $w/cmake-$1 > $w/$1.log 2>&1 || { tail -n 20 $w/$1.log; exit 1; }
! grep -i warning $w/$1.log; $w/cmake-$1/filter | grep -qx ok"
}
cmake_ installed gcc g++ "-DCMAKE_PREFIX_PATH=$w/moved" # what is installed may be moved
cmake_ subdirectory clang clang++ "-DBSRSPARSE_SOURCE=$here -DBSRSPARSE_OPENMP=OFF"
# finds WANT OK: does find_package take it?
finds=
finds() { finds="$finds
found '$1' $2"; }
finds "$major.$minor" 1
finds "$version EXACT" 1
finds "$major" 1
finds "$major.99" 0
finds "99" 0
finds "$major.$minor.99" 0
finds "$major.$minor COMPONENTS headers cpu" 1
finds "$major.$minor COMPONENTS cuda" 0
case_ "CMake: refuses other versions, and parts that are not there" "command -v cmake > /dev/null ||
    { echo 'cmake is absent'; exit 77; }
found() {
    d=$w/v/\$(echo \"\$1\" | tr -dc 'a-zA-Z0-9'); mkdir -p \$d
    printf '%s\n' 'cmake_minimum_required(VERSION 3.12)' 'project(v C)' \"find_package(bsrsparse \$1)\" \\
        'if(NOT bsrsparse_FOUND)' 'message(FATAL_ERROR \"none\")' 'endif()' > \$d/CMakeLists.txt
    got=0; cmake -S \$d -B \$d/b -DCMAKE_PREFIX_PATH=$w/usr > \$d/log 2>&1 && got=1
    [ \$got = \$2 ] || { echo \"\$1: \$got\"; tail -n 5 \$d/log; exit 1; }
}$finds"

# ---- a Debian package ----

case_ "a .deb" "command -v dpkg-deb > /dev/null || { echo 'dpkg-deb is absent'; exit 77; }
d=$w/deb; mkdir -p \$d/tree/DEBIAN
$make install-shared DESTDIR=\$d/tree PREFIX=/usr
printf '%s\n' 'Package: libbsrsparse-dev' 'Version: $version-1' \"Architecture: \$(dpkg --print-architecture)\" \\
    'Maintainer: nobody <nobody@example.org>' 'Description: block-sparse matrix products' > \$d/tree/DEBIAN/control
dpkg-deb --root-owner-group --build \$d/tree \$d/it.deb > /dev/null
dpkg-deb -c \$d/it.deb | grep -q usr/include/bsrsparse/bsrsparse.h; dpkg-deb -x \$d/it.deb \$d/out
! grep -rlF $here \$d/out/usr/lib/pkgconfig \$d/out/usr/lib/cmake
$cc -std=c99 -I\$d/out/usr/include/bsrsparse $plain -L\$d/out/usr/lib -lbsrsparse -lm -o \$d/a
LD_LIBRARY_PATH=\$d/out/usr/lib \$d/a"
cases_end
