/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A TCP proxy on the test's event base, between a client and an etcd, that loses what it is told
 * to.
 */
#pragma once

#include <stddef.h>

enum proxy_mode {
    PROXY_PASS,
    PROXY_SWALLOW,      /* takes the client's bytes and does nothing */
    PROXY_DROP_REQUEST, /* ends the connection when the client sends, before etcd has it */
    PROXY_DROP_ANSWER,  /* ends the connection when etcd answers, before the client has it */
    PROXY_MUTE_WATCHES, /* passes all but what etcd says on watches */
    PROXY_HOLD_ANSWERS  /* passes watches; what etcd says else comes with the next mode */
};

struct proxy;

struct proxy *proxy_start(int target_port);
void proxy_stop(struct proxy *proxy);
const char *proxy_url(const struct proxy *proxy);
void proxy_set(struct proxy *proxy, enum proxy_mode mode);
/* Ends all connections; new ones are taken. */
void proxy_cut(struct proxy *proxy);
/* Connections that were made so far, and those that are open. */
size_t proxy_connections(const struct proxy *proxy);
size_t proxy_open(const struct proxy *proxy);
/* Requests that were begun so far, with any outcome. */
size_t proxy_requests(const struct proxy *proxy);
