/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls passed through: a server that takes any method hands each call, by a client on its own
 * queue, to another server, message by message, with back-pressure from either end to the other and
 * not one byte copied on the way. Callers see what they would see without it: answers, errors,
 * metadata, deadlines, ends; and what they give up is given up behind it. First by cases, then by
 * callers that do at random what callers do, with a seed; the server behind may be killed.
 *
 * ctest: timeout=180 presets=dev,tsan because messages cross two threads
 */
#include "test_rpc_client_rig.h"

#include "../random.h"

enum { RANDOM_CALLS = 400, AT_ONCE = 24, BIG_BYTES = 60000 };

/* ---- the forwarder ---- */

/* One call that is passed on. All of it on the stepping thread of the one queue. A message that the
 * other side cannot take yet waits here, and nothing more is read meanwhile. */
struct pass {
    struct forwarder *forwarder;
    struct rpc_call *call;         /* NULL: ended */
    struct rpc_client_call *asked; /* NULL: over */
    struct rpc_kept *request;
    struct rpc_kept *answer;
    bool half_closed;
    uint64_t number;
    struct pass *next;
};

struct forwarder {
    struct rpc_server *server;
    struct rpc_client *client;
    pthread_t thread;
    char directory[64];
    char target[128];
    atomic_bool stopping;
    struct pass *passes;
    uint64_t count;
};

static struct pass *
pass_find(struct forwarder *forwarder, uint64_t number)
{
    for (struct pass *pass = forwarder->passes; pass != NULL; pass = pass->next)
        if (pass->number == number)
            return pass;
    return NULL;
}

static void
pass_free_if_over(struct pass *pass)
{
    if (pass->call != NULL || pass->asked != NULL)
        return;
    struct pass **link = &pass->forwarder->passes;
    while (*link != pass)
        link = &(*link)->next;
    *link = pass->next;
    rpc_kept_release(pass->request);
    rpc_kept_release(pass->answer);
    free(pass);
}

/* To the server behind; false when it has to wait. */
static bool
send_on(struct pass *pass)
{
    struct rpc_piece piece = rpc_kept_piece(pass->request);
    if (rpc_client_send(pass->asked, &piece, 1) == STATUS_RESOURCE_EXHAUSTED)
        return false;
    rpc_kept_release(pass->request);
    pass->request = NULL;
    return true;
}

static bool
send_back(struct pass *pass)
{
    struct rpc_piece piece = rpc_kept_piece(pass->answer);
    if (rpc_call_send(pass->call, &piece, 1) == STATUS_RESOURCE_EXHAUSTED)
        return false;
    rpc_kept_release(pass->answer);
    pass->answer = NULL;
    return true;
}

static void
on_pass_initial(void *context, const struct rpc_metadata *initial, size_t initial_count)
{
    struct pass *pass = context;
    if (pass->call != NULL && initial_count > 0)
        rpc_call_begin(pass->call, initial, initial_count);
}

static void
on_pass_answer(void *context, const struct wire_message *message)
{
    struct pass *pass = context;
    if (pass->call == NULL)
        return;
    CHECK(pass->answer == NULL);
    pass->answer = rpc_message_keep(message);
    if (send_back(pass))
        rpc_client_read(pass->asked);
}

static void
on_pass_sent(void *context, size_t waiting)
{
    struct pass *pass = context;
    if (pass->request == NULL || waiting > 0 || pass->call == NULL || !send_on(pass))
        return;
    rpc_call_read(pass->call);
}

static void
on_pass_end(void *context, const struct rpc_client_end *end)
{
    struct pass *pass = context;
    rpc_client_release(pass->asked);
    pass->asked = NULL;
    if (pass->call != NULL) {
        /* Behind its last message only, so `answer` waits if the caller does not read. */
        struct rpc_piece piece = {.kept = pass->answer};
        if (pass->answer != NULL)
            piece.bytes = rpc_kept_message(pass->answer)->bytes;
        struct rpc_answer answer = {.status = end->status,
                                    .text = end->text,
                                    .pieces = pass->answer != NULL ? &piece : NULL,
                                    .piece_count = 1,
                                    .trailers = end->trailers,
                                    .trailer_count = end->trailer_count};
        struct rpc_call *call = pass->call;
        pass->call = NULL;
        rpc_call_answer(call, &answer);
    }
    pass_free_if_over(pass);
}

