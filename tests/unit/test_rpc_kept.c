/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages that outlive their callback: their bytes stay as they were and where they were, until
 * the last reference is gone, on whichever thread; any part of them can be sent again, several
 * times at once, without a copy; what the user has made himself is copied. AddressSanitizer sees
 * what is used too long, LeakSanitizer what is kept too long.
 *
 * ctest: timeout=120 presets=dev,tsan because kept calls are answered by other threads
 */
#include "test_rpc_client_rig.h"

enum { BIG = 300000 };

static unsigned char
byte_at(size_t i)
{
    return (unsigned char)(i * 31 + i / 253);
}

static struct rpc_kept *
fetch(struct side *side, struct rpc_client *client, size_t bytes)
{
    unsigned char *data = malloc(bytes + 1);
    assert_non_null(data);
    for (size_t i = 0; i < bytes; i++)
        data[i] = byte_at(i);
    struct probe probe = {.side = side, .keeps = true};
    probe_start(&probe, client, "/t.T/Echo", data, bytes);
    free(data);
    assert_int_equal(probe_end(&probe), STATUS_OK);
    return probe.kept;
}

/* That the message is the part of the pattern from `offset` on. */
static void
check_pattern(const struct wire_message *message, size_t offset, size_t bytes)
{
    assert_int_equal(message->bytes, bytes);
    size_t at = offset;
    for (size_t s = 0; s < message->span_count; s++) {
        const unsigned char *data = message->spans[s].data;
        assert_true(message->spans[s].bytes > 0);
        for (size_t i = 0; i < message->spans[s].bytes; i++)
            if (data[i] != byte_at(at++))
                fail_msg("byte %zu of %zu", at - offset - 1, bytes);
    }
    assert_int_equal(at, offset + bytes);
}

TEST_CASE(test_lasts)
{
    static const size_t sizes[] = {0, 1, 23, 24, 5000, BIG};
    struct rig *rig = rig_start(1, NULL);
    struct side *side = side_start();
    struct rpc_client *client = client_open(side, rig->unix_target);
    struct rpc_kept *kept[ARRAY_COUNT(sizes)];
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++)
        kept[i] = fetch(side, client, sizes[i]);
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++)
        check_pattern(rpc_kept_message(kept[i]), 0, sizes[i]);
    /* They do not need the client, its queue or the server. */
    rpc_client_destroy(client);
    side_stop(side);
    rig_stop(rig);
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        check_pattern(rpc_kept_message(kept[i]), 0, sizes[i]);
        rpc_kept_acquire(kept[i]);
        rpc_kept_release(kept[i]);
        check_pattern(rpc_kept_message(kept[i]), 0, sizes[i]);
        rpc_kept_release(kept[i]);
    }
    rpc_kept_release(NULL);
}

/* A piece of a message as the message that comes back when it is sent. */
static void
check_part(struct side *side, struct rpc_client *client, struct rpc_kept *kept, size_t offset,
           size_t bytes)
{
    struct rpc_piece pieces[] = {
        {.data = "head", .bytes = 4},
        {.kept = kept, .offset = offset, .bytes = bytes},
        {.kept = kept},
        {.data = "tail", .bytes = 4},
    };
    struct probe probe = {.side = side, .keeps = true};
    struct rpc_client_request request = probe_request(&probe, "/t.T/Echo", RPC_UNARY);
    request.pieces = pieces;
    request.piece_count = ARRAY_COUNT(pieces);
    rpc_client_start(client, &request, &probe.call);
    assert_int_equal(probe_end(&probe), STATUS_OK);
    struct rpc_piece inner = {.kept = probe.kept, .offset = 4, .bytes = bytes};
    assert_int_equal(probe.bytes, bytes + 8);
    /* And a part of that once more, alone. */
    struct probe again = {.side = side, .keeps = true};
    request = probe_request(&again, "/t.T/EchoCold", RPC_UNARY);
    request.pieces = &inner;
    request.piece_count = 1;
    rpc_client_start(client, &request, &again.call);
    rpc_kept_release(probe.kept); /* at once: the send has a reference of its own */
    assert_int_equal(probe_end(&again), STATUS_OK);
    check_pattern(rpc_kept_message(again.kept), offset, bytes);
    rpc_kept_release(again.kept);
}

TEST_CASE(test_parts)
{
    struct rig *rig = rig_start(1, NULL);
    struct side *side = side_start();
    struct rpc_client *client = client_open(side, rig->tcp_target);
    static const size_t sizes[] = {10, 5000, BIG};
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        size_t size = sizes[i];
        struct rpc_kept *kept = fetch(side, client, size);
        check_part(side, client, kept, 0, size);
        check_part(side, client, kept, 0, 0);
        check_part(side, client, kept, size, 0);
        check_part(side, client, kept, size - 1, 1);
        check_part(side, client, kept, 1, size - 2);
        /* The borders of the spans, and what lies around them. */
        size_t at = 0;
        const struct wire_message *message = rpc_kept_message(kept);
        for (size_t s = 0; s + 1 < message->span_count; s++) {
            at += message->spans[s].bytes;
            check_part(side, client, kept, at, size - at);
            check_part(side, client, kept, at - 1, 2);
        }
        rpc_kept_release(kept);
    }
    rpc_client_destroy(client);
    side_stop(side);
    rig_stop(rig);
}

