/* SPDX-License-Identifier: Apache-2.0 */
/* A transaction that has been requested and not answered: a copy of it, in one block. */
#pragma once

#include "mesh/store/store.h"

/* The requests that may go to etcd together with it (batch.h). */
enum request_company { REQUEST_FIRST, REQUEST_AGAIN, REQUEST_ALONE };

struct store_request {
    struct store_request *next; /* its kind's */
    struct store_txn txn;
    struct store_reply reply;
    /* Set for the etcd store: */
    int64_t deadline_ns;
    enum request_company company;
    enum store_txn_end refused; /* LOST or BUSY: its end if it was never sent */
    const char *refusal;        /* and the reason */
};

enum status request_create(const struct store_txn *txn, struct store_reply reply,
                           struct store_request **request, struct error *error) WARN_UNUSED;
/* Answers and frees it. With OK, `error` may be NULL. */
void request_end(struct store_request *request, enum store_txn_end end, const struct error *error);

/* The requests in order of arrival. */
struct request_queue {
    struct store_request *first;
    struct store_request *last;
};

void request_queue_put(struct request_queue *queue, struct store_request *request);
/* Puts all of `front` before the others. */
void request_queue_return(struct request_queue *queue, struct request_queue *front);
/* NULL: empty. */
struct store_request *request_queue_take(struct request_queue *queue);
/* Ends the requests without an answer. */
void request_queue_drop(struct request_queue *queue);
