/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Health over a real server: Check and Watch of what is known and what is not, models, changes sent
 * once and in order, watchers that vanish, that do not read, and that a stopping server ends. A
 * server that still had an open call at the end of a test would not stop, and the test would not
 * end.
 *
 * ctest: timeout=120 presets=dev,tsan because another thread notifies watchers
 */
#include "test_rpc_rig.h"

#include "coordinator/protocol/services.h"

static struct health *health;

static void
on_check(void *context, struct rpc_call *call, const struct wire_message *message)
{
    (void)context;
    health_on_check(health, call, message);
}

static void
on_watch(void *context, struct rpc_call *call, const struct wire_message *message)
{
    (void)context;
    health_on_watch(health, call, message);
}

static void
on_gone(void *context, uint64_t tag)
{
    health_on_cancel(health, tag);
    rig_count(context, &((struct rig *)context)->cancels);
}

#define CHECK_PATH "/grpc.health.v1.Health/Check"
#define WATCH_PATH "/grpc.health.v1.Health/Watch"

static const struct rpc_method methods[] = {
    {CHECK_PATH, RPC_UNARY, false, on_check, NULL, NULL},
    {WATCH_PATH, RPC_SERVER_STREAM, false, on_watch, NULL, on_gone},
};

static void
adjust(struct rpc_server_options *options)
{
    options->methods = methods;
    options->method_count = ARRAY_COUNT(methods);
}

/* The models of this node: "loaded-…" and "listed-…". */
static bool
find_model(void *context, const char *name, bool *serving)
{
    atomic_fetch_add((atomic_uint *)context, 1);
    *serving = strncmp(name, "loaded-", 7) == 0;
    return *serving || strncmp(name, "listed-", 7) == 0;
}

static atomic_uint models_asked;

static struct rig *
start(size_t queue_count)
{
    health = health_create((struct health_others){find_model, &models_asked});
    return rig_start(queue_count, adjust);
}

static void
stop(struct rig *rig)
{
    health_end_watches(health);
    rig_stop(rig);
    health_destroy(health);
}

enum { UNKNOWN, SERVING, NOT_SERVING, SERVICE_UNKNOWN, REFUSED };

/* A HealthCheckRequest, as bytes. */
static size_t
request_for(const char *service, unsigned char packed[256])
{
    size_t bytes = strlen(service);
    CHECK(bytes < 128);
    packed[0] = 0x0a;
    packed[1] = (unsigned char)bytes;
    memcpy(packed + 2, service, bytes);
    return bytes + 2;
}

/* The state, or REFUSED with the error. */
static int
check(struct rig *rig, const void *request, size_t request_bytes, struct error *error)
{
    struct rpc_channel *channel;
    *error = ERROR_NONE;
    assert_int_equal(rpc_channel_create(rig->unix_target, &channel, error), STATUS_OK);
    unsigned char *response = NULL;
    void *received = NULL;
    size_t bytes = 0;
    enum status status =
        rpc_channel_call(channel,
                         &(struct rpc_channel_ask){CHECK_PATH, request, request_bytes,
                                                   clock_now_ns() + PATIENCE_S * NS_PER_S},
                         &received, &bytes, error);
    response = received;
    int state = UNKNOWN;
    if (status != STATUS_OK) {
        state = REFUSED;
    } else {
        assert_int_equal(bytes, 2);
        assert_int_equal(response[0], 0x08);
        state = response[1];
    }
    free(received);
    rpc_channel_destroy(channel);
    return state;
}

static int
check_service(struct rig *rig, const char *service, struct error *error)
{
    unsigned char packed[256];
    return check(rig, packed, request_for(service, packed), error);
}

