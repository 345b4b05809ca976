/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small methods of the Open Inference Protocol: questions about a model or the node. Any
 * thread.
 */
#pragma once

#include "coordinator/models/target.h"
#include "coordinator/protocol/oip.h"

/* Returns whether a method, "/package.Service/Method", is about one model. */
bool small_is_of_model(const char *method, enum oip_method *which);

struct small_ask {
    const struct target_scope *scope;
    const char *server_name; /* NULL: the method is about a model */
    const char *id;          /* of the model; NULL: the message has it */
    bool node_is_ready;
    bool was_here; /* the model was just loaded: if it is gone, the answer is UNAVAILABLE */
};

/* Returns as oip_answer. */
enum status small_answer(enum oip_method method, const struct small_ask *ask,
                         const struct wire_message *message, void **response,
                         size_t *response_bytes, struct error *error) WARN_UNUSED;
