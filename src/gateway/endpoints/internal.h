/* SPDX-License-Identifier: Apache-2.0 */
/* The pool's members. pool.c steps the core, scrape.c asks servers, report.c prints. */
#pragma once

#include <stdbool.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "gateway/config/endpoint_file.h"
#include "gateway/endpoints/journal.h"
#include "gateway/endpoints/names.h"
#include "gateway/endpoints/pool.h"
#include "gateway/resources/resources.h"
#include "gateway/scan/metrics_page.h"
#include "gateway/store/store.h"
#include "loop/timer.h"

enum { MODELS_BYTES_MAX = 256 << 10 };

/* An adapter that was loaded for us, to be named when it is unloaded. */
struct loaded_adapter {
    uint64_t hash;
    char *name; /* NULL: free */
};

struct endpoint_member {
    struct endpoint_pool *pool;
    uint32_t number;
    bool is_used;
    bool is_listed; /* in the file */
    struct endpoint_entry entry;
    struct http_target *target;
    struct http_target *metrics_target; /* the same, if /metrics is there */
    struct http_target *grpc_target;    /* the same, if gRPC is there */
    enum gateway_state state;

    struct http_call *scrape;
    struct metrics_page page;
    struct http_call *ask_models;
    bool scrape_waits; /* for `ask_models`: figures without the first catalogue would mislead */
    int64_t models_ms; /* when they were last asked for; 0: never */
    int64_t asked_ms;  /* when the call for them began */
    int64_t listed_ms; /* when `models` were asked for */
    struct bytes models_coming;
    struct bytes models;          /* an answer to /v1/models */
    struct model_list model_list; /* what it says */

    struct http_call *adapting; /* NULL: it neither loads nor unloads */
    bool is_load;
    uint64_t adapter;   /* of what it does */
    char *adapter_name; /* the same */
    int64_t adapted_ms; /* when it last ended */
    struct bytes adapt_body;
    struct loaded_adapter loaded[GATEWAY_ADAPTERS_MAX];
};

struct endpoint_pool {
    struct event_base *base;
    const struct gateway_settings *settings;
    struct endpoint_pool_handler handler;
    struct endpoint_pool_picker picker; /* first UINT32_MAX: there is none */
    struct gateway *core;
    struct pool_journal *journal; /* NULL: no dashboard */
    /* `figures` NULL: the scrape failed. */
    void (*on_scraped)(struct endpoint_member *member, const struct gateway_figures *figures);
    /* GATEWAY_ADAPTER_DONE or GATEWAY_ADAPTER_FAILED. */
    void (*on_adapted)(struct endpoint_member *member, enum gateway_event_kind end);
    struct pem_files *pems; /* for endpoints with TLS, like the next */
    struct http_tls *tls;
    struct http_client *client;
    struct loop_timer *tick;
    struct loop_timer *watch;
    struct stat seen; /* the file when it was last read */
    bool is_behind;   /* there are endpoints for which no number was free */
    struct endpoint_member *members;
    struct endpoint_names *names;
    struct endpoint_entry *entries; /* of the file */
    uint32_t entry_count;
    struct endpoint_entry *listed;  /* scratch: the same, with an entry for each node of the mesh */
    struct endpoint_entry *wanted;  /* scratch: the same, with an entry for each name's address */
    bool has_resources;             /* or objectives: they are configured */
    struct resource_set *resources; /* NULL: there are none */
    uint64_t resources_stamp;       /* when they were last read */
    struct gateway_store *store;    /* where they are; NULL: in files */
    bool has_read_store;            /* until then there are no endpoints */
    char *resources_mistake;        /* in what was read last; NULL: none */
    uint64_t file_reloads;
    uint64_t file_mistakes;
    uint64_t adapters_loaded;
    uint64_t adapters_unloaded;
    uint64_t adapters_failed; /* to load or to unload */
    uint64_t lines_ignored;
    uint64_t models_ignored; /* lists that were too large */
    uint64_t viewers[POOL_VIEWER_COUNT];
};

static inline int64_t
pool_now_ms(void)
{
    return clock_now_ns() / NS_PER_MS;
}

/* ---- resources.c ---- */

/* The pools that the endpoint belongs to. */
uint64_t pool_bits(const struct endpoint_pool *pool, const struct endpoint_entry *entry);
/* NULL: the model is as the client named it. */
const char *pool_target_name(const struct endpoint_pool *pool, uint32_t target);

/* ---- rollout.c ---- */

/* Ends in ADAPTER_DONE or ADAPTER_FAILED. */
void member_load(struct endpoint_member *member, uint64_t adapter);
void member_unload(struct endpoint_member *member, uint64_t adapter);
/* Returns true if the member's list of models is newer than what was loaded. */
bool member_lists(const struct endpoint_member *member);
/* Forgets what was loaded. */
void member_forget_loaded(struct endpoint_member *member);

/* ---- scrape.c ---- */

/* Ends in on_scraped. */
void member_scrape(struct endpoint_member *member);
/* The endpoint is no longer usable, or is freed: forgets what it reported. */
void member_forget(struct endpoint_member *member);
