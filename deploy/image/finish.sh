# SPDX-License-Identifier: Apache-2.0
#
# finish.sh ROOT FOLDER: the last step of an image's file system; the packages were mounted in FOLDER.
# Run by `./dev image`.

set -eu
root=$1

mkdir -p "$root/models" "$root/opt/kserve/mmesh"
# the preStop hook of KServe ModelMesh's pods
ln -s /usr/libexec/shoal/stop.sh "$root/opt/kserve/mmesh/stop.sh"
# The runtime gives it a name and name servers; nobody installs anything there.
rm -rf "$root/etc/apt/apt.conf.d/99mmdebstrap" "$root"/etc/apt/sources.list* "$root/etc/hostname" \
    "$root/etc/resolv.conf" "$root"/var/cache/* "$root"/var/log/* "${root:?}$2"
# nothing there makes anybody another user
find "$root" -xdev -type f -perm /6000 -exec chmod ug-s {} +
