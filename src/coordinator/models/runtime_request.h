/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of mmesh.ModelRuntime, copied and judged. The five requests share their
 * field numbers, so one reader does for all. Pure.
 */
#pragma once

#include <shoal/modelet.h>

#include "base/error.h"
#include "coordinator/config/config.h"
#include "rpc/rpc.h"
#include "shm/handshake.h"

/* A text that is too long is left out, and only its length is known. */
struct runtime_request {
    char id[SHOAL_NAME_BYTES_MAX + 1];
    char path[HANDSHAKE_PATH_BYTES];
    char key[HANDSHAKE_KEY_BYTES];
    char type[CONFIG_NAME_BYTES_MAX + 1]; /* the key's model_type.name; "": it has none */
    uint64_t id_bytes;
    uint64_t path_bytes;
    uint64_t key_bytes;
};

/* INVALID_ARGUMENT: no such message, or no UTF-8. */
enum status runtime_request_read(const struct rpc_message *message, struct runtime_request *request,
                                 struct error *error) WARN_UNUSED;

/* Of loads and predictions: that id and path are there and fit, that the key is none or a JSON
 * object. Fills `type`. INVALID_ARGUMENT says which field and what is wrong with it. */
enum status runtime_request_check(struct runtime_request *request, struct error *error) WARN_UNUSED;

/* `type` of a key alone; "" also of a key that the above would refuse. */
void runtime_key_type(const char *key, char type[CONFIG_NAME_BYTES_MAX + 1]);
