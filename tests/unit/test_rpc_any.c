/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of methods that are in no table: a unary caller and a streaming one are both served by the
 * same handler; metadata pass in both directions as they were, illegal ones are left out; messages
 * come only when asked for; what was sent is reported; a call of which only metadata have come may
 * be taken, refused or left until its message comes; methods of the table are not disturbed.
 *
 * ctest: timeout=120 presets=dev,tsan because calls are answered by other threads
 */
#include "test_rpc_client_rig.h"

enum { BIG_BYTES = 100000, SEEN_MAX = 8 };

/* The method selects the handler's action; its observations are kept here, under rig->lock. */
static struct {
    char path[SEEN_MAX][512];
    unsigned paths;
    unsigned opens;
    unsigned sents;
    size_t waiting;
} seen;

static struct rpc_metadata
metadata(const char *key, const void *value, size_t bytes)
{
    return (struct rpc_metadata){{key, strlen(key)}, {value, bytes}};
}

/* One answer, with all metadata of the request as initial metadata and as trailers. */
static void
answer(struct rpc_call *call, const struct wire_message *message, enum status status)
{
    struct rpc_metadata entries[32];
    size_t count = 0;
    for (size_t position = 0; rpc_call_metadata_walk(call, &position, &entries[count]);)
        CHECK(++count < ARRAY_COUNT(entries) - 4);
    size_t legal = count;
    entries[count++] = metadata("Upper", "x", 1);
    entries[count++] = metadata("line", "a\nb", 3);
    entries[count++] = metadata("", "x", 1);
    entries[count++] = metadata("grpc-status", "3", 1);
    struct rpc_kept *kept = rpc_message_keep(message);
    struct rpc_piece piece = rpc_kept_piece(kept);
    rpc_call_answer(call, &(struct rpc_answer){
                              .status = status,
                              .text = {"as asked", status == STATUS_OK ? 0 : 8},
                              .pieces = &piece,
                              .piece_count = 1,
                              .initial = entries,
                              .initial_count = count,
                              .trailers = entries,
                              .trailer_count = legal,
                          });
    rpc_kept_release(kept);
}

static void
on_any(void *context, struct rpc_call *call, const struct wire_message *message)
{
    struct rig *rig = context;
    const char *path = rpc_call_method(call);
    pthread_mutex_lock(&rig->lock);
    snprintf(seen.path[seen.paths++ % SEEN_MAX], sizeof(seen.path[0]), "%s", path);
    pthread_mutex_unlock(&rig->lock);
    if (strstr(path, "/Hold") != NULL) {
        on_hold(context, call, message);
    } else if (strstr(path, "/Chat") != NULL) {
        on_chat(context, call, message);
        rpc_call_read(call);
        rpc_call_read(call); /* the same question */
    } else if (strstr(path, "/Empty") != NULL) {
        rpc_call_answer(call, &(struct rpc_answer){.status = STATUS_OK});
    } else if (strstr(path, "/Refuse") != NULL) {
        rpc_call_refuse(call, STATUS_UNAVAILABLE, "later", 250);
    } else {
        answer(call, message, strstr(path, "/Fail") != NULL ? STATUS_ABORTED : STATUS_OK);
    }
    rig_count(rig, &rig->messages);
}

static void
on_any_half_close(void *context, struct rpc_call *call)
{
    struct rig *rig = context;
    rig_count(rig, &rig->half_closes);
    if (strstr(rpc_call_method(call), "/Hold") == NULL)
        rpc_call_finish(call, STATUS_OK, NULL);
}

static void
on_any_sent(void *context, uint64_t tag, size_t waiting)
{
    struct rig *rig = context;
    pthread_mutex_lock(&rig->lock);
    CHECK(tag >= 1000);
    seen.sents++;
    seen.waiting = waiting;
    pthread_cond_broadcast(&rig->changed);
    pthread_mutex_unlock(&rig->lock);
}

