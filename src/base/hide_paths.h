/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes this machine's paths from texts for callers. Pure.
 */
#pragma once

#include <stddef.h>

/*
 * Copies a text without its absolute paths, cut at `room`. A path beneath one of the `roots` is
 * replaced by the part below the root, any other by ".../" and its last part. A path that is not a
 * root ends at white space, a quote or one of ,;:|)]}>. URLs other than file: are kept.
 */
void hide_paths(const char *text, const char *const *roots, size_t root_count, char *hidden,
                size_t room);
