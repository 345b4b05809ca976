/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of the cache on folders. */
#pragma once

#include <stdint.h>

#include "base/error.h"

/* Deletes a file, or a folder and all in it. Errors are ignored: the next start tries again. */
void tree_remove(const char *path);
/* The bytes of all files beneath. */
uint64_t tree_bytes(const char *path);
/* Makes a folder and those above it. */
enum status tree_make(const char *path, struct error *error) WARN_UNUSED;
/* Replaces a small file, on the disk when it returns. */
enum status tree_write(const char *path, const char *text, struct error *error) WARN_UNUSED;
