#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Uses libshoal as an outside author would: each public header compiles by itself, as C11 and as
# C++17, without a warning; the library has its soname and exports what the header declares, and
# nothing else; the installed example is built with pkg-config and with find_package, and it, that in
# Python too, is answered by the installed daemon on the installed configuration.

set -euo pipefail
. "$SHOAL_SOURCE_DIR/tests/install/prefix.sh"

# ---- headers

# compile_header COMPILER LANGUAGE STANDARD HEADER
compile_header() {
    echo "#include <shoal/$4>" |
        run_quietly "$1" -x "$2" -std="$3" -Wall -Wextra -pedantic -Werror $cflags -fsyntax-only -
}

pkg-config --exists shoal || fail "pkg-config does not know shoal"
cflags=$(pkg-config --cflags shoal)
for header in "$prefix"/include/shoal/*.h; do
    for compiler in gcc clang; do
        compile_header $compiler c c11 "$(basename "$header")"
    done
    for compiler in g++ clang++; do
        if command -v $compiler >/dev/null; then
            compile_header $compiler c++ c++17 "$(basename "$header")"
        fi
    done
done
command -v g++ clang++ >/dev/null || fail "no compiler of C++: neither g++ nor clang++"

# ---- the library

libdir=$(pkg-config --variable=libdir shoal)
library=$(readlink -f "$libdir/libshoal.so")
soname=$(readelf -d "$library" | sed -n 's/.*soname: \[\(.*\)\]/\1/p')
[ "$soname" = libshoal.so.1 ] || fail "soname is $soname"
[ "$(readlink -f "$libdir/$soname")" = "$library" ] || fail "$soname is not beside libshoal.so"
declared=$(grep -o 'shoal_[a-z_]*(' "$prefix/include/shoal/client.h" | tr -d '(' | sort -u | tr '\n' ' ')
[ "$(exported_by "$library")" = "$declared" ] ||
    fail "exported: $(exported_by "$library"), declared: $declared"

# ---- the examples

cp "$prefix"/share/shoal/examples/local/* "$work"
cp "$SHOAL_SOURCE_DIR/tests/install/client.cmake" "$work/CMakeLists.txt"
cd "$work"
cc -std=c11 -Wall -Wextra -Wpedantic -Werror client.c $(pkg-config --cflags --libs shoal) -o client
run_quietly cmake -G Ninja -S . -B build -DCMAKE_PREFIX_PATH="$prefix"
run_quietly cmake --build build

# ---- and a node

sanitizers=$(ldd "$library" | sed -n 's/.*=> \(.*\/lib[a-z]*san\.so[^ ]*\).*/\1/p' | tr '\n' ':')
export SHOAL_LOCAL=$work/counters.local

# expect TEXT COMMAND...: its output; what is built without the library's sanitizers is given them
expect() {
    local wanted=$1 said code=0
    shift
    said=$(LD_PRELOAD=$sanitizers ASAN_OPTIONS=detect_leaks=0 "$@" 2>"$work/log") || code=$?
    [ $code = 0 ] || { cat "$work/shoald.log" "$work/log"; fail "$* ended with $code"; }
    [ "$said" = "$wanted" ] || fail "$*: $said"
}

setpriv --pdeathsig KILL "$prefix/bin/shoald" --no-pin --counters "$work/counters" \
    --listen "unix:$work/grpc.sock" "$prefix/share/shoal/examples/echo/echo.yaml" 2>"$work/shoald.log" &
node=$!
"$prefix/bin/shoalctl" status echo --counters "$work/counters" --wait-ready 60 >"$work/log" 2>&1 ||
    { cat "$work/log" "$work/shoald.log"; fail "no node"; }

numbers=$'3\n1\n4'
expect "$numbers" env LD_LIBRARY_PATH="$libdir" "$work/client" 3 1 4
expect "$numbers" "$work/build/client" 3 1 4 # CMake has noted where the library is
expect 'numbers [3.0, 1.0, 4.0]' env -u SHOAL_BUILD_DIR LD_LIBRARY_PATH="$libdir" \
    "$SHOAL_PYTHON" -B client.py 3 1 4
kill $node
wait $node || fail "shoald ended with $?"
echo "built against, and answered by, what was installed: $(pkg-config --modversion shoal)"
