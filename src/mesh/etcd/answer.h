/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and judges the gateway's answers. Pure. Nothing in them is trusted: malformed ones are
 * refused with INTERNAL, which leaves the fate of a write unknown.
 */
#pragma once

#include "mesh/etcd/etcd.h"
#include "mesh/etcd/json.h"

enum etcd_answer_kind {
    ETCD_KIND_RANGE,
    ETCD_KIND_PUT,
    ETCD_KIND_DELETE,
    ETCD_KIND_TXN,
    ETCD_KIND_HEADER, /* only the header matters: compact, revoke */
    ETCD_KIND_LEASE,  /* grant */
    ETCD_KIND_RENEW,
    ETCD_KIND_TOKEN
};

struct etcd_reading {
    struct etcd_answer answer; /* its fate is not set */
    const char *token;         /* ETCD_KIND_TOKEN */
    struct bump arena;         /* of all of it */
};

/* Reads the body of a 200. Call etcd_reading_fini after failures, too. */
enum status etcd_answer_read(enum etcd_answer_kind kind, const char *text, size_t bytes,
                             struct etcd_reading *reading, struct error *error) WARN_UNUSED;
void etcd_reading_fini(struct etcd_reading *reading);

/* True: etcd answers with this code only before changing anything (except "database space
 * exceeded"). Other codes may come from a proposal that was made and not awaited. */
bool etcd_status_is_refusal(enum status status);

/* The meaning of a failure. */
struct etcd_verdict {
    enum etcd_fate fate; /* of a write; never ETCD_DONE */
    bool endpoint_bad;   /* another endpoint may succeed */
    bool token_bad;      /* a new token may help; nothing was done */
    bool is_full;        /* no space */
    struct error error;
};

/* Judges an answer other than 200, or an error within a stream (`text` is its line). */
void etcd_answer_judge(const char *endpoint, long http_status, const char *text, size_t bytes,
                       struct etcd_verdict *verdict);

/* One line of a watch. */
struct etcd_watch_line {
    int64_t watch_id;
    int64_t revision; /* of the header */
    uint64_t cluster_id;
    bool created, canceled, fragment;
    bool failed;               /* an error instead of a result, in `failure` */
    int64_t compact_revision;  /* of a cancelled one: the start of the remaining history */
    const char *cancel_reason; /* "" */
    struct etcd_verdict failure;
    struct etcd_event *events;
    size_t event_count;
    struct bump arena;
};

enum status etcd_watch_line_read(const char *endpoint, const char *text, size_t bytes,
                                 struct etcd_watch_line *line, struct error *error) WARN_UNUSED;
void etcd_watch_line_fini(struct etcd_watch_line *line);