/* Methods with "/Open" are taken without a message. */
static bool
on_any_open(void *context, struct rpc_call *call)
{
    struct rig *rig = context;
    const char *path = rpc_call_method(call);
    struct rpc_metadata initial = metadata("k", "v", 1);
    rig_count(rig, &seen.opens);
    if (strstr(path, "/Open/Hold") != NULL)
        on_hold(context, call, NULL);
    else if (strstr(path, "/Open/Refuse") != NULL)
        rpc_call_refuse(call, STATUS_UNAVAILABLE, "later", 250);
    else if (strstr(path, "/Open") != NULL)
        rpc_call_begin(call, &initial, 1);
    return strstr(path, "/Open") != NULL;
}

static const struct rpc_any any = {.on_open = on_any_open,
                                   .on_message = on_any,
                                   .on_half_close = on_any_half_close,
                                   .on_cancel = on_cancel,
                                   .on_sent = on_any_sent};

static void
with_any(struct rpc_server_options *options)
{
    memset(&seen, 0, sizeof(seen));
    options->any = &any;
}

/* ---- unary callers ---- */

TEST_CASE(test_unary)
{
    struct client_stage stage = client_stage_start(with_any);
    char name[400] = "/x.X/"; /* longer than any text that is kept beside a call from the start */
    for (size_t i = strlen(name); i + 1 < sizeof(name); i++)
        name[i] = (char)('a' + i % 26);
    const char *const methods[] = {"/x.X/Echo", name, "/x.X/Echo2"};
    for (size_t i = 0; i < ARRAY_COUNT(methods); i++) {
        struct probe probe;
        probe_call(&probe, stage.side, stage.client, methods[i], "question", 8);
        assert_int_equal(probe_end(&probe), STATUS_OK);
        assert_int_equal(probe.bytes, 8);
        pthread_mutex_lock(&stage.rig->lock);
        assert_string_equal(seen.path[i], methods[i]);
        pthread_mutex_unlock(&stage.rig->lock);
    }
    struct probe probe;
    probe_call(&probe, stage.side, stage.client, "/t.T/Echo", "x", 1);
    assert_int_equal(probe_end(&probe), STATUS_OK);
    assert_int_equal(rig_read(stage.rig, &seen.paths), 3); /* the table goes first */
    probe_call(&probe, stage.side, stage.client, "/x.X/Fail", "x", 1);
    assert_int_equal(probe_end(&probe), STATUS_ABORTED);
    assert_string_equal(probe.text, "as asked");
    probe_call(&probe, stage.side, stage.client, "/x.X/Empty", "x", 1);
    assert_int_equal(probe_end(&probe), STATUS_INTERNAL);
    assert_string_equal(probe.text, "status OK without a response message");
    probe_call(&probe, stage.side, stage.client, "/x.X/Refuse", "x", 1);
    assert_int_equal(probe_end(&probe), STATUS_UNAVAILABLE);
    assert_string_equal(probe.text, "later");
    assert_string_equal(probe.trailers, "grpc-retry-pushback-ms=250\n");
    client_stage_stop(&stage);
}

