#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The modelets of examples/languages, built by the commands of their README against what is installed,
# export the one symbol and pass the test that `shoalctl new modelet twice` makes for the same modelet
# in C. A language without a compiler here is skipped, by name.

set -euo pipefail
. "$SHOAL_SOURCE_DIR/tests/install/prefix.sh"

cd "$work"
run_quietly "$prefix/bin/shoalctl" new modelet twice
run_quietly cmake -G Ninja -S twice -B build
run_quietly cmake --build build
cp "$SHOAL_SOURCE_DIR"/examples/languages/* .
tested=
# The indented lines of the README, one command for each language.
sed -n 's/^    //p' README.md | sed -z 's/\\\n *//g' >commands
while read -r command; do
    compiler=${command%% *}
    if ! command -v "$compiler" >/dev/null; then
        echo "skipped: no $compiler"
        continue
    fi
    run_quietly bash -c "$command"
    # libstdc++ adds templates of its own
    [ "$(exported_by libtwice.so | tr ' ' '\n' | grep -v '^_Z')" = "shoal_modelet" ] ||
        fail "$compiler exports: $(exported_by libtwice.so)"
    run_quietly build/test_twice "$PWD/libtwice.so"
    rm libtwice.so
    tested="$tested $compiler"
done <commands
[ "$(wc -l <commands)" = 2 ] || fail "commands: $(cat commands)"
[ -n "$tested" ] || fail "nothing was tested"
echo "built and tested:$tested"
