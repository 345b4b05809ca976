/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of etcd v3: reads, writes, transactions, leases that are kept, watches that go on by
 * themselves, and a mirror of ranges of keys. It talks to the JSON gateway that every etcd has on
 * its client port, over one or several endpoints. It knows nothing of what the keys mean.
 *
 * Threads: none. All of it runs on the thread that turns the event base (libevent's) that
 * etcd_create was given. Callbacks come from there too, never from within the function that started
 * what they belong to; they may call anything here, but not etcd_destroy. What a callback is shown
 * is alive until it returns.
 *
 * Memory: what is given to a function is copied before it returns. Out of memory ends the process.
 *
 * Errors: `struct error`, whose status follows etcd's own gRPC code. Beside it every answer has a
 * fate, because "it failed" is not enough for who writes: a write whose answer is lost may have
 * happened. Nothing that may have happened is ever sent twice.
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

/* Any bytes. `data` may be NULL when there are none. */
struct etcd_bytes {
    const void *data;
    size_t bytes;
};

/* Of a text, without its NUL. */
struct etcd_bytes etcd_text(const char *text);

/* ---- the client ---- */

struct etcd_options {
    const char *const *endpoints; /* "http://host:2379" or "https://…" */
    size_t endpoint_count;        /* 1 to ETCD_ENDPOINTS_MAX */
    const char *user;             /* NULL: without authentication */
    const char *password;
    const char *ca_file;   /* PEM; NULL: the system's authorities */
    const char *cert_file; /* PEM; NULL: no certificate of our own */
    const char *key_file;
    const char *ca_pem; /* this and the next two: the text itself, where no file is named */
    const char *cert_pem;
    const char *key_pem;
    const char *key_password;   /* of either; NULL: it has none */
    int64_t call_timeout_ns;    /* of calls that say none; 0: 5 s */
    int64_t connect_timeout_ns; /* one endpoint's; 0: 1 s */
    int64_t retry_ns_max;       /* longest pause before an endpoint is tried again; 0: 2 s */
    size_t answer_bytes_max;    /* of one answer, or one line of a watch, as JSON; 0: 64 MiB */
    uint64_t seed;              /* of the endpoints' order and the pauses' length */
};

/* Opens no connection yet. INVALID_ARGUMENT: an option is wrong, the text says which. */
enum status etcd_create(struct event_base *base, const struct etcd_options *options,
                        struct etcd **etcd, struct error *error) WARN_UNUSED;

/* Calls under way are forgotten, without a callback. Sessions, watches and mirrors have been closed
 * before. The event base stays. NULL is left alone. */
void etcd_destroy(struct etcd *etcd);

/* Counts since the client was made. */
struct etcd_figures {
    uint64_t calls;             /* answered, whatever the answer */
    uint64_t attempts;          /* requests for them; more than calls: some were tried again */
    uint64_t unknown;           /* writes of which it is not known whether they happened */
    uint64_t endpoint_failures; /* an endpoint did not do its part, and was left */
    uint64_t full;              /* writes and leases that were refused for want of space */
    uint64_t behind;            /* answers that were refused for an old revision */
    uint64_t tokens;            /* obtained for user and password */
    uint64_t streams;           /* watch streams opened; more than watches: some went on */
    uint64_t lists;     /* listings of mirrors begun; more than mirrors: some listed again */
    uint64_t histories; /* etcd was emptied or restored: revisions went back everywhere, or are
                         * of other changes than before (which mirrors notice) */
};
const struct etcd_figures *etcd_figures(const struct etcd *etcd);

/* The last call that needs space (a put, a lease) was refused for want of it: the answer has etcd's
 * words. Deletions, renewals and reads work on. */
bool etcd_is_full(const struct etcd *etcd);

/* Since when no endpoint has answered, on clock_now_ns; 0: the last one asked did. */
int64_t etcd_silent_ns(const struct etcd *etcd);

/* The endpoint that the next call goes to. */
const char *etcd_endpoint(const struct etcd *etcd);

/* ---- reads, writes, transactions ---- */

enum etcd_span {
    ETCD_ONE,    /* `key` alone */
    ETCD_PREFIX, /* all keys that begin with `key`; an empty one: all keys */
    ETCD_FROM,   /* `key` and all after it */
    ETCD_UNTIL   /* `key` and all after it that are before `end` */
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
    ETCD_SERIALIZABLE /* from the endpoint's own data: quicker, may be old, needs no quorum */
};
enum etcd_previous { ETCD_WITHOUT_PREVIOUS, ETCD_WITH_PREVIOUS };

struct etcd_op {
    enum etcd_op_kind kind;
    struct etcd_range range;       /* of a put: its key, ETCD_ONE */
    struct etcd_bytes value;       /* put */
    int64_t lease_id;              /* put; 0: none */
    enum etcd_previous previous;   /* put, delete: the answer shows what was there */
    int64_t limit;                 /* range: at most so many keys, in order of the keys; 0: all */
    int64_t revision;              /* range: as of then; 0: now */
    enum etcd_content content;     /* range */
    enum etcd_freshness freshness; /* range */
};

enum etcd_target { ETCD_VERSION, ETCD_CREATE, ETCD_MOD, ETCD_VALUE, ETCD_LEASE };
enum etcd_relation { ETCD_EQUAL, ETCD_GREATER, ETCD_LESS, ETCD_NOT_EQUAL };

/* Holds if it does for all keys in the range; the numbers of a key that is not there are 0. */
struct etcd_compare {
    struct etcd_range range;
    enum etcd_target target;
    enum etcd_relation relation;
    int64_t number;          /* all targets but ETCD_VALUE */
    struct etcd_bytes value; /* ETCD_VALUE */
};

/* All of the one list or all of the other, in one revision. The server's limit is 128 operations
 * in each, and no key may be put twice. */
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
    int64_t version; /* 1 when it was created */
    int64_t lease_id;
};

