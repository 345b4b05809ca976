#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# `./dev demo`: starts shoald on the digits pipeline, sends every held-out digit through it from a
# separate client, shows what each stage did, and stops the service. Fails if shoald does, if a call
# does, or if less than 95 % of the digits come back right.
#
# SHOAL_BUILD_DIR: the build to take the programs from. Arguments go to digits-client.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
bin=$SHOAL_BUILD_DIR/bin
config=$SHOAL_BUILD_DIR/examples/digits/digits.yaml
folder=$(mktemp -d "${TMPDIR:-/tmp}/shoal-demo.XXXXXX")
address=unix:$folder/grpc.sock
log=$folder/shoald.log
counters=$folder/counters
server=

finish() {
    local code=$?
    [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
    [ $code = 0 ] || [ ! -s "$log" ] || { echo "--- the log of shoald:"; tail -n 50 "$log"; } >&2
    rm -rf "$folder"
}
trap finish EXIT

die() {
    echo "demo: $*" >&2
    exit 1
}

# The configuration pins to CPUs 0 and 1, which not every machine or container has.
pinning=--no-pin
if taskset -c 0 true 2>/dev/null && taskset -c 1 true 2>/dev/null; then
    pinning=
fi

"$bin/shoald" --listen "$address" --counters "$counters" $pinning "$config" >"$log" 2>&1 &
server=$!
"$bin/digits-client" --target "$address" --data "$here/data/digits.csv" --wait 30 --rounds 20 "$@" &
client=$!

# Whichever ends first: a service that ends now has failed, and the client need not wait for it.
code=0
wait -n -p ended "$server" "$client" || code=$?
if [ "$ended" = "$server" ]; then
    server=
    kill "$client" 2>/dev/null || true
    die "shoald ended with exit code $code"
fi
[ $code = 0 ] || die "digits-client ended with exit code $code"

echo
"$bin/shoalctl" stat --counters "$counters"

kill -TERM "$server"
for ((i = 0; i < 300; i++)); do
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
done
! kill -0 "$server" 2>/dev/null || die "shoald did not stop within 30 s of SIGTERM"
wait "$server" || code=$?
server=
[ $code = 0 ] || die "shoald ended with exit code $code after SIGTERM"
echo
echo "demo: stopped cleanly"
