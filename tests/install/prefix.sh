# SPDX-License-Identifier: Apache-2.0
#
# Shared by the tests of this folder: Shoal, installed into a fresh prefix, and the prefix moved;
# nothing of the source tree is on any path. Sets $work, which goes with the script, $prefix, and
# PKG_CONFIG_PATH.

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

fail() {
    echo "install: $*" >&2
    exit 1
}

# run_quietly COMMAND...: shows what it printed only if it fails
run_quietly() {
    "$@" >"$work/log" 2>&1 || { cat "$work/log"; fail "$*"; }
}

# exported_by LIBRARY: the names of its symbols, on one line
exported_by() {
    nm -D --defined-only "$1" | cut -d' ' -f3 | grep -v -e '^__' -e '^SHOAL_1$' | sed 's/@.*//' |
        sort | tr '\n' ' '
}

run_quietly cmake --install "$SHOAL_BUILD_DIR" --prefix "$work/staged"
mv "$work/staged" "$prefix"
PKG_CONFIG_PATH=$(find "$prefix" -type d -name pkgconfig | tr '\n' ':')
export PKG_CONFIG_PATH
