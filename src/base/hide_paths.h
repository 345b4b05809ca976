/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts about files, for callers, who are not to learn where things lie on this machine. Pure.
 */
#pragma once

#include <stddef.h>

/*
 * Copies a text without its absolute paths, cut at `room`: of those beneath one of the `roots` the
 * rest is left, of all others ".../" and their last part. A path ends at white space, a quote or
 * one of ,;:|)]}> where it is not a root. URLs, but for file:, stay.
 */
void hide_paths(const char *text, const char *const *roots, size_t root_count, char *told,
                size_t room);
