/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/store/claim.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "loop/timer.h"

#define PAUSE_NS (500LL * NS_PER_MS)
#define STRANGER_PAUSE_NS (1000LL * NS_PER_MS)

struct store_claim {
    struct claim_options options;
    char *key;
    char *what;
    char *value; /* NULL: none set */
    size_t value_bytes;
    struct loop_timer *timer;
    struct etcd_call *call;
    int64_t lease_id;
    int64_t lease_before; /* the previous one */
    uint64_t number;      /* of the value */
    uint64_t number_sent; /* of the value being written */
    uint64_t number_held; /* of the value in etcd; 0: unknown */
    uint64_t held;        /* creation revision */
    uint64_t revision;    /* of the last known change */
    uint64_t lost_as_of;  /* seen not to be ours as of this revision, while a write was out */
    bool was_held;        /* by this process, ever */
};

static void step(struct store_claim *claim);

static struct etcd_range
range_of(const struct store_claim *claim)
{
    return (struct etcd_range){.span = ETCD_ONE, .key = claim->options.key};
}

static void
pause_for(struct store_claim *claim, int64_t pause_ns, const struct error *error)
{
    struct error reported = *error;
    loop_timer_set(claim->timer, pause_ns);
    error_prefix(&reported, "%s", claim->what);
    claim->options.on_trouble(claim->options.context, &reported);
}

static void
hold(struct store_claim *claim, uint64_t created, uint64_t revision, uint64_t number)
{
    claim->held = created;
    claim->revision = revision;
    claim->number_held = number;
    claim->was_held = true;
    claim->lost_as_of = 0;
    claim->options.on_held(claim->options.context, created);
    step(claim);
}

static void
lose(struct store_claim *claim)
{
    claim->held = 0;
    claim->number_held = 0;
    claim->lost_as_of = 0;
    claim->options.on_held(claim->options.context, 0);
    step(claim);
}

/* ---- creating ---- */

static void
on_taken(void *context, const struct etcd_answer *answer)
{
    struct store_claim *claim = context;
    claim->call = NULL;
    if (answer->fate == ETCD_DONE)
        step(claim);
    else
        pause_for(claim, PAUSE_NS, &answer->error);
}

static void
take_away(struct store_claim *claim, int64_t mod_revision)
{
    const struct etcd_compare compare = {
        .range = range_of(claim), .target = ETCD_MOD, .number = mod_revision};
    const struct etcd_op delete = {.kind = ETCD_DELETE, .range = range_of(claim)};
    const struct etcd_txn txn = {&compare, 1, &delete, 1, NULL, 0};
    claim->call = etcd_txn(claim->options.etcd, &txn,
                           (struct etcd_reply){on_taken, claim, claim->options.timeout_ns});
}

/* The key exists. */
static void
meet(struct store_claim *claim, const struct etcd_kv *kv)
{
    struct error error;
    if (kv->lease_id == claim->lease_id) {
        hold(claim, (uint64_t)kv->create_revision, (uint64_t)kv->mod_revision, 0);
        return;
    }
    if (!claim->was_held || (kv->lease_id == claim->lease_before && kv->lease_id != 0)) {
        take_away(claim, kv->mod_revision);
        return;
    }
    error_set(&error, STATUS_ALREADY_EXISTS,
              "another process has taken the name: give each node its own name");
    pause_for(claim, STRANGER_PAUSE_NS, &error);
}

static void
on_created(void *context, const struct etcd_answer *answer)
{
    struct store_claim *claim = context;
    claim->call = NULL;
    if (answer->fate != ETCD_DONE)
        pause_for(claim, PAUSE_NS, &answer->error);
    else if (answer->succeeded)
        hold(claim, (uint64_t)answer->revision, (uint64_t)answer->revision, claim->number_sent);
    else if (answer->responses[0].kv_count == 1)
        meet(claim, &answer->responses[0].kvs[0]);
    else
        loop_timer_set(claim->timer, PAUSE_NS);
}

