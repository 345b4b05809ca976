/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's file in memory, for modelets that read it themselves. It is mapped, not read: all
 * workers that map the same file share one copy of its pages, and what is not touched costs
 * nothing. Whatever the path names, opening does not wait: a FIFO or a device is refused. Of a
 * folder, the one file in it is taken that can be meant: called "model" with one of the modelet's
 * endings, or else the only one with such an ending. `key.json`, hidden files, folders and files
 * with other endings may lie beside it.
 *
 * A file of a model that is loaded is mapped by the host, where it can: then the digest that the
 * model's key states has been checked, and the host unmaps it. The mapping outlives the file's
 * name; a file that is cut short while it is mapped ends the worker with SIGBUS, so replace models
 * by renaming a new file over the old one. No threads' matter.
 */
#pragma once

#include <shoal/modelet.h>

enum { MODEL_PATH_ROOM = 4096 };

struct model_file {
    const void *bytes; /* read-only; begins a page */
    size_t size;       /* never 0 */
    int lent;          /* by the host */
};

/* `endings`: ".mlp", …, closed by NULL. `host` NULL: spec->path is no model of the host's, and is
 * mapped here. `path` is the file's, whole, for texts. On failure a status of gRPC, a text that
 * names the path, and nothing to unmap. */
int model_file_open(const struct shoal_host *host, const struct shoal_model *spec,
                    const char *const *endings, char path[MODEL_PATH_ROOM], struct model_file *file,
                    struct shoal_error *error);
/* Another file of the model's folder, by its name in it. */
int model_file_open_beside(const struct shoal_host *host, const struct shoal_model *spec,
                           const char *name, struct model_file *file, struct shoal_error *error);
/* Does nothing to one that is zeroed. */
void model_file_close(struct model_file *file);

/* Fails with a text "model <path>: <what>"; of a path that is too long, its end is shown. */
int model_refuse(struct shoal_error *error, const char *path, int status, const char *what);
