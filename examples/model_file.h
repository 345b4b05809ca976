/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's file in memory, for modelets that read it themselves. It is mapped, not read: all
 * workers that map the same file share one copy of its pages, and what is not touched costs
 * nothing. Whatever the path names, opening does not wait: a FIFO, a folder or a device is refused.
 * The mapping outlives the file's name; a file that is cut short while it is mapped ends the worker
 * with SIGBUS, so replace models by renaming a new file over the old one. No threads' matter.
 */
#pragma once

#include <shoal/modelet.h>

struct model_file {
    void *bytes; /* read-only, private to the process; begins a page */
    size_t size; /* never 0 */
};

/* On failure a status of gRPC, a text that names the path, and nothing to unmap. */
int model_file_map(const char *path, struct model_file *file, struct shoal_error *error);
/* Does nothing to one that is zeroed. */
void model_file_unmap(struct model_file *file);

/* Fails with a text "model <path>: <what>"; of a path that is too long, its end is shown. */
int model_refuse(struct shoal_error *error, const char *path, int status, const char *what);
