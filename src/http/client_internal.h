/* SPDX-License-Identifier: Apache-2.0 */
/* Targets, shared by calls over HTTP/1 (client.c) and HTTP/2 (http2_client.c). */
#pragma once

#include <sys/queue.h>
#include <sys/socket.h>

#include "http/channel.h"
#include "http/client.h"
#include "http/tls_io.h"

struct client_connection;
struct http2_link;

struct http_target {
    struct http_client *client;
    char *text;
    char *tls_name; /* NULL: plain */
    struct sockaddr_storage address;
    socklen_t address_bytes;
    uint32_t call_count; /* over either */
    uint32_t idle_count;
    TAILQ_HEAD(idle_list, client_connection) idle; /* HTTP/1: the one idle longest first */
    TAILQ_HEAD(, http2_link) links;                /* HTTP/2 */
};

struct http_client {
    struct event_base *base;
    struct http_client_options options;
    uint32_t target_count;
};

/* The progress of a call. */
struct http_call_progress {
    int64_t started_ns;
    int64_t moved_ns; /* when a byte last arrived, or reading was resumed */
    bool is_connected;
    bool has_byte;
    bool is_paused;
};

/* Returns when the first limit of the call expires if nothing happens until then; else
 * TIME_NEVER_NS. */
int64_t http_call_deadline(const struct http_call_timeouts *timeouts,
                           const struct http_call_progress *progress);
/* Begins a connection and its channel. False: no descriptor, or no memory for TLS. */
bool http_target_connect(const struct http_target *target, enum http_versions versions,
                         struct http_channel *channel);
/* No call is open. */
void http2_links_close(struct http_target *target);
