/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's file in memory, for modelets that read it themselves. It is mapped, not read: all
 * workers that map the same file share its pages, and untouched pages cost nothing. Opening never
 * waits: a FIFO or a device is refused. If the path is a folder, the model is the file named
 * "model" with one of the modelet's endings, or else the only file with such an ending. `key.json`,
 * hidden files, folders and files with other endings may be beside it.
 *
 * The host maps the files of a model that is being loaded, where it can: it then checks the digest
 * in the model's key, and unmaps them. The mapping outlives the file's name. A file that is
 * truncated while it is mapped ends the worker with SIGBUS, so replace models by renaming a new
 * file over the old one. Functions keep no state: any thread may call them.
 */
#pragma once

#include <shoal/modelet.h>

enum { MODEL_PATH_ROOM = 4096 };

struct model_file {
    const void *bytes; /* read-only; starts at a page */
    size_t size;       /* never 0 */
    int lent;          /* mapped by the host */
};

/* `endings`: ".mlp", …, terminated by NULL. `host` NULL: spec->path is not a model of the host's,
 * and is mapped here. `path` receives the file's full path, for messages. On failure returns a gRPC
 * status, with a text that names the path and nothing to unmap. */
int model_file_open(const struct shoal_host *host, const struct shoal_model *spec,
                    const char *const *endings, char path[MODEL_PATH_ROOM], struct model_file *file,
                    struct shoal_error *error);
/* Opens another file of the model's folder, by its name in it. */
int model_file_open_beside(const struct shoal_host *host, const struct shoal_model *spec,
                           const char *name, struct model_file *file, struct shoal_error *error);
/* Does nothing if `file` is all zero. */
void model_file_close(struct model_file *file);

/* Sets the text "model <path>: <what>" and returns `status`. A long path is shortened to its
 * end. */
int model_refuse(struct shoal_error *error, const char *path, int status, const char *what);