static const struct rpc_client_events pass_events = {on_pass_initial, on_pass_answer, on_pass_sent,
                                                     on_pass_end};

static void
pass_start(struct forwarder *forwarder, struct rpc_call *call, const struct wire_message *message)
{
    struct pass *pass = calloc(1, sizeof(*pass));
    CHECK(pass != NULL);
    *pass = (struct pass){.forwarder = forwarder, .call = call, .number = ++forwarder->count};
    pass->next = forwarder->passes;
    forwarder->passes = pass;
    rpc_call_set_tag(call, pass->number);
    rpc_call_set_user(call, pass);
    struct rpc_metadata metadata[32];
    size_t count = 0;
    for (size_t position = 0; rpc_call_metadata_walk(call, &position, &metadata[count]);)
        CHECK(++count < ARRAY_COUNT(metadata));
    struct rpc_kept *kept = message != NULL ? rpc_message_keep(message) : NULL;
    struct rpc_piece piece = {.kept = kept, .bytes = kept != NULL ? message->bytes : 0};
    struct rpc_client_request request = {
        .method = rpc_call_method(call),
        .kind = RPC_BIDI_STREAM,
        .deadline_ns = rpc_call_deadline_ns(call),
        .metadata = metadata,
        .metadata_count = count,
        .pieces = kept != NULL ? &piece : NULL,
        .piece_count = 1,
        .last = kept == NULL,
        .events = &pass_events,
        .context = pass,
    };
    rpc_client_start(forwarder->client, &request, &pass->asked);
    rpc_kept_release(kept);
    if (kept != NULL)
        rpc_call_read(call);
}

static void
on_forward(void *context, struct rpc_call *call, const struct wire_message *message)
{
    struct pass *pass = rpc_call_user(call);
    struct forwarder *forwarder = context;
    if (forwarder->client == NULL) {
        rpc_call_finish(call, STATUS_UNAVAILABLE, "stopping");
    } else if (pass == NULL) {
        pass_start(forwarder, call, message);
    } else if (pass->asked != NULL) {
        CHECK(pass->request == NULL);
        pass->request = rpc_message_keep(message);
        if (send_on(pass))
            rpc_call_read(call);
    }
}

static void
on_forward_half_close(void *context, struct rpc_call *call)
{
    struct pass *pass = rpc_call_user(call);
    struct forwarder *forwarder = context;
    if (pass == NULL && forwarder->client == NULL)
        rpc_call_finish(call, STATUS_UNAVAILABLE, "stopping");
    else if (pass == NULL)
        pass_start(context, call, NULL);
    else if (pass->asked != NULL)
        rpc_client_half_close(pass->asked);
}

static void
on_forward_cancel(void *context, uint64_t tag)
{
    struct pass *pass = pass_find(context, tag);
    if (pass == NULL || pass->call == NULL)
        return;
    struct rpc_call *call = pass->call;
    pass->call = NULL;
    rpc_call_finish(call, STATUS_CANCELLED, NULL);
    if (pass->asked != NULL)
        rpc_client_cancel(pass->asked);
    pass_free_if_over(pass);
}

static void
on_forward_sent(void *context, uint64_t tag, size_t waiting)
{
    struct pass *pass = pass_find(context, tag);
    if (pass == NULL || pass->call == NULL || pass->answer == NULL || waiting > 0)
        return;
    if (send_back(pass) && pass->asked != NULL)
        rpc_client_read(pass->asked);
}

static const struct rpc_any forward_any = {.on_message = on_forward,
                                           .on_half_close = on_forward_half_close,
                                           .on_cancel = on_forward_cancel,
                                           .on_sent = on_forward_sent};

static void *
forwarder_run(void *argument)
{
    struct forwarder *forwarder = argument;
    while (rpc_server_step(forwarder->server, 0, TIME_NEVER_NS) >= 0) {
        if (forwarder->client == NULL || !atomic_load(&forwarder->stopping))
            continue;
        rpc_client_destroy(forwarder->client);
        forwarder->client = NULL;
    }
    return NULL;
}

