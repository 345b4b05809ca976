# SPDX-License-Identifier: Apache-2.0
#
# layout.sh LAYER LAYOUT SECONDS: an OCI image layout of one layer, a tar, made at that time. Run by
# `./dev image`.

set -eu
layer=$1 layout=$2
made=$(date -u -d "@$3" +%Y-%m-%dT%H:%M:%SZ)
user=$(tar -xOf "$layer" ./etc/passwd | sed -n 's/^shoal:[^:]*:\([0-9]*:[0-9]*\):.*/\1/p')
[ -n "$user" ]

umoci init --layout "$layout"
umoci new --image "$layout:latest"
umoci raw add-layer --image "$layout:latest" --history.created "$made" "$layer"
umoci config --image "$layout:latest" --no-history --created "$made" \
    --config.user "$user" --config.entrypoint /usr/bin/shoald --config.cmd /etc/shoal/shoald.yaml \
    --config.env PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    --config.exposedports 8033/tcp --config.exposedports 8008/tcp --config.exposedports 2112/tcp \
    --config.exposedports 8089/tcp
umoci gc --layout "$layout"
