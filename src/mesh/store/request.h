/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transaction that has been asked for and is not answered yet: a copy of it, in one block.
 */
#pragma once

#include <stdbool.h>

#include "mesh/store/store.h"

/* What may go to etcd with it (batch.h). */
enum request_company { REQUEST_FIRST, REQUEST_AGAIN, REQUEST_ALONE };

struct request {
    struct request *next; /* its kind's */
    struct store_txn txn;
    struct store_reply reply;
    /* The etcd store's: */
    int64_t deadline_ns;
    enum request_company company;
    const char *refusal; /* why it was lost before it was sent */
};

enum status request_create(const struct store_txn *txn, struct store_reply reply,
                           struct request **request, struct error *error) WARN_UNUSED;
/* With OK, `error` may be NULL. Frees it. */
void request_end(struct request *request, enum store_txn_end end, const struct error *error);

/* In order of arrival. */
struct request_queue {
    struct request *first;
    struct request *last;
};

void request_queue_put(struct request_queue *queue, struct request *request);
/* Puts all of `front` before the others. */
void request_queue_return(struct request_queue *queue, struct request_queue *front);
/* NULL: it is empty. */
struct request *request_queue_take(struct request_queue *queue);
/* Without an answer. */
void request_queue_drop(struct request_queue *queue);