/* Puts the value if the compare holds; otherwise the answer shows the key. */
static void
put(struct store_claim *claim, enum etcd_target target, int64_t number,
    void (*on_answer)(void *context, const struct etcd_answer *answer))
{
    const struct etcd_compare compare = {
        .range = range_of(claim), .target = target, .number = number};
    const struct etcd_op value = {.kind = ETCD_PUT,
                                  .range = range_of(claim),
                                  .value = {claim->value, claim->value_bytes},
                                  .lease_id = claim->lease_id};
    const struct etcd_op look = {
        .kind = ETCD_RANGE, .range = range_of(claim), .content = ETCD_KEYS_ONLY};
    const struct etcd_txn txn = {&compare, 1, &value, 1, &look, 1};
    claim->number_sent = claim->number;
    claim->call = etcd_txn(claim->options.etcd, &txn,
                           (struct etcd_reply){on_answer, claim, claim->options.timeout_ns});
}

/* ---- keeping ---- */

static void
on_rewritten(void *context, const struct etcd_answer *answer)
{
    struct store_claim *claim = context;
    claim->call = NULL;
    if (answer->fate != ETCD_DONE) {
        pause_for(claim, PAUSE_NS, &answer->error);
        return;
    }
    const struct etcd_kv *kv = answer->succeeded || answer->responses[0].kv_count == 0
                                   ? NULL
                                   : &answer->responses[0].kvs[0];
    if (answer->succeeded) {
        claim->revision = (uint64_t)answer->revision;
        claim->number_held = claim->number_sent;
    } else if (kv != NULL && (uint64_t)kv->create_revision == claim->held) {
        claim->revision = (uint64_t)kv->mod_revision;
    } else {
        lose(claim);
        return;
    }
    if (claim->lost_as_of > claim->revision)
        lose(claim);
    else
        step(claim);
}

static void
step(struct store_claim *claim)
{
    if (claim->call != NULL || claim->lease_id == 0 || claim->value == NULL)
        return;
    loop_timer_clear(claim->timer);
    if (claim->held == 0)
        put(claim, ETCD_CREATE, 0, on_created);
    else if (claim->number_held != claim->number)
        put(claim, ETCD_MOD, (int64_t)claim->revision, on_rewritten);
}

static void
on_time(void *context)
{
    step(context);
}

/* ---- the interface ---- */

struct store_claim *
claim_create(struct event_base *base, const struct claim_options *options)
{
    struct store_claim *claim = calloc(1, sizeof(*claim));
    CHECK(claim != NULL);
    claim->options = *options;
    claim->key = malloc(options->key.bytes);
    claim->what = strdup(options->what);
    CHECK(claim->key != NULL && claim->what != NULL);
    memcpy(claim->key, options->key.data, options->key.bytes);
    claim->options.key.data = claim->key;
    claim->timer = loop_timer_create(base, on_time, claim);
    return claim;
}

void
claim_destroy(struct store_claim *claim)
{
    if (claim == NULL)
        return;
    if (claim->call != NULL)
        etcd_cancel(claim->call);
    loop_timer_destroy(claim->timer);
    free(claim->key);
    free(claim->what);
    free(claim->value);
    free(claim);
}

void
claim_set_value(struct store_claim *claim, const void *value, size_t value_bytes)
{
    char *copy = malloc(value_bytes + 1);
    CHECK(copy != NULL);
    if (value_bytes > 0)
        memcpy(copy, value, value_bytes);
    free(claim->value);
    claim->value = copy;
    claim->value_bytes = value_bytes;
    claim->number++;
    step(claim);
}

struct etcd_bytes
claim_value(const struct store_claim *claim)
{
    return (struct etcd_bytes){claim->value, claim->value_bytes};
}

void
claim_set_lease(struct store_claim *claim, int64_t lease_id)
{
    if (claim->call != NULL)
        etcd_cancel(claim->call);
    claim->call = NULL;
    loop_timer_clear(claim->timer);
    if (claim->lease_id != 0)
        claim->lease_before = claim->lease_id;
    claim->lease_id = lease_id;
    claim->held = 0;
    claim->number_held = 0;
    step(claim);
}

uint64_t
claim_held(const struct store_claim *claim)
{
    return claim->held;
}

void
claim_seen(struct store_claim *claim, uint64_t create_revision, uint64_t revision)
{
    if (claim->held == 0 || create_revision == claim->held || revision <= claim->revision)
        return;
    if (claim->call != NULL)
        claim->lost_as_of = revision;
    else
        lose(claim);
}
