/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of etcd v3: reads, writes, transactions, leases that are kept alive, watches that resume
 * by themselves, and a mirror of key ranges. It uses the JSON gateway that every etcd serves on its
 * client port, over one or several endpoints. It knows nothing of the keys' meaning.
 *
 * Threads: none. Everything runs on the thread of the event base (libevent's) that etcd_create was
 * given. Callbacks come from there as well, never from within the function that started the
 * operation; they may call anything here but etcd_destroy. A callback's arguments live until it
 * returns.
 *
 * Memory: arguments are copied before a function returns. Running out of memory ends the process.
 *
 * Errors: `struct error`, whose status follows etcd's gRPC code. Every answer also has a fate,
 * because "it failed" is not enough for a writer: a write whose answer is lost may have happened.
 * Nothing that may have happened is ever sent twice.
 *
 * DESIGN.md has the reasons, README.md an example.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct event_base; /* libevent's */
struct etcd;
struct etcd_call;

enum {
    ETCD_ENDPOINTS_MAX = 16,
    ETCD_RANGES_MAX = 16, /* of one watch or mirror */
    ETCD_WAITING_MAX = 4096
};

/* Any bytes. `data` may be NULL if there are none. */
struct etcd_bytes {
    const void *data;
    size_t bytes;
};

/* The bytes of a text, without its NUL. */
struct etcd_bytes etcd_text(const char *text);

/* ---- the client ---- */

struct etcd_options {
    const char *const *endpoints; /* "http://host:2379" or "https://…" */
    size_t endpoint_count;        /* 1 to ETCD_ENDPOINTS_MAX */
    const char *user;             /* NULL: no authentication */
    const char *password;
    const char *ca_file;   /* PEM; NULL: the system's authorities */
    const char *cert_file; /* PEM; NULL: no client certificate */
    const char *key_file;
    const char *ca_pem; /* this and the next two: PEM text, used where no file is named */
    const char *cert_pem;
    const char *key_pem;
    const char *key_password;   /* for either form; NULL: none */
    int64_t call_timeout_ns;    /* for calls without their own; 0: 5 s */
    int64_t connect_timeout_ns; /* per endpoint; 0: 1 s */
    int64_t retry_ns_max;       /* longest pause before an endpoint is retried; 0: 2 s */
    size_t answer_bytes_max;    /* of one answer or one line of a watch, as JSON; 0: 64 MiB */
    uint64_t seed;              /* for the endpoints' order and the length of pauses */
};

/* Opens no connection yet. INVALID_ARGUMENT: the text names the wrong option. */
enum status etcd_create(struct event_base *base, const struct etcd_options *options,
                        struct etcd **etcd, struct error *error) WARN_UNUSED;

/* Drops calls under way without a callback. Close sessions, watches and mirrors before. The event
 * base remains. NULL is ignored. */
void etcd_destroy(struct etcd *etcd);

/* Counts since the client was created. */
struct etcd_figures {
    uint64_t calls;             /* answered, with any outcome */
    uint64_t attempts;          /* requests sent for them; the excess over calls were retries */
    uint64_t unknown;           /* writes that may or may not have happened */
    uint64_t endpoint_failures; /* times that an endpoint failed and another was chosen */
    uint64_t full;              /* writes and leases refused for lack of space */
    uint64_t behind;            /* answers refused for an old revision */
    uint64_t tokens;            /* obtained for user and password */
    uint64_t streams;           /* watch streams opened; the excess over watches were resumed */
    uint64_t lists;     /* listings begun by mirrors; the excess over mirrors were repeated */
    uint64_t histories; /* times that etcd was emptied or restored: revisions went back everywhere,
                           or belong to other changes than before (which mirrors notice) */
};
const struct etcd_figures *etcd_figures(const struct etcd *etcd);
/* Why the last request to fail did, also of a call that is tried again; "": none has. */
const char *etcd_trouble(const struct etcd *etcd);

/* The last call that needs space (a put, a lease) was refused for lack of it. Deletions, renewals
 * and reads still work. */
bool etcd_is_full(const struct etcd *etcd);

/* Returns since when no endpoint has answered, on clock_now_ns; 0: the last one asked did. */
int64_t etcd_silent_ns(const struct etcd *etcd);

/* The endpoint of the next call. */
const char *etcd_endpoint(const struct etcd *etcd);

/* ---- reads, writes, transactions ---- */

enum etcd_span {
    ETCD_ONE,    /* only `key` */
    ETCD_PREFIX, /* all keys that begin with `key`; empty: all keys */
    ETCD_FROM,   /* `key` and all keys after it */
    ETCD_UNTIL   /* `key` and the keys after it before `end` */
};

struct etcd_range {
    enum etcd_span span;
    struct etcd_bytes key;
    struct etcd_bytes end;
};

enum etcd_op_kind { ETCD_RANGE, ETCD_PUT, ETCD_DELETE };
enum etcd_content { ETCD_WHOLE, ETCD_KEYS_ONLY, ETCD_COUNT_ONLY };
enum etcd_freshness {
    ETCD_LINEARIZABLE,
    ETCD_SERIALIZABLE /* from the endpoint's own data: faster, may be old, needs no quorum */
};
enum etcd_previous { ETCD_WITHOUT_PREVIOUS, ETCD_WITH_PREVIOUS };

struct etcd_op {
    enum etcd_op_kind kind;
    struct etcd_range range;       /* put: the key, ETCD_ONE */
    struct etcd_bytes value;       /* put */
    int64_t lease_id;              /* put; 0: none */
    enum etcd_previous previous;   /* put, delete: the answer shows the previous content */
    int64_t limit;                 /* range: at most that many keys, in key order; 0: all */
    int64_t revision;              /* range: as of that revision; 0: now */
    enum etcd_content content;     /* range */
    enum etcd_freshness freshness; /* range */
};

enum etcd_target { ETCD_VERSION, ETCD_CREATE, ETCD_MOD, ETCD_VALUE, ETCD_LEASE };
enum etcd_relation { ETCD_EQUAL, ETCD_GREATER, ETCD_LESS, ETCD_NOT_EQUAL };

/* Holds if it holds for every key in the range; the numbers of an absent key are 0. */
struct etcd_compare {
    struct etcd_range range;
    enum etcd_target target;
    enum etcd_relation relation;
    int64_t number;          /* all targets but ETCD_VALUE */
    struct etcd_bytes value; /* ETCD_VALUE */
};

/* Carries out one of two lists, completely, in one revision. The server allows 128 operations in
 * each and no key to be put twice. */
struct etcd_txn {
    const struct etcd_compare *compares;
    size_t compare_count;
    const struct etcd_op *success; /* if all compares hold */
    size_t success_count;
    const struct etcd_op *failure;
    size_t failure_count;
};

struct etcd_kv {
    struct etcd_bytes key;
    struct etcd_bytes value;
    int64_t create_revision;
    int64_t mod_revision;
    int64_t version; /* 1 at its creation */
    int64_t lease_id;
};

struct etcd_response {
    enum etcd_op_kind kind;
    const struct etcd_kv *kvs; /* range: the result; put, delete: the previous content */
    size_t kv_count;
    int64_t count; /* range: keys in the range regardless of the limit; delete: keys deleted */
    bool more;     /* range: the limit cut the result */
};

enum etcd_fate {
    ETCD_DONE,     /* etcd has answered */
    ETCD_NOT_DONE, /* it failed and has certainly changed nothing */
    ETCD_UNKNOWN /* a write was sent and no answer received: it may have happened, may still happen,
                    or never. Read it back; never write again blindly */
};

struct etcd_answer {
    enum etcd_fate fate;
    struct error error; /* unless ETCD_DONE */
    bool is_full;       /* of ETCD_UNKNOWN: etcd lacks the space */

    /* ETCD_DONE: */
    int64_t revision; /* of the store */
    uint64_t cluster_id;
    uint64_t member_id;
    uint64_t raft_term;
    uint64_t history; /* changes with figures.histories: revisions seen before are meaningless */
    bool succeeded;   /* txn: all compares held */
    const struct etcd_response *responses; /* one per executed operation, in order */
    size_t response_count;
    int64_t lease_id; /* grant, renew */
    int64_t ttl_s;    /* grant, renew; 0 from a renewal: the lease is gone */
};

/* The receiver of an answer. */
struct etcd_reply {
    void (*on_answer)(void *context, const struct etcd_answer *answer); /* once */
    void *context;
    int64_t timeout_ns; /* 0: the client's; includes time spent waiting */
};

/* Each call is answered once; the returned pointer is valid until then. Reads are tried at all
 * endpoints until the deadline, writes as long as they certainly did not happen. */
struct etcd_call *etcd_op(struct etcd *etcd, const struct etcd_op *op, struct etcd_reply reply);
struct etcd_call *etcd_txn(struct etcd *etcd, const struct etcd_txn *txn, struct etcd_reply reply);
/* Discards all revisions of keys before `revision`. */
struct etcd_call *etcd_compact(struct etcd *etcd, int64_t revision, struct etcd_reply reply);
/* `lease_id` 0: the server chooses. It may grant more time than requested. */
struct etcd_call *etcd_lease_grant(struct etcd *etcd, int64_t ttl_s, int64_t lease_id,
                                   struct etcd_reply reply);
/* Renews once; a session does so continuously. */
struct etcd_call *etcd_lease_renew(struct etcd *etcd, int64_t lease_id, struct etcd_reply reply);
/* Deletes the lease's keys. NOT_FOUND: no such lease. */
struct etcd_call *etcd_lease_revoke(struct etcd *etcd, int64_t lease_id, struct etcd_reply reply);

/* No callback follows. A write may still happen. */
void etcd_cancel(struct etcd_call *call);

/* ---- a session: a lease that is kept alive ---- */

struct etcd_session;

struct etcd_session_options {
    int64_t ttl_s;     /* 1 to INT32_MAX; the server may grant more */
    int64_t margin_ns; /* given up this long before the lease can end; 0: a tenth of the TTL */
    /* The lease exists: keys may be put with it. */
    void (*on_granted)(void *context, int64_t lease_id);
    /* The lease is gone (NOT_FOUND), or was not confirmed in time (DEADLINE_EXCEEDED) and etcd may
     * keep it and its keys for longer. The session does nothing more; close it. */
    void (*on_lost)(void *context, const struct error *error);
    /* The lease is not granted or not renewed yet; attempts continue. May be NULL. */
    void (*on_trouble)(void *context, const struct error *error);
    void *context;
};

struct etcd_session *etcd_session_open(struct etcd *etcd,
                                       const struct etcd_session_options *options);
/* Stops renewing. The lease ends by itself; revoke it to end it at once. */
void etcd_session_close(struct etcd_session *session);
/* 0: not granted yet. */
int64_t etcd_session_lease_id(const struct etcd_session *session);
/* Returns how long the lease certainly lasts, minus the margin, on this machine's clock, which
 * continues during suspension. 0: stop claiming and writing on its behalf. Ask before each write:
 * on_lost comes a turn of the loop later. */
int64_t etcd_session_left_ns(const struct etcd_session *session);

/* ---- watches ---- */

struct etcd_watch;

enum etcd_event_kind { ETCD_EVENT_PUT, ETCD_EVENT_DELETE };

struct etcd_event {
    enum etcd_event_kind kind;
    struct etcd_kv kv; /* of a delete: key and mod_revision */
};

enum etcd_watch_end {
    ETCD_WATCH_COMPACTED, /* later history is gone: list, then watch from there */
    ETCD_WATCH_BEHIND, /* no endpoint has reached that revision: etcd was emptied or restored. List
                        */
    ETCD_WATCH_REFUSED /* the user may not read the range */
};

struct etcd_watch_options {
    const struct etcd_range *ranges; /* all on one stream */
    size_t range_count;              /* 1 to ETCD_RANGES_MAX */
    int64_t revision;    /* the first revision to show, at most the next one; 0: from now on */
    int64_t progress_ns; /* etcd's configured progress interval; after 2.5 times as long without a
                            line another endpoint is used. 0: 10 min, its default */
    int64_t create_ns;   /* limit for the answer to the opening of a stream; 0: 5 s */
    /* Events of one range in order, never part of a revision. */
    void (*on_events)(void *context, size_t range_index, const struct etcd_event *events,
                      size_t count);
    /* All events of the range up to the revision have been shown. May be NULL. */
    void (*on_progress)(void *context, size_t range_index, int64_t revision);
    /* A stream that watches all ranges is open. May be NULL. */
    void (*on_open)(void *context);
    /* The stream broke; it resumes by itself. May be NULL. */
    void (*on_trouble)(void *context, const struct error *error);
    /* The watch has ended and must be closed. */
    void (*on_end)(void *context, enum etcd_watch_end end, const struct error *error);
    void *context;
};

/* INVALID_ARGUMENT: an option is wrong. */
enum status etcd_watch_open(struct etcd *etcd, const struct etcd_watch_options *options,
                            struct etcd_watch **watch, struct error *error) WARN_UNUSED;
void etcd_watch_close(struct etcd_watch *watch);

/* ---- a mirror: list, watch, and list again when necessary ---- */

struct etcd_mirror;

struct etcd_mirror_options {
    const struct etcd_range *ranges; /* 1 to ETCD_RANGES_MAX, disjoint */
    size_t range_count;
    int64_t page_keys;   /* 0: 4,096; fewer if a page would be too long */
    int64_t progress_ns; /* as in a watch */
    /* A key exists or has changed. A repeated listing reports only differences. */
    void (*on_put)(void *context, size_t range_index, const struct etcd_kv *kv);
    /* A key is gone. `kv` has its key; mod_revision 0: it is missing from a listing. */
    void (*on_delete)(void *context, size_t range_index, const struct etcd_kv *kv);
    /* Everything reported is etcd's content at the revision; changes follow. Called again after
     * each trouble. */
    void (*on_synced)(void *context, int64_t revision);
    /* Changes do not arrive for now, or may have been missed; attempts continue. Reported content
     * stands; during another listing some keys are newer than others. May be NULL. */
    void (*on_trouble)(void *context, const struct error *error);
    void *context;
};

enum status etcd_mirror_open(struct etcd *etcd, const struct etcd_mirror_options *options,
                             struct etcd_mirror **mirror, struct error *error) WARN_UNUSED;
void etcd_mirror_close(struct etcd_mirror *mirror);
/* Revision up to which all ranges have been reported; 0: not synced since it was opened. */
int64_t etcd_mirror_revision(const struct etcd_mirror *mirror);
/* Number of keys reported. */
size_t etcd_mirror_keys(const struct etcd_mirror *mirror);
/* The mod_revision of a key as reported; 0: absent as far as reported. */
int64_t etcd_mirror_reported(const struct etcd_mirror *mirror, struct etcd_bytes key);
