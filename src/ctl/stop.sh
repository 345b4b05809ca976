#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# stop.sh [wait]: drains and ends this container's node. KServe ModelMesh's container has a script of
# this name, so a pod's preStop hook (`/opt/kserve/mmesh/stop.sh wait`) works unchanged: the image that
# `./dev image` makes has a link there.
#
# With `wait` it returns when the node's process has ended; without, when the drain has begun. The exit
# code is that of `shoalctl mesh drain`. SHOAL_COUNTERS names the node's counters file, if its
# configuration does.

set -eu
self=$(readlink -f -- "$0")
shoalctl=${self%/*}/../../bin/shoalctl # as installed: libexec/shoal/stop.sh
[ -x "$shoalctl" ] || shoalctl=shoalctl

case "$#:${1:-}" in
0:) how="--no-wait" ;;
1:wait) how="--timeout-ms=86400000" ;;
*)
    echo "usage: stop.sh [wait]" >&2
    exit 2
    ;;
esac
exec "$shoalctl" mesh drain --quiet "$how" ${SHOAL_COUNTERS:+--counters "$SHOAL_COUNTERS"}