TEST_CASE(test_whole)
{
    struct rig *rig = rig_start(1, NULL);
    struct side *side = side_start();
    struct rpc_client *client = client_open(side, rig->unix_target);
    struct rpc_kept *kept = fetch(side, client, BIG);
    /* Many sends of one message at once. */
    struct probe probes[16];
    for (size_t i = 0; i < ARRAY_COUNT(probes); i++) {
        probes[i] = (struct probe){.side = side, .keeps = true};
        struct rpc_client_request request = probe_request(&probes[i], "/t.T/Echo", RPC_UNARY);
        struct rpc_piece piece = rpc_kept_piece(kept);
        request.pieces = &piece;
        request.piece_count = 1;
        rpc_client_start(client, &request, &probes[i].call);
    }
    rpc_kept_release(kept);
    for (size_t i = 0; i < ARRAY_COUNT(probes); i++) {
        assert_int_equal(probe_end(&probes[i]), STATUS_OK);
        check_pattern(rpc_kept_message(probes[i].kept), 0, BIG);
        rpc_kept_release(probes[i].kept);
    }
    rpc_client_destroy(client);
    side_stop(side);
    rig_stop(rig);
}

/* ---- within the callback ---- */

static void
on_end_keep_twice(void *context, const struct rpc_client_end *end)
{
    const struct wire_message *message = end->message;
    struct rpc_kept *first = rpc_message_keep(message);
    assert_true(rpc_kept_message(first)->spans[0].data == message->spans[0].data); /* no copy */
    rpc_kept_release(first);
    struct wire_message copy = *message; /* the struct is the user's to copy */
    struct rpc_kept *second = rpc_message_keep(&copy);
    struct rpc_kept *third = rpc_message_keep(message);
    assert_ptr_equal(second, third);
    rpc_kept_release(second);
    struct wire_message part = {.spans = message->spans, .span_count = 1, .bytes = 3};
    struct wire_span span = {.data = message->spans[0].data, .bytes = 3};
    part.spans = &span;
    struct rpc_kept *own = rpc_message_keep(&part); /* not what was delivered: copied */
    assert_true(rpc_kept_message(own)->spans[0].data != span.data);
    check_pattern(rpc_kept_message(own), 0, 3);
    rpc_kept_release(own);
    struct rpc_kept *copied =
        rpc_message_copy(message); /* although it was delivered, and is kept */
    assert_true(copied != third && rpc_kept_message(copied)->bytes == message->bytes);
    assert_true(rpc_kept_message(copied)->spans[0].data != message->spans[0].data);
    rpc_kept_release(copied);
    struct probe *probe = context;
    probe->kept = third;
    probe_on_end(context, end);
}

TEST_CASE(test_kept_twice)
{
    static const struct rpc_client_events events = {.on_end = on_end_keep_twice};
    struct rig *rig = rig_start(1, NULL);
    struct side *side = side_start();
    struct rpc_client *client = client_open(side, rig->unix_target);
    unsigned char data[5000];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = byte_at(i);
    struct probe probe = {.side = side};
    struct rpc_client_request request = probe_request(&probe, "/t.T/Echo", RPC_UNARY);
    struct rpc_piece piece = {.data = data, .bytes = sizeof(data)};
    request.pieces = &piece;
    request.piece_count = 1;
    request.events = &events;
    rpc_client_start(client, &request, &probe.call);
    assert_int_equal(probe_end(&probe), STATUS_OK);
    check_pattern(rpc_kept_message(probe.kept), 0, sizeof(data));
    rpc_kept_release(probe.kept);
    rpc_client_destroy(client);
    side_stop(side);
    rig_stop(rig);
}

/* Of no callback at all: copied. */
TEST_CASE(test_own_message)
{
    unsigned char data[100];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = byte_at(i);
    struct wire_span spans[] = {{data, 40}, {data + 40, 0}, {data + 40, 60}};
    struct wire_message message = {.spans = spans, .span_count = 3, .bytes = 100};
    struct rpc_kept *kept = rpc_message_keep(&message);
    memset(data, 0, sizeof(data));
    check_pattern(rpc_kept_message(kept), 0, 100);
    rpc_kept_release(kept);
    struct wire_message nothing = {0};
    kept = rpc_message_keep(&nothing);
    assert_int_equal(rpc_kept_message(kept)->span_count, 0);
    rpc_kept_release(kept);
}

TEST_MAIN(.group_setup = rig_group_setup, .group_teardown = rig_group_teardown)
