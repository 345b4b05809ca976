/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of the operator protocol (ipc/control.h) for the dashboard: GET /ask?verb=mesh+models&…,
 * answered with the protocol's own JSON. The node's loop thread writes one list at a time; further
 * requests wait for it here, so that viewers can never give it more than that to do.
 *
 * Threads. All functions are called on the HTTP thread, except asks_create and asks_destroy.
 */
#pragma once

#include "base/bytes.h"
#include "coordinator/front/http_thread.h"
#include "ipc/control.h"

enum { ASKS_WAITING_MAX = 64, ASKS_ROWS_MAX = 200 };

struct list_asks;
struct loop;

struct asks_options {
    struct http_thread *thread;
    struct loop *loop; /* the node's */
    /* Writes the list of a verb; on the node's loop thread. */
    enum status (*list)(void *context, const struct control_request *request, struct bytes *list,
                        struct error *error);
    void *context;
};

struct list_asks *asks_create(const struct asks_options *options);
/* Gives the node's loop nothing more to do; what it has been given must run before asks_destroy.
 * Any thread; NULL is ignored. */
void asks_stop(struct list_asks *asks);
/* Call after asks_stop, when the HTTP thread has ended. NULL is ignored. */
void asks_destroy(struct list_asks *asks);

/* Answers the request, now or later. RESOURCE_EXHAUSTED, INVALID_ARGUMENT: it is not answered. */
enum status asks_take(struct list_asks *asks, struct http_request *request,
                      struct error *error) WARN_UNUSED;
/* The client of such a request has gone. */
void asks_gone(struct list_asks *asks, struct http_request *request);