TEST_CASE(test_check)
{
    struct rig *rig = start(1);
    struct error error;
    health_set(health, "", HEALTH_SERVING);
    health_set(health, "digits", HEALTH_NOT_SERVING);
    assert_int_equal(check_service(rig, "", &error), SERVING);
    assert_int_equal(check(rig, "", 0, &error), SERVING);
    assert_int_equal(check_service(rig, "digits", &error), NOT_SERVING);
    health_set(health, "digits", HEALTH_SERVING);
    assert_int_equal(check_service(rig, "digits", &error), SERVING);
    assert_int_equal(check_service(rig, "digit", &error), REFUSED);
    assert_int_equal(error.status, STATUS_NOT_FOUND);
    assert_string_equal(error.text, "service \"digit\": not known here");
    assert_int_equal(check(rig, "\x0a\x05x", 3, &error), REFUSED);
    assert_int_equal(error.status, STATUS_INVALID_ARGUMENT);
    assert_string_equal(error.text, "request is not a valid HealthCheckRequest");
    assert_int_equal(check(rig, "\x0a\x02\xff\xff", 4, &error), REFUSED);
    assert_int_equal(error.status, STATUS_INVALID_ARGUMENT);
    char large[131] = "\x0a\x80\x01"; /* a name of 128 bytes */
    memset(large + 3, 'n', 128);
    assert_int_equal(check(rig, large, sizeof(large), &error), REFUSED);
    assert_string_equal(error.text, "service: a name has at most 127 bytes");
    stop(rig);
}

/* A model is a service by its id to Check; a service of the same name comes first. */
TEST_CASE(test_models)
{
    struct rig *rig = start(1);
    struct error error;
    health_set(health, "loaded-1", HEALTH_NOT_SERVING);
    atomic_store(&models_asked, 0);
    assert_int_equal(check_service(rig, "loaded-1", &error), NOT_SERVING);
    assert_int_equal(atomic_load(&models_asked), 0);
    assert_int_equal(check_service(rig, "loaded-2", &error), SERVING);
    assert_int_equal(check_service(rig, "listed-2", &error), NOT_SERVING);
    assert_int_equal(check_service(rig, "nobody", &error), REFUSED);
    assert_int_equal(error.status, STATUS_NOT_FOUND);
    assert_int_equal(atomic_load(&models_asked), 3);
    stop(rig);
}

static void
watch(struct rig *rig, struct caller *caller, const char *service)
{
    unsigned char packed[256];
    caller_open(caller, rig->unix_target, WATCH_PATH);
    caller_send(caller, packed, request_for(service, packed));
    caller_half_close(caller);
}

static void
assert_reported(struct caller *caller, int state)
{
    unsigned char bytes[16];
    assert_int_equal(caller_receive(caller, bytes, sizeof(bytes)), 2);
    assert_int_equal(bytes[0], 0x08);
    assert_int_equal(bytes[1], state);
}

static void
assert_ended(struct caller *caller, enum status status)
{
    assert_int_equal(caller_receive(caller, NULL, 0), -1);
    assert_int_equal(caller_status(caller), status);
    caller_close(caller);
}

/* Each change once, to its watchers alone; setting the same state again is no change. */
TEST_CASE(test_watch)
{
    struct rig *rig = start(2);
    health_set(health, "", HEALTH_NOT_SERVING);
    health_set(health, "digits", HEALTH_SERVING);
    struct caller node;
    struct caller digits;
    struct caller later;
    watch(rig, &node, "");
    watch(rig, &digits, "digits");
    watch(rig, &later, "later");
    assert_reported(&node, NOT_SERVING);
    assert_reported(&digits, SERVING);
    assert_reported(&later, SERVICE_UNKNOWN);
    health_set(health, "digits", HEALTH_SERVING);
    health_set(health, "digits", HEALTH_NOT_SERVING);
    health_set(health, "digits", HEALTH_NOT_SERVING);
    health_set(health, "digits", HEALTH_SERVING);
    assert_reported(&digits, NOT_SERVING);
    assert_reported(&digits, SERVING);
    health_set(health, "later", HEALTH_NOT_SERVING);
    health_set(health, "later", HEALTH_SERVING);
    assert_reported(&later, NOT_SERVING);
    assert_reported(&later, SERVING);
    health_set(health, "", HEALTH_SERVING);
    assert_reported(&node, SERVING);
    health_end_watches(health);
    assert_ended(&node, STATUS_UNAVAILABLE);
    assert_ended(&digits, STATUS_UNAVAILABLE);
    assert_ended(&later, STATUS_UNAVAILABLE);
    struct caller late;
    watch(rig, &late, "");
    assert_ended(&late, STATUS_UNAVAILABLE);
    stop(rig);
}

