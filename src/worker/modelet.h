/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plug-in in a worker: the only place that opens one. It is checked before any of its functions
 * is called, and refused with a text that names the offending field. An accepted library stays
 * loaded until the process ends.
 */
#pragma once

#include <stdbool.h>

#include <shoal/modelet.h>

#include "base/error.h"
#include "ipc/handshake.h"
#include "worker/model_files.h"

struct modelet {
    struct shoal_modelet table; /* a copy; members that an older plug-in lacks are zero */
    void *instance;
    void *model; /* the configured model */
    struct model_files files;
    bool streams; /* it may emit pieces */
    bool opened;  /* `instance` must be closed */
    bool loaded;  /* `model` must be unloaded */
};

/* Opens the file and checks its symbol. FAILED_PRECONDITION, naming the field. */
enum status modelet_load_file(struct modelet *modelet, const char *path,
                              struct error *error) WARN_UNUSED;

/* Copies the table behind a library's symbol and checks it, as modelet_load_file does. */
enum status modelet_table_read(struct shoal_modelet *table, const void *symbol,
                               struct error *error) WARN_UNUSED;

/* Checks that it can serve this stage: batch size, number of workers, model. */
enum status modelet_suits(const struct modelet *modelet, const struct handshake_start *start,
                          struct error *error) WARN_UNUSED;

/* Calls open, describe and load; fills `ready` from the table and the description. After a failure
 * nothing is left open. */
enum status modelet_start(struct modelet *modelet, const struct handshake_start *start,
                          const struct shoal_host *host, struct handshake_ready *ready,
                          struct error *error) WARN_UNUSED;

/* Calls unload and close. */
void modelet_stop(struct modelet *modelet);

/* ---- models that come and go: any thread that the modelet's abilities allow ---- */

/* Loads a model. On failure the error has the modelet's text, and there is nothing to unload. */
enum status modelet_load(const struct modelet *modelet, const struct shoal_model *spec,
                         void **model, struct error *error) WARN_UNUSED;

/* Asks for a loaded model's tensors, `bytes` (0: unknown) and max_concurrency. */
enum status modelet_ask(const struct modelet *modelet, void *model,
                        struct handshake_model_said *said, struct error *error) WARN_UNUSED;

/* Returns the predicted size; 0: unknown. */
uint64_t modelet_predict(const struct modelet *modelet, const struct shoal_model *spec);

void modelet_unload(const struct modelet *modelet, void *model);

/* Returns the file's name without its folders, for messages. */
const char *modelet_file_name(const char *path);