struct etcd_response {
    enum etcd_op_kind kind;
    const struct etcd_kv *kvs; /* range: what was found; put, delete: what was there before */
    size_t kv_count;
    int64_t count; /* range: keys in it, whatever the limit; delete: keys deleted */
    bool more;     /* range: there are more than the limit */
};

enum etcd_fate {
    ETCD_DONE,     /* etcd has answered */
    ETCD_NOT_DONE, /* it failed, and has certainly changed nothing */
    ETCD_UNKNOWN   /* a write was sent and its answer was not received: it may have happened, may
                    * happen yet, or never. Read it back: never write blindly again */
};

struct etcd_answer {
    enum etcd_fate fate;
    struct error error; /* unless ETCD_DONE */
    bool is_full;       /* of ETCD_UNKNOWN: etcd has no space for it */

    /* ETCD_DONE: */
    int64_t revision; /* of the store */
    uint64_t cluster_id;
    uint64_t member_id;
    uint64_t raft_term;
    uint64_t history; /* changes as figures.histories does: what was seen before counts nothing */
    bool succeeded;   /* txn: all compares held */
    const struct etcd_response *responses; /* one for each operation that was done, in order */
    size_t response_count;
    int64_t lease_id; /* grant, renew */
    int64_t ttl_s;    /* grant, renew; 0 of a renewal: the lease is gone */
};

/* Where an answer goes. */
struct etcd_reply {
    void (*on_answer)(void *context, const struct etcd_answer *answer); /* once */
    void *context;
    int64_t timeout_ns; /* 0: the client's; counts from now, whatever the call waits for */
};

/* Each is answered once, and returns a pointer that is good until then. Reads are tried at all
 * endpoints until the time is over; writes as long as it is certain that they did not happen. */
struct etcd_call *etcd_op(struct etcd *etcd, const struct etcd_op *op, struct etcd_reply reply);
struct etcd_call *etcd_txn(struct etcd *etcd, const struct etcd_txn *txn, struct etcd_reply reply);
/* Forgets all revisions of keys before `revision`. */
struct etcd_call *etcd_compact(struct etcd *etcd, int64_t revision, struct etcd_reply reply);
/* `lease_id` 0: the server chooses. It may give more time than was asked for. */
struct etcd_call *etcd_lease_grant(struct etcd *etcd, int64_t ttl_s, int64_t lease_id,
                                   struct etcd_reply reply);
/* Once: a session does it again and again. */
struct etcd_call *etcd_lease_renew(struct etcd *etcd, int64_t lease_id, struct etcd_reply reply);
/* Deletes the keys that were put with it. NOT_FOUND: there is no such lease. */
struct etcd_call *etcd_lease_revoke(struct etcd *etcd, int64_t lease_id, struct etcd_reply reply);

/* There will be no callback. A write may happen all the same. */
void etcd_cancel(struct etcd_call *call);

/* ---- a session: a lease that is kept ---- */

struct etcd_session;