TEST_CASE(test_watch_malformed)
{
    struct rig *rig = start(1);
    struct caller caller;
    caller_open(&caller, rig->unix_target, WATCH_PATH);
    caller_send(&caller, "\x0a\x05x", 3);
    assert_ended(&caller, STATUS_INVALID_ARGUMENT);
    stop(rig);
}

/* The middle one of three vanishes; the others go on, and the server has nothing left of it. */
TEST_CASE(test_watcher_vanishes)
{
    struct rig *rig = start(1);
    struct caller callers[3];
    health_set(health, "", HEALTH_SERVING);
    for (size_t i = 0; i < ARRAY_COUNT(callers); i++) {
        watch(rig, &callers[i], "");
        assert_reported(&callers[i], SERVING);
    }
    caller_close(&callers[1]);
    rig_wait(rig, &rig->cancels, 1);
    health_set(health, "", HEALTH_NOT_SERVING);
    assert_reported(&callers[0], NOT_SERVING);
    assert_reported(&callers[2], NOT_SERVING);
    caller_close(&callers[0]);
    caller_close(&callers[2]);
    rig_wait(rig, &rig->cancels, 3);
    rig_stop(rig); /* without health_end_watches: no call may be left to end */
    health_destroy(health);
}

/* A watcher that reads nothing is ended once too much waits for it; what it then reads are whole
 * states, in turns, and the reason. */
TEST_CASE(test_slow_watcher)
{
    struct rig *rig = start(1);
    struct caller slow;
    health_set(health, "", HEALTH_SERVING);
    watch(rig, &slow, "");
    assert_reported(&slow, SERVING);
    for (int i = 0; i < 100000; i++)
        health_set(health, "", i % 2 != 0 ? HEALTH_SERVING : HEALTH_NOT_SERVING);
    int expected = NOT_SERVING;
    unsigned char bytes[16];
    long length;
    while ((length = caller_receive(&slow, bytes, sizeof(bytes))) >= 0) {
        assert_int_equal(length, 2);
        assert_int_equal(bytes[1], expected);
        expected = expected == SERVING ? NOT_SERVING : SERVING;
    }
    assert_int_equal(caller_status(&slow), STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(grpc_slice_str_cmp(slow.text, "too many unread states"), 0);
    caller_close(&slow);
    assert_int_equal(rig_read(rig, &rig->cancels), 0);
    stop(rig);
}

static void *
toggle(void *argument)
{
    (void)argument;
    for (int i = 0; i < 2000; i++)
        health_set(health, i % 3 == 0 ? "digits" : "",
                   i % 2 == 0 ? HEALTH_SERVING : HEALTH_NOT_SERVING);
    return NULL;
}

/* Two threads set states while watchers come and vanish, on two queues. */
TEST_CASE(test_burst)
{
    struct rig *rig = start(2);
    pthread_t threads[2];
    health_set(health, "", HEALTH_SERVING);
    for (size_t i = 0; i < ARRAY_COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, toggle, NULL), 0);
    for (int i = 0; i < 60; i++) {
        struct caller caller;
        watch(rig, &caller, i % 2 == 0 ? "" : "digits");
        unsigned char bytes[16];
        assert_int_equal(caller_receive(&caller, bytes, sizeof(bytes)), 2);
        caller_close(&caller);
    }
    for (size_t i = 0; i < ARRAY_COUNT(threads); i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    stop(rig);
}

TEST_MAIN(.group_setup = rig_group_setup, .group_teardown = rig_group_teardown)
