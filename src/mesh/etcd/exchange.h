/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One HTTP request and its answer, as a whole or line by line: libcurl's multi interface on an
 * event base. It knows nothing of etcd beyond what each request has in common (exchange.c).
 *
 * Callbacks never come from within libcurl's own, which may not be re-entered: what came is
 * kept, and told when libcurl has returned. So they may start and cancel exchanges.
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
    long http_status;   /* 0: no answer, or not all of it */
    const char *answer; /* what was not told in lines; NUL-terminated */
    size_t answer_bytes;
    /* A byte of the body was handed over for sending: only then can the server have acted. */
    bool body_given;
    struct error error; /* if http_status is 0 */
};

struct etcd_exchange_request {
    const char *endpoint; /* "http://host:port" */
    const char *path;
    const char *token; /* NULL: none */
    const char *body;  /* lives until the end */
    size_t body_bytes;
    int64_t timeout_ns; /* 0: none; told to the server too */
    enum etcd_answer_form form;
    /* Of a 200, with ETCD_ANSWER_LINES: each line without its end, NUL-terminated. */
    void (*on_line)(void *context, const char *line, size_t bytes);
    void (*on_end)(void *context, const struct etcd_exchange_end *end); /* once; it is over */
    void *context;
};

/* Keeps what it needs of the options. */
enum status etcd_wire_create(struct event_base *base, const struct etcd_options *options,
                             struct etcd_wire **wire, struct error *error) WARN_UNUSED;
/* Exchanges under way are forgotten. */
void etcd_wire_destroy(struct etcd_wire *wire);

struct etcd_exchange *etcd_exchange_start(struct etcd_wire *wire,
                                          const struct etcd_exchange_request *request);
/* Closes its connection; no callback follows. */
void etcd_exchange_cancel(struct etcd_exchange *exchange);
