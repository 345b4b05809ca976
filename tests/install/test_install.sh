#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs Shoal into a fresh prefix, moves the prefix, and builds a modelet there as an outside
# author would: with pkg-config and cc, and with find_package. Nothing of the source tree is on any
# path. Each result must export the one symbol and nothing else, and programs, example modelets,
# their configurations and the licence must be in place.

set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "install: $*" >&2
    exit 1
}

check_exports() {
    local exported
    exported=$(nm -D --defined-only "$1" | cut -d' ' -f3 | grep -v '^__' | tr '\n' ' ')
    [ "$exported" = "shoal_modelet " ] || fail "$1 exports: $exported"
}

cmake --install "$SHOAL_BUILD_DIR" --prefix "$work/staged" >"$work/install.log"
mv "$work/staged" "$work/prefix"
mkdir "$work/outside"
cp "$SHOAL_SOURCE_DIR/tests/install/modelet.c" "$work/outside/"
cp "$SHOAL_SOURCE_DIR/tests/install/outside.cmake" "$work/outside/CMakeLists.txt"
cd "$work/outside"

export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name shoal-modelet.pc)")
pkg-config --exists shoal-modelet || fail "pkg-config does not know shoal-modelet"
cc -std=c11 -Wall -Wextra -Wpedantic -Werror -shared -fPIC $(pkg-config --cflags shoal-modelet) \
    modelet.c -o libpkgconfig.so
check_exports libpkgconfig.so

cmake -G Ninja -S . -B build -DCMAKE_PREFIX_PATH="$work/prefix" >cmake.log || { cat cmake.log; exit 1; }
cmake --build build >>cmake.log || { cat cmake.log; exit 1; }
check_exports build/liboutside.so

for program in shoald shoal-worker shoalctl; do
    [ -x "$work/prefix/bin/$program" ] || fail "$program is not installed"
done
[ -n "$(find "$work/prefix" -name LICENSE)" ] || fail "no licence installed"
[ -n "$(find "$work/prefix/lib/shoal" -name '*.so')" ] || fail "no modelet installed"
[ -n "$(find "$work/prefix/share/shoal/examples" -name '*.yaml')" ] || fail "no example installed"
dangling=$(find -L "$work/prefix" -type l)
[ -z "$dangling" ] || fail "links to nothing: $dangling"
echo "installed, moved, and built against: $(pkg-config --modversion shoal-modelet)"