TEST_CASE(test_metadata)
{
    struct client_stage stage = client_stage_start(with_any);
    static const char long_value[] = "0123456789012345678901234567890123456789";
    const struct rpc_metadata sent[] = {
        metadata("mm-model-id", "m1", 2),
        metadata("blob-bin", "\x01\xff\x0a\x80", 4),
        metadata("twice", "a", 1),
        metadata("twice", "b", 1),
        metadata("long", long_value, sizeof(long_value) - 1),
        metadata("empty", "", 0),
        metadata("Bad", "x", 1),
        metadata("te", "x", 1),
        metadata("grpc-timeout", "1S", 2),
        metadata("not-ascii", "\xc3\xa4", 2),
    };
    static const char expected[] = "mm-model-id=m1\nblob-bin=\x01\xff\x0a\x80\ntwice=a\ntwice=b\n"
                                   "long=0123456789012345678901234567890123456789\nempty=\n";
    for (unsigned i = 0; i < 2; i++) {
        struct probe probe = {.side = stage.side};
        struct rpc_client_request request =
            probe_request(&probe, "/x.X/Echo", i == 0 ? RPC_UNARY : RPC_BIDI_STREAM);
        request.metadata = sent;
        request.metadata_count = ARRAY_COUNT(sent);
        request.pieces = &(struct rpc_piece){.data = "x", .bytes = 1};
        request.piece_count = 1;
        rpc_client_start(stage.client, &request, &probe.call);
        if (i == 1) {
            probe_wait(&probe, &probe.messages, 1);
            rpc_client_read(probe.call);
        }
        assert_int_equal(probe_end(&probe), STATUS_OK);
        for (unsigned k = 0; k < 2; k++) {
            char *got = k == 0 ? probe.initial : probe.trailers;
            char *agent = strstr(got, "user-agent=");
            assert_null(agent); /* ours is left out when it is passed on */
            assert_string_equal(got, expected);
        }
    }
    client_stage_stop(&stage);
}

TEST_CASE(test_legal)
{
    const struct rpc_metadata good[] = {metadata("a", "b", 1), metadata("a-bin", "\0", 1),
                                        metadata("grpc-status-details-bin", "x", 1)};
    const struct rpc_metadata bad[] = {metadata(":path", "b", 1), metadata("a b", "b", 1),
                                       metadata("a", "\n", 1),    metadata("", "b", 1),
                                       metadata("host", "b", 1),  metadata("grpc-message", "b", 1)};
    for (size_t i = 0; i < ARRAY_COUNT(good); i++)
        assert_true(rpc_metadata_is_legal(&good[i]));
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        assert_false(rpc_metadata_is_legal(&bad[i]));
}

/* A bound unary method may answer with metadata, too; parts that a status other than OK cannot
 * carry come back to their lender. */
TEST_CASE(test_answer_of_a_bound_method)
{
    struct client_stage stage = client_stage_start(with_any);
    struct rig *rig = stage.rig;
    for (unsigned i = 0; i < 3; i++) {
        struct probe probe;
        probe_call(&probe, stage.side, stage.client, "/t.T/Hold", "x", 1);
        rig_wait(rig, &rig->held_count, i + 1);
        struct wire_message message = {&(struct wire_span){"reply", 5}, 1, 5};
        struct rpc_piece piece = lent_piece(rig, &message);
        struct rpc_metadata entry = metadata("k", "v", 1);
        struct rpc_answer say = {
            .status = i == 1 ? STATUS_NOT_FOUND : STATUS_OK,
            .pieces = i == 2 ? NULL : &piece,
            .piece_count = 1,
            .trailers = &entry,
            .trailer_count = 1,
        };
        rpc_call_answer(rig->held[i], &say);
        rig->held[i] = NULL;
        if (i == 2)
            piece.release(piece.release_context);
        assert_int_equal(probe_end(&probe), say.status);
        assert_int_equal(probe.messages, i != 1);
        assert_int_equal(probe.bytes, i == 0 ? 5 : 0);
        assert_string_equal(probe.trailers, "k=v\n");
        rig_wait(rig, &rig->released, i + 1);
    }
    client_stage_stop(&stage);
}

/* Seen from below: behind an error there is no message, though our client would not show it. */
TEST_CASE(test_no_message_with_an_error)
{
    struct client_stage stage = client_stage_start(with_any);
    struct caller caller;
    caller_open(&caller, stage.rig->unix_target, "/t.T/Hold");
    caller_send(&caller, "x", 1);
    rig_wait(stage.rig, &stage.rig->held_count, 1);
    struct rpc_piece piece = {.data = "reply", .bytes = 5};
    rpc_call_answer(
        stage.rig->held[0],
        &(struct rpc_answer){.status = STATUS_ABORTED, .pieces = &piece, .piece_count = 1});
    stage.rig->held[0] = NULL;
    assert_int_equal(caller_receive(&caller, NULL, 0), -1);
    assert_int_equal(caller_status(&caller), STATUS_ABORTED);
    caller_close(&caller);
    client_stage_stop(&stage);
}

