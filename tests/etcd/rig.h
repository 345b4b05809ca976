/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real etcd servers for tests, one or three, on loopback with their data in a temporary folder; and
 * a client whose answers can be waited for. Everything is on one event base, turned while a test
 * waits; what does not come within WAIT_S fails the test. Servers die with the test.
 *
 * SHOAL_ETCD is the server's path; else it is the first `etcd` in the path.
 */
#pragma once

#include <event2/listener.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "../test.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "mesh/etcd/etcd.h"

enum { WAIT_S = 60, MEMBERS_MAX = 3, ARGS_MAX = 16, KVS_MAX = 64, RESPONSES_MAX = 8 };

struct member {
    pid_t pid; /* 0: it does not run */
    int client_port;
    int peer_port;
    char url[64];
};

struct cluster {
    char folder[64];
    size_t count;
    struct member members[MEMBERS_MAX];
    const char *args[ARGS_MAX + 1]; /* more of them, NULL at the end; set before the start */
    const char *scheme;             /* "http" */
};

/* The event base, made at the first use. */
struct event_base *rig_base(void);
void rig_end(void);

/* Listens on loopback, on a port of its own; `url` says where. The caller frees it. */
enum { URL_BYTES = 64 };
struct evconnlistener *rig_listen(evconnlistener_cb on_accept, void *context, char url[URL_BYTES]);

/* Turns the base for a moment. */
void rig_turn(void);

/* Turns the base until the condition holds. */
#define WAIT_UNTIL(condition)                                                                      \
    do {                                                                                           \
        int64_t wait_end_ns_ = clock_now_ns() + WAIT_S * NS_PER_S;                                 \
        while (!(condition)) {                                                                     \
            if (clock_now_ns() > wait_end_ns_)                                                     \
                fail_msg("waited in vain for: %s", #condition);                                    \
            rig_turn();                                                                            \
        }                                                                                          \
    } while (0)

/* Turns the base for so long: to see that something does not happen. */
void rig_wait_ns(int64_t ns);

/* Starts the members; a first call waits until they answer. */
void cluster_start(struct cluster *cluster, size_t count);
void cluster_stop(struct cluster *cluster);
void member_start(struct cluster *cluster, size_t index);
void member_kill(struct cluster *cluster, size_t index);
/* SIGSTOP: it has stopped when this returns. */
void member_signal(struct cluster *cluster, size_t index, int number);
/* Of a member that does not run: its data is gone. */
void member_empty(struct cluster *cluster, size_t index);
/* 3.4 is 4. */
int etcd_minor(void);

/* A client of all members, with these options but the endpoints. */
struct etcd *rig_client(const struct cluster *cluster, struct etcd_options options);
struct etcd *rig_client_of(const char *endpoint, struct etcd_options options);

/* ---- answers that are waited for ---- */

/* A copy of the last answer. */
struct got {
    bool here;
    struct etcd_answer answer; /* its responses are those below */
    struct etcd_response responses[RESPONSES_MAX];
    struct etcd_kv kvs[RESPONSES_MAX][KVS_MAX];
    struct bytes_block {
        struct bytes_block *next;
        char data[];
    } * blocks;
};

extern struct got got;

/* Forgets the last answer; where the next is to go. */
struct etcd_reply to_got(int64_t timeout_ns);
void got_fini(void);
/* Waits for it. */
const struct etcd_answer *got_wait(void);

const struct etcd_answer *do_op(struct etcd *etcd, struct etcd_op op);
const struct etcd_answer *do_put(struct etcd *etcd, const char *key, const char *value);
const struct etcd_answer *do_get(struct etcd *etcd, const char *key);
const struct etcd_answer *do_delete(struct etcd *etcd, const char *key);

/* Fails unless it is done. */
const struct etcd_answer *done(const struct etcd_answer *answer);
/* Fails unless it is that. */
void assert_fate(const struct etcd_answer *answer, enum etcd_fate fate, enum status status);
/* Fails unless the first response's first key has this value. */
void assert_value(const struct etcd_answer *answer, const char *value);

bool bytes_are(struct etcd_bytes data, const char *text);
struct etcd_range one(const char *key);
struct etcd_range prefix(const char *key);

/* A command of the shell; fails the test if it fails. */
void run(const char *format, ...) PRINTF_LIKE(1, 2);
