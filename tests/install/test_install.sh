#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds a modelet against the installed package as an outside author would: with pkg-config and cc,
# and with find_package, in C and in C++, and tests it with the harness. Each result must export the one symbol and nothing else, and programs,
# example modelets, their configurations and the licence must be in place.

set -euo pipefail
. "$SHOAL_SOURCE_DIR/tests/install/prefix.sh"

check_exports() {
    [ "$(exported_by "$1")" = "shoal_modelet " ] || fail "$1 exports: $(exported_by "$1")"
}

mkdir "$work/outside"
cp "$SHOAL_SOURCE_DIR"/tests/install/{modelet.c,modelet.cpp,test.c} "$work/outside/"
cp "$SHOAL_SOURCE_DIR/tests/install/outside.cmake" "$work/outside/CMakeLists.txt"
cd "$work/outside"

pkg-config --exists shoal-modelet || fail "pkg-config does not know shoal-modelet"
cc -std=c11 -Wall -Wextra -Wpedantic -Werror -shared -fPIC $(pkg-config --cflags shoal-modelet) \
    modelet.c -o libpkgconfig.so
check_exports libpkgconfig.so

run_quietly cmake -G Ninja -S . -B build -DCMAKE_PREFIX_PATH="$prefix"
run_quietly cmake --build build
check_exports build/liboutside.so
check_exports build/liboutside_cpp.so
run_quietly ctest --test-dir build --output-on-failure
# ShoalModelet::harness holds a modelet to its contract: this one writes behind its output.
sed 's/item->status = .*/*((char *)batch->host->output(item, "output", SHOAL_FP32, 1, (int64_t[]){3}) + 12) = 1;/' \
    modelet.c >broken.c
cc -shared -fPIC $(pkg-config --cflags shoal-modelet) broken.c -o libbroken.so
! build/test_outside "$PWD/libbroken.so" >"$work/log" 2>&1 || fail "the harness passes an overrun"
grep -q 'wrote 1 bytes behind tensor "output"' "$work/log" || { cat "$work/log"; fail "not told"; }

for program in shoald shoal-worker shoalctl shoal-gateway; do
    [ -x "$prefix/bin/$program" ] || fail "$program is not installed"
done
# It finds shoalctl from where it lies, through a link too, and says what that says: there is no node.
ln -s "$prefix/libexec/shoal/stop.sh" "$work/stop.sh"
code=0
SHOAL_COUNTERS=$work/nobody "$work/stop.sh" wait >"$work/log" 2>&1 || code=$?
[ $code = 3 ] || { cat "$work/log"; fail "stop.sh without a node ended with $code"; }
code=0
"$work/stop.sh" now >"$work/log" 2>&1 || code=$?
[ $code = 2 ] || fail "stop.sh now ended with $code"
for page in man1/shoalctl.1 man5/shoald.yaml.5 man8/shoald.8 man8/shoal-worker.8 man8/shoal-gateway.8; do
    grep -q '^\.SH NAME' "$prefix/share/man/$page" || fail "no manual page $page"
done
[ -s "$prefix/share/bash-completion/completions/shoalctl" ] || fail "no completion"
[ -n "$(find "$prefix" -name LICENSE)" ] || fail "no licence installed"
[ -n "$(find "$prefix/lib/shoal" -name '*.so')" ] || fail "no modelet installed"
[ -n "$(find "$prefix/share/shoal/examples" -name '*.yaml')" ] || fail "no example installed"
dangling=$(find -L "$prefix" -type l)
[ -z "$dangling" ] || fail "links to nothing: $dangling"
echo "installed, moved, and built against: $(pkg-config --modversion shoal-modelet)"
