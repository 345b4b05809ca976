/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's view of the mesh's manifests while the store's events come in another order than the
 * changes: another node creates an object anew, and the mirror shows it before the answer to our
 * deletion is there.
 */
#include <string.h>

#include "../test.h"
#include "loop/loop.h"
#include "serving/leader/leader.h"

#define ROUTE "LLMRoute/r"
#define REPORT ROUTE "/gateway/g"
#define MANIFEST                                                                                   \
    "{\"created_ms\":1,\"deleted\":false,\"manifest\":{\"apiVersion\":"                            \
    "\"inference.x-k8s.io/v1alpha1\",\"kind\":\"LLMRoute\",\"metadata\":{\"name\":\"r\"},"         \
    "\"spec\":{\"parentRefs\":[{\"name\":\"g\"}],\"backendRefs\":[{\"name\":\"p\",\"adapter\":"    \
    "{\"name\":\"a\"}}]}}}"

static struct {
    struct loop *loop;
    struct serving_leader *leader;
    struct store_events events;
} rig;

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
    const struct store_events next = {.on_whole = ignore_whole};
    assert_int_equal(loop_create(&rig.loop, &error), STATUS_OK);
    const struct serving_leader_options options = {
        .loop = rig.loop, .node = "me", .on_credentials = ignore_credentials};
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
    return 0;
}

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

TEST_MAIN(.setup = set_up, .teardown = tear_down)