static struct forwarder *
forwarder_start(const char *behind)
{
    struct forwarder *forwarder = calloc(1, sizeof(*forwarder));
    assert_non_null(forwarder);
    rig_make_directory(forwarder->directory);
    snprintf(forwarder->target, sizeof(forwarder->target), "unix:%s/s", forwarder->directory);
    const char *listen[] = {forwarder->target};
    struct rpc_server_options options = {
        .listen = listen,
        .listen_count = 1,
        .queue_count = 1,
        .message_bytes_max = 64 << 20,
        .armed_calls = 1,
        .armed_calls_other = RIG_ARMED_CALLS,
        .any = &forward_any,
        .context = forwarder,
    };
    struct error error = ERROR_NONE;
    if (rpc_server_create(&options, &forwarder->server, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    forwarder->client = client_open_with(rpc_server_queue(forwarder->server, 0), behind, 64 << 20);
    assert_int_equal(pthread_create(&forwarder->thread, NULL, forwarder_run, forwarder), 0);
    return forwarder;
}

static void
forwarder_stop(struct forwarder *forwarder)
{
    rpc_server_stop(forwarder->server);
    rpc_server_cancel_all(forwarder->server);
    atomic_store(&forwarder->stopping, true);
    rpc_server_wake(forwarder->server, 0);
    assert_int_equal(pthread_join(forwarder->thread, NULL), 0);
    assert_null(forwarder->passes);
    rpc_server_destroy(forwarder->server);
    assert_int_equal(rmdir(forwarder->directory), 0);
    free(forwarder);
}

/* ---- by cases ---- */

struct stage {
    struct rig *rig;
    struct forwarder *forwarder;
    struct side *side;
    struct rpc_client *client;
};

static struct stage
stage_start(void)
{
    struct stage stage = {.rig = rig_start(1, NULL), .side = side_start()};
    stage.forwarder = forwarder_start(stage.rig->tcp_target);
    stage.client = client_open(stage.side, stage.forwarder->target);
    return stage;
}

static void
stage_stop(struct stage *stage)
{
    rpc_client_destroy(stage->client);
    side_stop(stage->side);
    forwarder_stop(stage->forwarder);
    rig_end_all(stage->rig);
    rig_stop(stage->rig);
}

TEST_CASE(test_unary)
{
    static const size_t sizes[] = {0, 1, 24, 5000, 100000, 3 << 20};
    struct stage stage = stage_start();
    char *data = malloc(3 << 20);
    assert_non_null(data);
    for (size_t i = 0; i < 3 << 20; i++)
        data[i] = (char)(i * 13 + i / 255);
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        struct error error;
        if (rig_call(stage.forwarder->target, i % 2 ? "/t.T/Echo" : "/t.T/EchoCold", data, sizes[i],
                     &error) != STATUS_OK)
            fail_msg("%zu bytes: %s", sizes[i], error.text);
    }
    struct error error;
    assert_int_equal(rig_call(stage.forwarder->target, "/t.T/None", data, 1, &error),
                     STATUS_UNIMPLEMENTED);
    assert_string_equal(error.text, "unknown method /t.T/None");
    free(data);
    stage_stop(&stage);
}

TEST_CASE(test_streams)
{
    struct stage stage = stage_start();
    static char data[BIG_BYTES];
    struct probe probe = {.side = stage.side, .greedy = true};
    struct rpc_client_request request = probe_request(&probe, "/t.T/Chat", RPC_BIDI_STREAM);
    rpc_client_start(stage.client, &request, &probe.call);
    size_t bytes = 0;
    for (unsigned i = 0; i < 300; i++) {
        struct rpc_piece piece = {.data = data, .bytes = (size_t)i * 97 % BIG_BYTES};
        enum status status;
        while ((status = rpc_client_send(probe.call, &piece, 1)) == STATUS_RESOURCE_EXHAUSTED)
            probe_wait(&probe, &probe.sents, i); /* all that it took */
        assert_int_equal(status, STATUS_OK);
        bytes += piece.bytes;
        if (i % 50 == 49) /* the echo's own queue is bounded, and it drops what is too much */
            probe_wait(&probe, &probe.messages, i + 1);
    }
    rpc_client_half_close(probe.call);
    assert_int_equal(probe_end(&probe), STATUS_OK);
    assert_int_equal(probe.messages, 300);
    assert_int_equal(probe.bytes, bytes);
    stage_stop(&stage);
}

/* The server behind writes and writes, the caller does not read: it is held up through and through;
 * then the caller reads, and nothing is missing. */
TEST_CASE(test_back_pressure)
{
    struct stage stage = stage_start();
    struct rig *rig = stage.rig;
    static char data[BIG_BYTES];
    struct probe probe;
    probe_open(&probe, stage.side, stage.client, "/t.T/HoldBidi");
    assert_int_equal(rpc_client_send(probe.call, &(struct rpc_piece){.data = "x", .bytes = 1}, 1),
                     STATUS_OK);
    rig_wait(rig, &rig->held_count, 1);
    struct rpc_piece piece = {.data = data, .bytes = sizeof(data)};
    unsigned sent = 0;
    unsigned refused = 0;
    /* Messages under way may still drain between two refusals. */
    while (refused < 1000) {
        enum status status = rpc_call_send(rig->held[0], &piece, 1);
        refused = status == STATUS_OK ? 0 : refused + 1;
        sent += status == STATUS_OK;
        assert_true(sent < 10000);
        sched_yield();
    }
    rig_end_held(rig, 0, STATUS_OK, NULL);
    for (unsigned i = 1; i <= sent; i++) {
        probe_wait(&probe, &probe.messages, i);
        rpc_client_read(probe.call);
    }
    assert_int_equal(probe_end(&probe), STATUS_OK);
    assert_int_equal(probe.bytes, sent * sizeof(data));
    stage_stop(&stage);
}

TEST_CASE(test_given_up)
{
    struct stage stage = stage_start();
    struct rig *rig = stage.rig;
    struct probe probe;
    probe_open(&probe, stage.side, stage.client, "/t.T/HoldBidi");
    assert_int_equal(rpc_client_send(probe.call, &(struct rpc_piece){.data = "x", .bytes = 1}, 1),
                     STATUS_OK);
    rig_wait(rig, &rig->held_count, 1);
    rpc_client_cancel(probe.call);
    assert_int_equal(probe_end(&probe), STATUS_CANCELLED);
    rig_wait(rig, &rig->cancels, 1);
    /* Whether it gets so far before its deadline or not. */
    probe = (struct probe){.side = stage.side};
    struct rpc_client_request request = probe_request(&probe, "/t.T/HoldCold", RPC_UNARY);
    request.deadline_ns = clock_now_ns() + 100 * NS_PER_MS;
    rpc_client_start(stage.client, &request, &probe.call);
    assert_int_equal(probe_end(&probe), STATUS_DEADLINE_EXCEEDED);
    rig_wait(rig, &rig->cancels, rig_read(rig, &rig->held_count));
    stage_stop(&stage);
}

/* ---- at random ---- */

struct random_call {
    struct probe probe;
    bool stream;
    bool echoes;
    bool cancelled;
    bool half_closed;
    unsigned sent;
    size_t bytes;
};

static void
random_start(struct random_call *call, struct side *side, struct rpc_client *client,
             uint64_t *state)
{
    static const char *const methods[] = {"/t.T/Echo", "/t.T/EchoCold", "/t.T/Hold",
                                          "/t.T/Chat", "/t.T/ChatHot",  "/t.T/HoldBidi"};
    static char data[BIG_BYTES];
    uint64_t draw = random_draw(state);
    unsigned which = draw % 6;
    *call = (struct random_call){.probe = {.side = side, .greedy = draw >> 60 != 0},
                                 .stream = which >= 3,
                                 .echoes = which % 3 != 2};
    struct rpc_client_request request =
        probe_request(&call->probe, methods[which], which < 3 ? RPC_UNARY : RPC_BIDI_STREAM);
    struct rpc_piece piece = {.data = data, .bytes = (draw >> 8) % BIG_BYTES >> (draw >> 32) % 16};
    request.pieces = &piece;
    request.piece_count = 1;
    if ((draw >> 40) % 8 == 0)
        request.deadline_ns = clock_now_ns() + (int64_t)((draw >> 44) % 30) * NS_PER_MS;
    call->cancelled = request.deadline_ns != TIME_NEVER_NS;
    call->sent = 1;
    call->bytes = piece.bytes;
    rpc_client_start(client, &request, &call->probe.call);
}

static void
random_act(struct random_call *call, uint64_t *state)
{
    static char data[BIG_BYTES];
    uint64_t draw = random_draw(state);
    struct rpc_piece piece = {.data = data, .bytes = (draw >> 8) % BIG_BYTES >> (draw >> 32) % 16};
    switch (draw % 8) {
    case 0:
        call->cancelled = true;
        rpc_client_cancel(call->probe.call);
        break;
    case 1:
        if (call->stream && !call->half_closed)
            rpc_client_half_close(call->probe.call);
        call->half_closed = true;
        break;
    case 2:
        if (call->stream)
            rpc_client_read(call->probe.call);
        break;
    default:
        if (!call->stream || call->half_closed || call->sent == 60 ||
            rpc_client_send(call->probe.call, &piece, 1) != STATUS_OK)
            break;
        call->sent++;
        call->bytes += piece.bytes;
    }
}

/* In every case it ends once; and if it ended well, nothing is missing. */
static void
random_end(struct random_call *call)
{
    if (call->stream && !call->half_closed)
        rpc_client_half_close(call->probe.call);
    if (!call->echoes || !call->probe.greedy)
        rpc_client_cancel(call->probe.call);
    enum status status = probe_end(&call->probe);
    if (call->echoes && call->probe.greedy && !call->cancelled)
        assert_int_equal(status, STATUS_OK);
    if (status != STATUS_OK || !call->echoes)
        return;
    assert_int_equal(call->probe.messages, call->sent);
    assert_int_equal(call->probe.bytes, call->bytes);
}

TEST_CASE(test_random)
{
    uint64_t random = random_seed((uint64_t)clock_now_ns());
    struct stage stage = stage_start();
    /* A caller of its own for every other call: straight to the server, for comparison. */
    struct rpc_client *straight = client_open(stage.side, stage.rig->unix_target);
    static struct random_call calls[AT_ONCE];
    for (unsigned i = 0; i < RANDOM_CALLS; i++) {
        struct random_call *call = &calls[i % AT_ONCE];
        if (i >= AT_ONCE)
            random_end(call);
        random_start(call, stage.side, i % 4 == 0 ? straight : stage.client, &random);
        for (unsigned n = random_draw(&random) % 64; n > 0; n--)
            random_act(&calls[random_draw(&random) % (i < AT_ONCE ? i + 1 : AT_ONCE)], &random);
    }
    for (unsigned i = 0; i < AT_ONCE; i++)
        random_end(&calls[i]);
    rpc_client_destroy(straight);
    stage_stop(&stage);
}

/* The same, and the server behind is killed now and then: calls may fail, but each ends once. */
TEST_CASE(test_random_with_kills)
{
    uint64_t random = random_seed((uint64_t)clock_now_ns());
    struct elsewhere elsewhere;
    elsewhere_start(&elsewhere);
    struct side *side = side_start();
    struct forwarder *forwarder = forwarder_start(elsewhere.target);
    struct rpc_client *client = client_open(side, forwarder->target);
    static struct random_call calls[AT_ONCE];
    for (unsigned round = 0; round < 4; round++) {
        elsewhere_wait(&elsewhere, side, client);
        for (unsigned i = 0; i < AT_ONCE; i++) {
            random_start(&calls[i], side, client, &random);
            calls[i].cancelled = true;
        }
        for (unsigned n = random_draw(&random) % 500; n > 0; n--)
            random_act(&calls[random_draw(&random) % AT_ONCE], &random);
        elsewhere_kill(&elsewhere);
        elsewhere_spawn(&elsewhere);
        for (unsigned i = 0; i < AT_ONCE; i++)
            random_end(&calls[i]);
    }
    rpc_client_destroy(client);
    side_stop(side);
    forwarder_stop(forwarder);
    elsewhere_kill(&elsewhere);
    elsewhere_remove(&elsewhere);
}

int
main(int argc, char **argv)
{
    if (argc > 1)
        return elsewhere_main(argv[1]);
    return TEST_RUN(.group_setup = rig_group_setup, .group_teardown = rig_group_teardown);
}