struct etcd_session_options {
    int64_t ttl_s;     /* 1 to INT32_MAX; the server may give more */
    int64_t margin_ns; /* given up so long before the lease can end; 0: a tenth of the TTL */
    /* The lease is there: keys may be put with it. */
    void (*on_granted)(void *context, int64_t lease_id);
    /* It is gone (NOT_FOUND), or nobody confirmed it in time (DEADLINE_EXCEEDED): then etcd may
     * keep it, and its keys, for longer. The session does nothing more but be closed. */
    void (*on_lost)(void *context, const struct error *error);
    /* May be NULL: not granted or not renewed yet; it is tried on. */
    void (*on_trouble)(void *context, const struct error *error);
    void *context;
};

struct etcd_session *etcd_session_open(struct etcd *etcd,
                                       const struct etcd_session_options *options);
/* Stops keeping. The lease ends by itself; whoever wants it gone at once revokes it. */
void etcd_session_close(struct etcd_session *session);
/* 0: not granted yet. */
int64_t etcd_session_lease_id(const struct etcd_session *session);
/* How long the lease lasts for certain, less the margin, by this machine's clock, which goes on
 * while the machine is suspended; 0: stop claiming and writing in its name. Ask before each write:
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
    ETCD_WATCH_COMPACTED, /* what happened since is forgotten: list, then watch from there */
    ETCD_WATCH_BEHIND,    /* no endpoint has come as far: etcd was emptied or restored. List */
    ETCD_WATCH_REFUSED    /* the user may not read it */
};

struct etcd_watch_options {
    const struct etcd_range *ranges; /* all on one stream */
    size_t range_count;              /* 1 to ETCD_RANGES_MAX */
    int64_t revision;    /* the first to be shown: at most the next one of all; 0: from now on */
    int64_t progress_ns; /* how often etcd is set to report progress; after 2.5 times as long
                          * without a line another endpoint is taken. 0: 10 min, its default */
    int64_t create_ns;   /* for the answer to the opening of a stream; 0: 5 s */
    /* Events of one range, in order, revisions never in pieces. */
    void (*on_events)(void *context, size_t range_index, const struct etcd_event *events,
                      size_t count);
    /* May be NULL. All events of the range up to the revision have been shown. */
    void (*on_progress)(void *context, size_t range_index, int64_t revision);
    /* May be NULL. A stream is open, by which all ranges are watched. */
    void (*on_open)(void *context);
    /* May be NULL. The stream broke; it goes on by itself where it was. */
    void (*on_trouble)(void *context, const struct error *error);
    /* Nothing more will come; it remains to be closed. */
    void (*on_end)(void *context, enum etcd_watch_end end, const struct error *error);
    void *context;
};

/* INVALID_ARGUMENT: an option is wrong. */
enum status etcd_watch_open(struct etcd *etcd, const struct etcd_watch_options *options,
                            struct etcd_watch **watch, struct error *error) WARN_UNUSED;
void etcd_watch_close(struct etcd_watch *watch);

/* ---- a mirror: list, watch, list again if need be ---- */

struct etcd_mirror;

struct etcd_mirror_options {
    const struct etcd_range *ranges; /* 1 to ETCD_RANGES_MAX, which do not overlap */
    size_t range_count;
    int64_t page_keys;   /* 0: 4,096; fewer when a page would be too long */
    int64_t progress_ns; /* as of a watch */
    /* A key is there, or has changed. While it lists again, only what differs is told. */
    void (*on_put)(void *context, size_t range_index, const struct etcd_kv *kv);
    /* It is gone. `kv` has its key; mod_revision 0: a listing does not have it any more. */
    void (*on_delete)(void *context, size_t range_index, const struct etcd_kv *kv);
    /* What was told is what etcd holds at the revision; changes follow. Again after each trouble.
     */
    void (*on_synced)(void *context, int64_t revision);
    /* May be NULL. Changes do not come for now, or it is not sure yet that none was missed; it is
     * tried on. What was told stands, and while it lists again some keys are newer than others. */
    void (*on_trouble)(void *context, const struct error *error);
    void *context;
};

enum status etcd_mirror_open(struct etcd *etcd, const struct etcd_mirror_options *options,
                             struct etcd_mirror **mirror, struct error *error) WARN_UNUSED;
void etcd_mirror_close(struct etcd_mirror *mirror);
/* Up to which all was told, of all ranges; 0: not synced since it was opened. */
int64_t etcd_mirror_revision(const struct etcd_mirror *mirror);
/* Keys that it has told of. */
size_t etcd_mirror_keys(const struct etcd_mirror *mirror);
/* The mod_revision of a key as it was told; 0: it is not there as far as was told. */
int64_t etcd_mirror_told(const struct etcd_mirror *mirror, struct etcd_bytes key);
