#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# `shoalctl new modelet` as an author would use it, with what is installed and outside of the sources:
# the folder builds without a warning, passes its own tests, serves, and answers over gRPC and REST;
# the test fails when the modelet is broken. Nothing is overwritten, and names are checked.

set -euo pipefail
. "$SHOAL_SOURCE_DIR/tests/install/prefix.sh"
export PATH=$prefix/bin:$PATH

cd "$work"
run_quietly shoalctl new modelet twice
[ "$(cd twice && echo *)" = "CMakeLists.txt README.md shoald.yaml test_twice.c twice.c" ] ||
    fail "made: $(ls twice)"
! grep -r '@' twice || fail "a mark was left"

# refused CODE TEXT ARGUMENTS...
refused() {
    local code=0 wanted=$1 text=$2
    shift 2
    shoalctl new "$@" >"$work/log" 2>&1 || code=$?
    [ $code = "$wanted" ] && grep -q "$text" "$work/log" || { cat "$work/log"; fail "new $*: $code"; }
}
echo mine >twice/twice.c.mine
refused 3 'twice: nothing is overwritten' modelet twice
grep -q mine twice/twice.c.mine || fail "overwritten"
for name in Twice 2nd a-b a/b ../b "" "$(printf 'a%.0s' {1..41})" test; do
    refused 2 'the name' modelet "$name"
done
refused 2 'a name is missing' modelet
refused 2 'one name at a time' modelet one two
refused 2 'is not one of its commands' pipeline
refused 2 'a command is missing'
[ "$(echo */)" = "prefix/ twice/" ] || fail "left behind: $(echo */)"

cd twice
run_quietly cmake -G Ninja -B build -DCMAKE_C_FLAGS=-Werror
run_quietly cmake --build build
[ "$(exported_by libtwice.so)" = "shoal_modelet " ] || fail "exports: $(exported_by libtwice.so)"
run_quietly ctest --test-dir build --output-on-failure
if command -v valgrind >/dev/null; then
    said=$(sed -n 's/^`\(valgrind .*\)`\.$/\1/p' "$SHOAL_SOURCE_DIR/docs/debugging.md")
    run_quietly bash -c "${said/valgrind/valgrind --error-exitcode=9}"
    grep -q Memcheck "$work/log" || fail "docs/debugging.md: $said"
else
    echo "skipped: no valgrind"
fi

port=$("$SHOAL_PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
sed -i "s/:8008/:$port/" shoald.yaml
setpriv --pdeathsig KILL shoald --no-pin --counters "$work/counters" --listen "unix:$work/grpc.sock" \
    shoald.yaml 2>"$work/shoald.log" &
node=$!
run_quietly shoalctl status twice --counters "$work/counters" --wait-ready 60
shoalctl infer twice --input 'x=FP32[3]:1,2,3' --target "unix:$work/grpc.sock" >"$work/said"
grep -q '2.* 4.* 6' "$work/said" || { cat "$work/said" "$work/shoald.log"; fail "not twice"; }
curl -s "localhost:$port/v2/models/twice/infer" --json \
    '{"inputs": [{"name": "x", "datatype": "FP32", "shape": [3], "data": [1, 2, 3]}]}' >"$work/said"
grep -q '"data":\[2\.\?0\?,4\.\?0\?,6\.\?0\?\]' "$work/said" || { cat "$work/said"; fail "not twice by REST"; }
kill $node
wait $node || fail "shoald ended with $?"

sed -i 's/self->factor \* /(1 + self->factor) * /' twice.c
run_quietly cmake --build build
! ctest --test-dir build >"$work/log" 2>&1 || fail "its test passes a broken modelet"
grep -q 'y is not 2 x\|Failed' "$work/log" || { cat "$work/log"; fail "failed otherwise"; }
echo "made, built, tested, served and called"