/* ---- calls without a message ---- */

TEST_CASE(test_open)
{
    struct client_stage stage = client_stage_start(with_any);
    struct probe probe;
    probe_open(&probe, stage.side, stage.client, "/x.X/Open/Chat");
    probe_wait(&probe, &probe.initials, 1);
    for (unsigned i = 0; i < 3; i++) {
        struct rpc_piece piece = {.data = &i, .bytes = sizeof(i)};
        assert_int_equal(rpc_client_send(probe.call, &piece, 1), STATUS_OK);
        rpc_client_read(probe.call);
        probe_wait(&probe, &probe.messages, i + 1);
    }
    rpc_client_half_close(probe.call);
    rpc_client_read(probe.call);
    assert_int_equal(probe_end(&probe), STATUS_OK);
    assert_string_equal(probe.initial, "k=v\n");
    assert_int_equal(rig_read(stage.rig, &seen.opens), 1);
    probe_open(&probe, stage.side, stage.client, "/x.X/Open/Chat");
    probe_wait(&probe, &probe.initials, 1);
    rpc_client_half_close(probe.call);
    assert_int_equal(probe_end(&probe), STATUS_OK);
    probe_open(&probe, stage.side, stage.client, "/x.X/Open/Refuse");
    assert_int_equal(probe_end(&probe), STATUS_UNAVAILABLE);
    client_stage_stop(&stage);
}

/* The user of a call is notified that its caller has gone; a call without a user ends silently. */
TEST_CASE(test_open_and_gone)
{
    struct client_stage stage = client_stage_start(with_any);
    struct probe probe;
    probe_open(&probe, stage.side, stage.client, "/x.X/Left");
    rig_wait(stage.rig, &seen.opens, 1);
    rpc_client_cancel(probe.call);
    assert_int_equal(probe_end(&probe), STATUS_CANCELLED);
    probe_open(&probe, stage.side, stage.client, "/x.X/Open/Hold");
    rig_wait(stage.rig, &stage.rig->held_count, 1);
    rpc_client_cancel(probe.call);
    assert_int_equal(probe_end(&probe), STATUS_CANCELLED);
    rig_wait(stage.rig, &stage.rig->cancels, 1);
    assert_int_equal(stage.rig->cancelled_tag, 1000);
    probe_open(&probe, stage.side, stage.client, "/x.X/Chat");
    rig_wait(stage.rig, &seen.opens, 3);
    assert_int_equal(rpc_client_send(probe.call, &(struct rpc_piece){.data = "x", .bytes = 1}, 1),
                     STATUS_OK);
    probe_wait(&probe, &probe.messages, 1);
    rpc_client_half_close(probe.call);
    rpc_client_read(probe.call);
    assert_int_equal(probe_end(&probe), STATUS_OK);
    assert_int_equal(rig_read(stage.rig, &stage.rig->cancels), 1);
    client_stage_stop(&stage);
}

/* ---- streams ---- */

TEST_CASE(test_chat)
{
    struct client_stage stage = client_stage_start(with_any);
    struct probe probe;
    probe_open(&probe, stage.side, stage.client, "/x.X/Chat");
    for (unsigned i = 0; i < 200; i++) {
        struct rpc_piece piece = {.data = &i, .bytes = sizeof(i)};
        assert_int_equal(rpc_client_send(probe.call, &piece, 1), STATUS_OK);
        rpc_client_read(probe.call); /* for the first one that is asked already */
        probe_wait(&probe, &probe.messages, i + 1);
    }
    rpc_client_half_close(probe.call);
    rpc_client_read(probe.call);
    assert_int_equal(probe_end(&probe), STATUS_OK);
    assert_int_equal(probe.initials, 1);
    assert_int_equal(rig_read(stage.rig, &stage.rig->half_closes), 1);
    client_stage_stop(&stage);
}

