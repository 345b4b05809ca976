/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's view of the mesh's manifests while the store's events come in another order than the
 * changes: another node creates an object anew, and the mirror shows it before the answer to our
 * deletion is there; another node's folder takes over an object that this node is about to delete.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../test.h"
#include "base/clock.h"
#include "loop/loop.h"
#include "mesh/store/store.h"
#include "serving/leader/leader.h"

#define ROUTE "LLMRoute/r"
#define REPORT ROUTE "/gateway/g"
#define MANIFEST                                                                                   \
    "{\"created_ms\":1,\"deleted\":false,\"manifest\":{\"apiVersion\":"                            \
    "\"inference.x-k8s.io/v1alpha1\",\"kind\":\"LLMRoute\",\"metadata\":{\"name\":\"r\"},"         \
    "\"spec\":{\"parentRefs\":[{\"name\":\"g\"}],\"backendRefs\":[{\"name\":\"p\",\"adapter\":"    \
    "{\"name\":\"a\"}}]}}}"
#define CONFIG "ConfigMap/c"
#define CONFIG_OF(folder)                                                                          \
    "{\"created_ms\":1,\"deleted\":false,\"manifest\":{\"apiVersion\":\"v1\","                     \
    "\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"c\",\"annotations\":{\"shoal/folder\":"       \
    "\"" folder "\"}},\"data\":{}}}"

enum { WAIT_S = 60 };

static struct {
    char folder[64]; /* of manifests: it is empty */
    struct loop *loop;
    struct serving_leader *leader;
    struct store_events events;
} rig;

static void
ignore_put(void *context, const struct store_record *record)
{
    (void)context;
    (void)record;
}

static void
ignore_session(void *context, uint64_t session)
{
    (void)context;
    (void)session;
}

static void
ignore_leader(void *context, enum store_leadership leadership)
{
    (void)context;
    (void)leadership;
}

static void
ignore_whole(void *context, uint64_t revision)
{
    (void)context;
    (void)revision;
}

static void
ignore_credentials(void *context, const struct manifest *secret)
{
    (void)context;
    (void)secret;
}

static int
set_up(void **state)
{
    (void)state;
    struct error error = ERROR_NONE;
    const struct store_events next = {.on_put = ignore_put,
                                      .on_whole = ignore_whole,
                                      .on_session = ignore_session,
                                      .on_leader = ignore_leader};
    snprintf(rig.folder, sizeof(rig.folder), "/tmp/shoal-leader-XXXXXX");
    assert_non_null(mkdtemp(rig.folder));
    assert_int_equal(loop_create(&rig.loop, &error), STATUS_OK);
    const struct serving_leader_options options = {
        .loop = rig.loop, .folder = rig.folder, .node = "me", .on_credentials = ignore_credentials};
    rig.leader = serving_leader_create(&options);
    rig.events = serving_leader_events(rig.leader, &next);
    rig.events.on_whole(rig.events.context, 1);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    serving_leader_destroy(rig.leader);
    loop_destroy(rig.loop);
    assert_int_equal(rmdir(rig.folder), 0);
    return 0;
}

/* ---- a store of this node alone ---- */

static uint32_t gone_count; /* records that it has reported gone */
static uint32_t end_count;  /* of the test's own transactions */

static void
count_gone(void *context, enum store_table table, const char *id, uint64_t revision)
{
    gone_count++;
    rig.events.on_gone(context, table, id, revision);
}

static void
count_end(void *context, enum store_txn_end end, const struct error *error)
{
    (void)context;
    (void)error;
    end_count += end == STORE_OK;
}

static struct store *
open_store(void)
{
    struct store *store = NULL;
    struct error error = ERROR_NONE;
    struct store_events events = rig.events;
    events.on_gone = count_gone;
    const struct store_options options = {"me", &events};
    assert_int_equal(store_open_memory(loop_base(rig.loop), &options, &store, &error), STATUS_OK);
    store_set_instance(store, "{}", 2);
    gone_count = end_count = 0;
    return store;
}

struct await {
    const uint32_t *count;
    uint32_t least;
    int64_t until_ns;
};

static void
look_again(void *context)
{
    const struct await *await = context;
    if (*await->count >= await->least || clock_now_ns() > await->until_ns)
        loop_stop(rig.loop);
    else
        loop_post(rig.loop, look_again, context);
}

/* Runs the loop until the count is reached. */
static void
run_until(const uint32_t *count, uint32_t least)
{
    struct await await = {count, least, clock_now_ns() + WAIT_S * NS_PER_S};
    loop_post(rig.loop, look_again, &await);
    loop_run(rig.loop);
    assert_true(*count >= least);
}

/* Returns when the store has answered all earlier transactions. */
static void
run_empty_txn(struct store *store)
{
    struct error error = ERROR_NONE;
    const struct store_txn txn = {.session = store_session(store)};
    const struct store_reply reply = {count_end, NULL};
    assert_int_equal(store_txn(store, &txn, reply, &error), STATUS_OK);
    run_until(&end_count, end_count + 1);
}

/* ---- events and what is seen ---- */

static void
put(const char *id, const char *value, uint64_t revision)
{
    const struct store_record record = {.table = STORE_MANIFESTS,
                                        .id = id,
                                        .value = value,
                                        .value_bytes = strlen(value),
                                        .create_revision = revision,
                                        .revision = revision};
    rig.events.on_put(rig.events.context, &record);
}

static void
gone(const char *id, uint64_t revision)
{
    rig.events.on_gone(rig.events.context, STORE_MANIFESTS, id, revision);
}

struct look {
    uint64_t version; /* 0: there is none */
    bool is_reported;
};

static bool
on_seen(void *context, const struct serving_seen *seen)
{
    *(struct look *)context =
        (struct look){seen->version, strstr(seen->status, "\"news\"") != NULL};
    return true;
}

static struct look
look(void)
{
    struct look look = {0};
    struct error error = ERROR_NONE;
    assert_int_equal(serving_list(rig.leader, "", on_seen, &look, &error), STATUS_OK);
    return look;
}

TEST_CASE(test_a_manifest_outlives_an_older_deletion)
{
    put(ROUTE, MANIFEST, 12);
    put(ROUTE, MANIFEST, 14);
    gone(ROUTE, 13);
    assert_int_equal(look().version, 14);
    gone(ROUTE, 15);
    assert_int_equal(look().version, 0);
}

TEST_CASE(test_a_report_outlives_an_older_deletion)
{
    put(ROUTE, MANIFEST, 12);
    put(REPORT, "{\"gateway\":\"g\",\"version\":12,\"text\":\"news\"}", 15);
    gone(REPORT, 14);
    assert_true(look().is_reported);
    gone(REPORT, 16);
    assert_false(look().is_reported);
}

/* The object left this node's folder while the node was down. Its deletion is lost, because another
 * node's folder has the object by now. */
TEST_CASE(test_an_object_that_another_folder_took_over_stays)
{
    struct store *store = open_store();
    put(CONFIG, CONFIG_OF("me"), 1000);
    serving_leader_start(rig.leader, store);
    run_until(&gone_count, 1); /* the store does not have this revision, and says so */
    put(CONFIG, CONFIG_OF("other"), 1001);
    run_empty_txn(store); /* the node looks at the object */
    run_empty_txn(store); /* another deletion would have been answered */
    assert_int_equal(gone_count, 1);
    assert_int_equal(look().version, 1001);
    store_close(store);
}

TEST_MAIN(.setup = set_up, .teardown = tear_down)
