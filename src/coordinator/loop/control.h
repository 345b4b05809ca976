/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node's ear for its operator: the socket of shm/control.h. Loop thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "coordinator/loop/loop.h"
#include "shm/control.h"

struct control;
struct control_call; /* one request that waits for its answer */

struct control_handler {
    /* `request` is checked. Answers by control_answer, now or later, once. */
    void (*on_request)(void *context, const struct control_request *request,
                       struct control_call *call);
    void *context;
};

/*
 * Listens beside the file of counters, whose lock the caller has: what stands there under the name
 * of the socket is a dead node's, and is replaced.
 */
enum status control_create(struct loop *loop, const char *counters_path,
                           const struct control_handler *handler, struct control **control,
                           struct error *error) WARN_UNUSED;
/* Calls without an answer get UNAVAILABLE; the socket's name goes. NULL is left alone. */
void control_destroy(struct control *control);

/* `error` NULL: it is done, and `text` says what. Who asked may be gone. */
void control_answer(struct control_call *call, const struct error *error, const char *text);
/* It is done, and who asked has more to ask before the node ends: kept until they hang up. */
void control_answer_keep(struct control_call *call, const char *text);
/* How many are kept. */
uint32_t control_kept(const struct control *control);
/* As control_answer, with a list. */
void control_answer_list(struct control_call *call, const void *list, size_t bytes,
                         const char *text);
