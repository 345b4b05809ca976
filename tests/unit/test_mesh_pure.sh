#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# That the mesh core is pure: of what its archive does not define itself, there is nothing but memory,
# strings and src/base's check; no clock, no file, no thread, no random device.

set -eu
archive=$SHOAL_BUILD_DIR/src/mesh/core/libshoal_mesh_core.a
allowed='free|malloc|calloc|realloc|reallocarray|memcpy|memmove|memset|memcmp|strlen|strcmp|strncmp|strcspn'
allowed="$allowed|check_failed|bump_(take|reset|fini)|__(memcpy|memset|memmove)_chk|__stack_chk_fail"
instruments='__(asan|ubsan|tsan|msan|sanitizer|gcov|llvm|sancov)_.*'
defined=$(nm -g --defined-only "$archive" | awk 'NF == 3 { print $3 }' | sort -u)
foreign=$(nm -u "$archive" | awk '$1 == "U" { print $2 }' | sort -u |
    grep -Evx "($allowed|$instruments|_GLOBAL_OFFSET_TABLE_)" | grep -Fvx "$defined" || true)
[ -n "$defined" ] || { echo "no symbols in $archive"; exit 1; }
[ -z "$foreign" ] || { echo "the mesh core is not pure:" $foreign; exit 1; }
