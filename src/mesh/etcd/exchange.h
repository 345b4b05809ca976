/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One HTTP request and its answer, whole or line by line: libcurl's multi interface on an event
 * base. It knows nothing of etcd except what all requests share (exchange.c).
 *
 * Callbacks never come from within libcurl's own, which must not be re-entered: data is kept and
 * reported when libcurl has returned. So callbacks may start and cancel exchanges.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "mesh/etcd/etcd.h"

struct etcd_wire; /* the connections of one client */
struct etcd_exchange;

enum etcd_answer_form { ETCD_ANSWER_WHOLE, ETCD_ANSWER_LINES };

struct etcd_exchange_end {
    long http_status;   /* 0: no answer, or an incomplete one */
    const char *answer; /* the part not reported in lines; NUL-terminated */
    size_t answer_bytes;
    /* A byte of the body was handed over for sending; otherwise the server cannot have acted. */
    bool body_given;
    struct error error; /* if http_status is 0 */
};

struct etcd_exchange_request {
    const char *endpoint; /* "http://host:port" */
    const char *path;
    const char *token; /* NULL: none */
    const char *body;  /* lives until the end */
    size_t body_bytes;
    int64_t timeout_ns; /* 0: none; also sent to the server */
    enum etcd_answer_form form;
    /* Takes each line of a 200 with ETCD_ANSWER_LINES, without its end, NUL-terminated. */
    void (*on_line)(void *context, const char *line, size_t bytes);
    void (*on_end)(void *context, const struct etcd_exchange_end *end); /* once, then over */
    void *context;
};

/* Copies from the options. */
enum status etcd_wire_create(struct event_base *base, const struct etcd_options *options,
                             struct etcd_wire **wire, struct error *error) WARN_UNUSED;
/* Drops exchanges under way. */
void etcd_wire_destroy(struct etcd_wire *wire);

struct etcd_exchange *etcd_exchange_start(struct etcd_wire *wire,
                                          const struct etcd_exchange_request *request);
/* Closes the connection; no callback follows. */
void etcd_exchange_cancel(struct etcd_exchange *exchange);