/* The second message waits until it is asked for, on any thread. */
TEST_CASE(test_read_when_asked)
{
    struct client_stage stage = client_stage_start(with_any);
    struct rig *rig = stage.rig;
    struct probe probe;
    probe_open(&probe, stage.side, stage.client, "/x.X/Hold");
    for (unsigned i = 0; i < 3; i++) {
        struct rpc_piece piece = {.data = &i, .bytes = sizeof(i)};
        assert_int_equal(rpc_client_send(probe.call, &piece, 1), STATUS_OK);
    }
    rpc_client_half_close(probe.call);
    probe_wait(&probe, &probe.sents, 3); /* they are all on their way */
    rig_wait(rig, &rig->messages, 1);
    /* Another call goes there and back: had the second message been asked for, it would be here. */
    struct probe other;
    probe_call(&other, stage.side, stage.client, "/t.T/Hold", "x", 1);
    rig_wait(rig, &rig->held_count, 2);
    assert_int_equal(rig_read(rig, &rig->messages), 1);
    for (unsigned i = 2; i <= 3; i++) {
        rpc_call_read(rig->held[0]);
        rig_wait(rig, &rig->messages, i);
    }
    assert_int_equal(rig_read(rig, &rig->half_closes), 0);
    rpc_call_read(rig->held[0]);
    rig_wait(rig, &rig->half_closes, 1);
    rpc_call_read(rig->held[0]); /* nothing is left to be asked for */
    rig_end_held(rig, 0, STATUS_OUT_OF_RANGE, "done");
    assert_int_equal(probe_end(&probe), STATUS_OUT_OF_RANGE);
    rig_end_held(rig, 1, STATUS_ABORTED, NULL);
    assert_int_equal(probe_end(&other), STATUS_ABORTED);
    rig->held_count = 0;
    client_stage_stop(&stage);
}

/* The initial metadata go ahead of everything, when they are told to. */
TEST_CASE(test_begin)
{
    struct client_stage stage = client_stage_start(with_any);
    struct rig *rig = stage.rig;
    struct probe probe;
    probe_open(&probe, stage.side, stage.client, "/x.X/Hold");
    assert_int_equal(rpc_client_send(probe.call, &(struct rpc_piece){.data = "x", .bytes = 1}, 1),
                     STATUS_OK);
    rig_wait(rig, &rig->held_count, 1);
    struct rpc_metadata entry = metadata("first", "1", 1);
    rpc_call_begin(rig->held[0], &entry, 1);
    probe_wait(&probe, &probe.initials, 1);
    assert_string_equal(probe.initial, "first=1\n");
    struct rpc_kept *kept =
        rpc_message_keep(&(struct wire_message){&(struct wire_span){"end", 3}, 1, 3});
    struct rpc_piece piece = rpc_kept_piece(kept);
    entry = metadata("last", "2", 1);
    rpc_call_answer(rig->held[0], &(struct rpc_answer){.status = STATUS_DATA_LOSS,
                                                       .text = {"lost", 4},
                                                       .pieces = &piece,
                                                       .piece_count = 1,
                                                       .initial = &entry, /* too late */
                                                       .initial_count = 1,
                                                       .trailers = &entry,
                                                       .trailer_count = 1});
    rig->held[0] = NULL;
    rpc_kept_release(kept);
    probe_wait(&probe, &probe.messages, 1);
    rpc_client_read(probe.call);
    assert_int_equal(probe_end(&probe), STATUS_DATA_LOSS);
    assert_string_equal(probe.text, "lost");
    assert_string_equal(probe.initial, "first=1\n");
    assert_string_equal(probe.trailers, "last=2\n");
    assert_int_equal(probe.bytes, 3);
    client_stage_stop(&stage);
}

