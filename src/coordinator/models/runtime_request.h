/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and judges requests of mmesh.ModelRuntime. The five requests share their field numbers, so
 * one reader suffices. Pure.
 */
#pragma once

#include <shoal/modelet.h>

#include "base/error.h"
#include "coordinator/config/config.h"
#include "ipc/handshake.h"
#include "rpc/rpc.h"

/* A text that is too long is empty here, and only its length is known. */
struct runtime_request {
    char id[SHOAL_NAME_BYTES_MAX + 1];
    char path[HANDSHAKE_PATH_BYTES];
    char key[HANDSHAKE_KEY_BYTES];
    char type[CONFIG_NAME_BYTES_MAX + 1]; /* the key's model_type.name; "": it has none */
    uint64_t id_bytes;
    uint64_t path_bytes;
    uint64_t key_bytes;
};

/* INVALID_ARGUMENT: malformed, or not UTF-8. */
enum status runtime_request_read(const struct wire_message *message,
                                 struct runtime_request *request, struct error *error) WARN_UNUSED;

/* Checks a load or prediction: that id and path are given and not too long and that the key is
 * empty or a JSON object; fills `type`. INVALID_ARGUMENT names the field and the mistake. */
enum status runtime_request_check(struct runtime_request *request, struct error *error) WARN_UNUSED;

/* The `type` of a key; "" also for a key that runtime_request_check would refuse. */
void runtime_key_type(const char *key, char type[CONFIG_NAME_BYTES_MAX + 1]);
