/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP requests, several at once, over libcurl's multi interface. One thread, except
 * transfers_wake. A redirection is an answer: whether it is followed, and with which headers, is
 * for the caller to decide.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct transfers;
struct transfer;

enum { TRANSFER_ETAG_BYTES = 256, TRANSFER_TEXT_BYTES = 4096, TRANSFER_HEADERS_MAX = 48 };

/* The head of an answer. */
struct transfer_head {
    long status;
    char etag[TRANSFER_ETAG_BYTES]; /* "": none */
    char modified[64];              /* Last-Modified */
    char type[64];                  /* Content-Type */
    int64_t length;                 /* Content-Length; -1: not said */
    int64_t range_from;             /* of a 206; -1: not said */
    int64_t range_of;               /* the length of the whole; -1: not said */
    bool is_framed;                 /* a body that ends early is noticed, also without a length */
    int64_t retry_after_s;          /* 0: not said */
};

struct transfer_request {
    const char *url;
    const char *method; /* NULL: GET, or POST with a body */
    const char *body;   /* of a form; NULL: none */
    bool is_direct;     /* by no proxy; the environment is ignored */
    const char *headers[TRANSFER_HEADERS_MAX];
    unsigned header_count;
    const char *authority, *client_certificate, *client_key; /* PEM; NULL: none */
};

/* Both may refuse: the transfer ends with that error. */
struct transfer_sink {
    /* Called once, before the body of an answer of 200 or 206. */
    enum status (*on_head)(void *context, const struct transfer_head *head, struct error *error);
    enum status (*on_body)(void *context, const void *data, size_t bytes, struct error *error);
    void *context;
};

struct transfer_end {
    struct transfer_head head;      /* status 0: no answer came */
    char location[2048];            /* of a redirection, absolute; "": none */
    char text[TRANSFER_TEXT_BYTES]; /* beginning of the body of any other answer */
    size_t text_bytes;
    uint64_t body_bytes; /* passed to the sink */
    struct error error;  /* of the sink or the connection; of an answer of any status none */
    bool by_sink;
    bool may_recover; /* the connection failed in a way that may not last */
};

struct transfers *transfers_create(void);
void transfers_destroy(struct transfers *transfers);

/* Texts must stay until it has ended. */
struct transfer *transfer_begin(struct transfers *transfers, const struct transfer_request *request,
                                const struct transfer_sink *sink);
/* Waits for the end of any transfer, at most until that time. NULL: none ended. The one that ended
 * stays until transfer_free. */
struct transfer *transfers_wait(struct transfers *transfers, int64_t until_ns);
const struct transfer_end *transfer_look(const struct transfer *transfer);
void *transfer_context(const struct transfer *transfer);
/* Ends it if it has not ended. */
void transfer_free(struct transfers *transfers, struct transfer *transfer);
/* Any thread: transfers_wait returns soon. */
void transfers_wake(struct transfers *transfers);