/* The client does not read: the server learns when its messages leave, and that they do not. */
TEST_CASE(test_server_back_pressure)
{
    struct client_stage stage = client_stage_start(with_any);
    struct rig *rig = stage.rig;
    struct probe probe;
    probe_open(&probe, stage.side, stage.client, "/x.X/Hold");
    assert_int_equal(rpc_client_send(probe.call, &(struct rpc_piece){.data = "x", .bytes = 1}, 1),
                     STATUS_OK);
    rig_wait(rig, &rig->held_count, 1);
    static char big[BIG_BYTES];
    struct rpc_piece piece = {.data = big, .bytes = sizeof(big)};
    unsigned sent = 0;
    enum status status;
    while ((status = rpc_call_send(rig->held[0], &piece, 1)) == STATUS_OK)
        assert_true(++sent < 10000);
    assert_int_equal(status, STATUS_RESOURCE_EXHAUSTED);
    assert_true(sent >= RPC_STREAM_QUEUE_MAX);
    /* A last one with the end is taken all the same. */
    rpc_call_answer(rig->held[0], &(struct rpc_answer){.pieces = &piece, .piece_count = 1});
    rig->held[0] = NULL;
    for (unsigned i = 1; i <= sent + 1; i++) {
        probe_wait(&probe, &probe.messages, i);
        rpc_client_read(probe.call);
    }
    assert_int_equal(probe_end(&probe), STATUS_OK);
    assert_int_equal(probe.bytes, (sent + 1) * sizeof(big));
    client_stage_stop(&stage);
}

TEST_CASE(test_sent_is_reported)
{
    struct client_stage stage = client_stage_start(with_any);
    struct rig *rig = stage.rig;
    struct probe probe;
    probe_open(&probe, stage.side, stage.client, "/x.X/Hold");
    assert_int_equal(rpc_client_send(probe.call, &(struct rpc_piece){.data = "x", .bytes = 1}, 1),
                     STATUS_OK);
    rig_wait(rig, &rig->held_count, 1);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(
            rpc_call_send(rig->held[0], &(struct rpc_piece){.data = "y", .bytes = 1}, 1),
            STATUS_OK);
    rig_wait(rig, &seen.sents, 5);
    assert_int_equal(seen.waiting, 0);
    rig_end_held(rig, 0, STATUS_CANCELLED, NULL);
    for (unsigned i = 1; i <= 5; i++) {
        probe_wait(&probe, &probe.messages, i);
        rpc_client_read(probe.call);
    }
    assert_int_equal(probe_end(&probe), STATUS_CANCELLED);
    client_stage_stop(&stage);
}

TEST_CASE(test_cancelled)
{
    struct client_stage stage = client_stage_start(with_any);
    struct rig *rig = stage.rig;
    for (unsigned i = 0; i < 20; i++) {
        struct probe probe;
        probe_open(&probe, stage.side, stage.client, "/x.X/Hold");
        assert_int_equal(
            rpc_client_send(probe.call, &(struct rpc_piece){.data = "x", .bytes = 1}, 1),
            STATUS_OK);
        rig_wait(rig, &rig->held_count, i + 1);
        if (i % 2 == 0)
            rpc_call_read(rig->held[i]);
        rpc_client_cancel(probe.call);
        assert_int_equal(probe_end(&probe), STATUS_CANCELLED);
        rig_wait(rig, &rig->cancels, i + 1);
        assert_int_equal(rig->cancelled_tag, 1000 + i);
        if (i % 2 == 1)
            rpc_call_read(rig->held[i]); /* there is nothing, and nothing is reported */
        /* An answer goes nowhere, and what was lent for it comes back. */
        struct wire_message message = {&(struct wire_span){"reply", 5}, 1, 5};
        struct rpc_piece piece = lent_piece(rig, &message);
        rpc_call_answer(rig->held[i], &(struct rpc_answer){.pieces = &piece, .piece_count = 1});
        rig->held[i] = NULL;
        rig_wait(rig, &rig->released, i + 1);
    }
    client_stage_stop(&stage);
}

TEST_MAIN(.group_setup = rig_group_setup, .group_teardown = rig_group_teardown)
