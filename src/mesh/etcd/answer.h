/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gateway's answers, read and judged. Pure. Nothing in them is trusted: what has not its form
 * is refused with INTERNAL, and of a write it is then not known whether it happened.
 */
#pragma once

#include "mesh/etcd/etcd.h"
#include "mesh/etcd/json.h"

enum etcd_answer_kind {
    ETCD_KIND_RANGE,
    ETCD_KIND_PUT,
    ETCD_KIND_DELETE,
    ETCD_KIND_TXN,
    ETCD_KIND_HEADER, /* nothing else is of interest: compact, revoke */
    ETCD_KIND_LEASE,  /* grant */
    ETCD_KIND_RENEW,
    ETCD_KIND_TOKEN
};

struct etcd_reading {
    struct etcd_answer answer; /* its fate is not set */
    const char *token;         /* ETCD_KIND_TOKEN */
    struct etcd_arena arena;   /* of all of it */
};

/* The body of a 200. On failure too, the reading is to be ended with etcd_reading_fini. */
enum status etcd_answer_read(enum etcd_answer_kind kind, const char *text, size_t bytes,
                             struct etcd_reading *reading, struct error *error) WARN_UNUSED;
void etcd_reading_fini(struct etcd_reading *reading);

/* True: etcd answers with this code only before it has changed anything ("database space exceeded"
 * apart). Of all other codes some come from a proposal that was made and then not waited for. */
bool etcd_status_is_refusal(enum status status);

/* The meaning of a failure. */
struct etcd_verdict {
    enum etcd_fate fate; /* of a write; never ETCD_DONE */
    bool endpoint_bad;   /* another endpoint may do better */
    bool token_bad;      /* a new token may help; nothing was done */
    bool is_full;        /* no space */
    struct error error;
};

/* An answer that is no 200, or an error within a stream (`text` is then its line). */
void etcd_answer_judge(const char *endpoint, long http_status, const char *text, size_t bytes,
                       struct etcd_verdict *verdict);

/* One line of a watch. */
struct etcd_watch_line {
    int64_t watch_id;
    int64_t revision; /* of the header */
    uint64_t cluster_id;
    bool created, canceled, fragment;
    bool failed;               /* an error instead of a result: `failure` */
    int64_t compact_revision;  /* of a cancelled one: history begins here */
    const char *cancel_reason; /* "" */
    struct etcd_verdict failure;
    struct etcd_event *events;
    size_t event_count;
    struct etcd_arena arena;
};

enum status etcd_watch_line_read(const char *endpoint, const char *text, size_t bytes,
                                 struct etcd_watch_line *line, struct error *error) WARN_UNUSED;
void etcd_watch_line_fini(struct etcd_watch_line *line);
