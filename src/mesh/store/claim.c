/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/store/claim.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "mesh/etcd/timer.h"

#define PAUSE_NS (500LL * NS_PER_MS)
#define STRANGER_PAUSE_NS (1000LL * NS_PER_MS)

struct claim {
    struct claim_options options;
    char *key;
    char *what;
    char *value; /* NULL: none was set */
    size_t value_bytes;
    struct etcd_timer *timer;
    struct etcd_call *call;
    int64_t lease_id;
    int64_t lease_before; /* the one before it */
    uint64_t number;      /* of the value */
    uint64_t number_sent; /* of the value that is under way */
    uint64_t number_held; /* of the value that etcd has; 0: not known */
    uint64_t held;        /* creation revision */
    uint64_t revision;    /* of the last change that we know of */
    uint64_t lost_as_of;  /* somebody saw that it is not ours, while a write was out */
    bool was_held;        /* ever, by this process */
};

static void step(struct claim *claim);

static struct etcd_range
range_of(const struct claim *claim)
{
    return (struct etcd_range){.span = ETCD_ONE, .key = claim->options.key};
}

static void
pause_for(struct claim *claim, int64_t pause_ns, const struct error *error)
{
    struct error told = *error;
    etcd_timer_set(claim->timer, pause_ns);
    error_prefix(&told, "%s", claim->what);
    claim->options.on_trouble(claim->options.context, &told);
}

static void
hold(struct claim *claim, uint64_t created, uint64_t revision, uint64_t number)
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
lose(struct claim *claim)
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
    struct claim *claim = context;
    claim->call = NULL;
    if (answer->fate == ETCD_DONE)
        step(claim);
    else
        pause_for(claim, PAUSE_NS, &answer->error);
}

static void
take_away(struct claim *claim, int64_t mod_revision)
{
    const struct etcd_compare compare = {
        .range = range_of(claim), .target = ETCD_MOD, .number = mod_revision};
    const struct etcd_op delete = {.kind = ETCD_DELETE, .range = range_of(claim)};
    const struct etcd_txn txn = {&compare, 1, &delete, 1, NULL, 0};
    claim->call = etcd_txn(claim->options.etcd, &txn,
                           (struct etcd_reply){on_taken, claim, claim->options.timeout_ns});
}

/* There is one. */
static void
meet(struct claim *claim, const struct etcd_kv *kv)
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
              "another process has taken the name since: give each node a name of its own");
    pause_for(claim, STRANGER_PAUSE_NS, &error);
}

static void
on_created(void *context, const struct etcd_answer *answer)
{
    struct claim *claim = context;
    claim->call = NULL;
    if (answer->fate != ETCD_DONE)
        pause_for(claim, PAUSE_NS, &answer->error);
    else if (answer->succeeded)
        hold(claim, (uint64_t)answer->revision, (uint64_t)answer->revision, claim->number_sent);
    else if (answer->responses[0].kv_count == 1)
        meet(claim, &answer->responses[0].kvs[0]);
    else
        etcd_timer_set(claim->timer, PAUSE_NS);
}

/* Puts the value, if the compare holds; else the answer shows the key. */
static void
put(struct claim *claim, enum etcd_target target, int64_t number,
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
    struct claim *claim = context;
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
step(struct claim *claim)
{
    if (claim->call != NULL || claim->lease_id == 0 || claim->value == NULL)
        return;
    etcd_timer_clear(claim->timer);
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

struct claim *
claim_create(struct event_base *base, const struct claim_options *options)
{
    struct claim *claim = calloc(1, sizeof(*claim));
    CHECK(claim != NULL);
    claim->options = *options;
    claim->key = malloc(options->key.bytes);
    claim->what = strdup(options->what);
    CHECK(claim->key != NULL && claim->what != NULL);
    memcpy(claim->key, options->key.data, options->key.bytes);
    claim->options.key.data = claim->key;
    claim->timer = etcd_timer_create(base, on_time, claim);
    return claim;
}

void
claim_destroy(struct claim *claim)
{
    if (claim == NULL)
        return;
    if (claim->call != NULL)
        etcd_cancel(claim->call);
    etcd_timer_destroy(claim->timer);
    free(claim->key);
    free(claim->what);
    free(claim->value);
    free(claim);
}

void
claim_set_value(struct claim *claim, const void *value, size_t value_bytes)
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
claim_value(const struct claim *claim)
{
    return (struct etcd_bytes){claim->value, claim->value_bytes};
}

void
claim_set_lease(struct claim *claim, int64_t lease_id)
{
    if (claim->call != NULL)
        etcd_cancel(claim->call);
    claim->call = NULL;
    etcd_timer_clear(claim->timer);
    if (claim->lease_id != 0)
        claim->lease_before = claim->lease_id;
    claim->lease_id = lease_id;
    claim->held = 0;
    claim->number_held = 0;
    step(claim);
}

uint64_t
claim_held(const struct claim *claim)
{
    return claim->held;
}

void
claim_seen(struct claim *claim, uint64_t create_revision, uint64_t revision)
{
    if (claim->held == 0 || create_revision == claim->held || revision <= claim->revision)
        return;
    if (claim->call != NULL)
        claim->lost_as_of = revision;
    else
        lose(claim);
}
