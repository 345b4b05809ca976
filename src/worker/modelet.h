/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plug-in in a worker: the only place that opens one. It is judged before any of its functions is
 * called, and refused with a text that names the field that differs. What was loaded stays loaded
 * until the process ends.
 */
#pragma once

#include <stdbool.h>

#include <shoal/modelet.h>

#include "base/error.h"
#include "shm/handshake.h"
#include "worker/model_files.h"

struct modelet {
    struct shoal_modelet table; /* a copy; what an older plug-in does not have is zero */
    void *instance;
    void *model; /* the configured one */
    struct model_files files;
    bool opened; /* `instance` is to be closed */
    bool loaded; /* `model` is to be unloaded */
};

/* Opens the file and judges what it exports. FAILED_PRECONDITION naming the field. */
enum status modelet_load_file(struct modelet *modelet, const char *path,
                              struct error *error) WARN_UNUSED;

/* Judges whether it can serve this stage: batch size, number of workers, model. */
enum status modelet_suits(const struct modelet *modelet, const struct handshake_start *start,
                          struct error *error) WARN_UNUSED;

/* open, describe, load; fills `ready` from the table and the description. After a failure nothing
 * is left open. */
enum status modelet_start(struct modelet *modelet, const struct handshake_start *start,
                          const struct shoal_host *host, struct handshake_ready *ready,
                          struct error *error) WARN_UNUSED;

/* unload, close. */
void modelet_stop(struct modelet *modelet);

/* ---- models that come and go: any thread that the modelet's abilities allow ---- */

/* In the modelet's own words when it fails; then there is nothing to unload. */
enum status modelet_load(const struct modelet *modelet, const struct shoal_model *spec,
                         void **model, struct error *error) WARN_UNUSED;

/* A model's description after its load: its tensors, `bytes` (0: it does not
 * say), max_concurrency. */
enum status modelet_ask(const struct modelet *modelet, void *model,
                        struct handshake_model_said *said, struct error *error) WARN_UNUSED;

/* 0: it does not say. */
uint64_t modelet_predict(const struct modelet *modelet, const struct shoal_model *spec);

void modelet_unload(const struct modelet *modelet, void *model);

/* The file's name without the folders: how it is called in texts. */
const char *modelet_file_name(const char *path);
