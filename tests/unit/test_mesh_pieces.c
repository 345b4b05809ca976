/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline's answer in pieces on its way to the owner of a call of the mesh: their order and the
 * window, what waits and its bound, the end behind them, and a caller that goes; at last with the
 * pipeline and the owner on two threads.
 *
 * ctest: presets=dev,tsan because of these
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "../test.h"
#include "coordinator/mesh/mesh_pieces.h"
#include "mesh/edge/peer_flow.h"

enum { PIECES = 4000, BYTES = 8, COST = BYTES + MESH_PIECE_COST, UNREAD_MAX = 40 * COST };
enum { WINDOW_PIECES = PEER_FLOW_WINDOW_BYTES / (BYTES + PEER_FLOW_MESSAGE_BYTES) + 1 };

struct owner {
    struct peer_request request; /* first */
    struct peer_flow flow;
    struct mesh_pieces *pieces;
    _Atomic uint64_t came; /* of pieces */
    unsigned ends;
    enum status status;
    char text[128];
    uint64_t last; /* the end's message */
};

static uint64_t
number_in(const struct rpc_answer *answer)
{
    uint64_t number;
    assert_int_equal(answer->piece_count, 1);
    assert_int_equal(answer->pieces->bytes, BYTES);
    memcpy(&number, answer->pieces->data, BYTES);
    rpc_pieces_release(answer->pieces, 1);
    return number;
}

static void
on_part(struct peer_request *request, const struct rpc_answer *part)
{
    struct owner *owner = (struct owner *)(void *)request;
    assert_int_equal(number_in(part), atomic_load(&owner->came));
    atomic_fetch_add(&owner->came, 1);
}

static void
on_end(void *context, const struct rpc_answer *answer)
{
    struct owner *owner = context;
    owner->ends++;
    owner->status = answer->status;
    assert_true(answer->text.bytes < sizeof(owner->text));
    memcpy(owner->text, answer->text.data, answer->text.bytes);
    if (answer->pieces != NULL)
        owner->last = number_in(answer);
}

static void
owner_init(struct owner *owner)
{
    static const struct peer_request_type type = {.on_part = on_part};
    bool closed;
    static const struct peer_flow_sink sink = {.taken = mesh_pieces_taken};
    *owner = (struct owner){.request = {.type = &type, .method = PEER_FLOW_INFER}};
    peer_flow_init(&owner->flow, &owner->request, PEER_FLOW_WINDOW_BYTES);
    owner->pieces = mesh_pieces_create(&(struct mesh_pieces_options){
        .request = &owner->request, .on_end = on_end, .context = owner});
    assert_null(peer_flow_attach(&owner->flow, PEER_FLOW_CLOSED, &sink, &owner->request, &closed));
}

static void
owner_fini(struct owner *owner)
{
    mesh_pieces_destroy(owner->pieces);
    assert_null(owner->request.in_pieces);
    mesh_pieces_taken(&owner->request, 1); /* late */
    mesh_pieces_cancel(&owner->request);
    peer_flow_fini(&owner->flow);
}

static enum status
put(struct owner *owner, uint64_t number)
{
    const struct rpc_piece halves[] = {{.data = &number, .bytes = 3},
                                       {.data = (const char *)&number + 3, .bytes = BYTES - 3}};
    return mesh_pieces_put(owner->pieces, halves, 2, UNREAD_MAX);
}

/* True: it waits. */
static bool
end(struct owner *owner, enum status status, const char *text, uint64_t number)
{
    const struct rpc_piece piece = {.data = &number, .bytes = BYTES};
    const struct rpc_answer answer = {.status = status,
                                      .text = {text, strlen(text)},
                                      .pieces = status == STATUS_OK ? &piece : NULL,
                                      .piece_count = status == STATUS_OK};
    return mesh_pieces_end(owner->pieces, &answer);
}

static void
take(struct owner *owner, unsigned count)
{
    while (count-- > 0)
        peer_flow_taken(&owner->flow, peer_flow_cost(BYTES));
}

TEST_CASE(test_window_and_bound)
{
    struct owner owner;
    uint64_t number = 0;
    owner_init(&owner);
    while (number < PIECES && put(&owner, number) == STATUS_OK)
        number++;
    assert_int_equal(atomic_load(&owner.came), WINDOW_PIECES);
    assert_int_equal(number, WINDOW_PIECES + UNREAD_MAX / COST);
    assert_int_equal(put(&owner, number), STATUS_RESOURCE_EXHAUSTED);
    assert_false(mesh_pieces_is_full(owner.pieces)); /* its own limit */
    assert_true(end(&owner, STATUS_RESOURCE_EXHAUSTED, "too slow", 0));
    take(&owner, UNREAD_MAX / COST - 1);
    assert_int_equal(owner.ends, 0);
    take(&owner, 1);
    assert_int_equal(atomic_load(&owner.came), number);
    assert_int_equal(owner.ends, 1);
    assert_int_equal(owner.status, STATUS_RESOURCE_EXHAUSTED);
    assert_string_equal(owner.text, "too slow");
    take(&owner, WINDOW_PIECES);
    owner_fini(&owner);
}

TEST_CASE(test_end_without_waiting)
{
    struct owner owner;
    owner_init(&owner);
    assert_false(mesh_pieces_has_begun(owner.pieces));
    assert_int_equal(put(&owner, 0), STATUS_OK);
    assert_true(mesh_pieces_has_begun(owner.pieces));
    assert_false(end(&owner, STATUS_OK, "", 1)); /* its user reports it */
    assert_int_equal(owner.ends, 0);
    owner_fini(&owner);
}

static enum status
put_large(struct owner *owner, uint64_t unread_max)
{
    static const unsigned char large[1 << 20];
    const struct rpc_piece piece = {.data = large, .bytes = sizeof(large)};
    return mesh_pieces_put(owner->pieces, &piece, 1, unread_max);
}

TEST_CASE(test_all_of_the_node_hold_so_much)
{
    struct owner owner[3];
    uint64_t most = 0;
    for (int i = 0; i < 3; i++) {
        owner_init(&owner[i]);
        for (uint64_t number = 0; number < WINDOW_PIECES; number++)
            assert_int_equal(put(&owner[i], number), STATUS_OK);
    }
    while (most <= MESH_PIECES_HELD_MAX >> 20 &&
           put_large(&owner[0], MESH_PIECES_HELD_MAX) == STATUS_OK)
        most++;
    assert_int_equal(most, (MESH_PIECES_HELD_MAX >> 20) - 1); /* each costs more than its bytes */
    assert_int_equal(put_large(&owner[1], MESH_PIECES_HELD_MAX), STATUS_OK); /* one in any case */
    assert_false(mesh_pieces_is_full(owner[1].pieces));
    assert_int_equal(put_large(&owner[1], MESH_PIECES_HELD_MAX), STATUS_RESOURCE_EXHAUSTED);
    assert_true(mesh_pieces_is_full(owner[1].pieces));
    assert_int_equal(put_large(&owner[1], MESH_PIECES_HELD_MAX + ((uint64_t)2 << 20)), STATUS_OK);
    assert_true(end(&owner[1], STATUS_OK, "", 0)); /* nor is there room for its message */
    mesh_pieces_cancel(&owner[1].request);
    assert_int_equal(owner[1].status, STATUS_RESOURCE_EXHAUSTED);
    assert_string_equal(owner[1].text, MESH_PIECES_CROWDED);
    mesh_pieces_cancel(&owner[0].request);
    assert_int_equal(put_large(&owner[2], MESH_PIECES_HELD_MAX), STATUS_OK);
    assert_int_equal(put_large(&owner[2], MESH_PIECES_HELD_MAX), STATUS_OK);
    assert_true(end(&owner[2], STATUS_OK, "", 7));
    mesh_pieces_cancel(&owner[2].request);
    assert_int_equal(owner[2].last, 7);
    for (int i = 0; i < 3; i++)
        owner_fini(&owner[i]);
}

TEST_CASE(test_caller_goes)
{
    for (int is_over = 0; is_over < 2; is_over++) {
        struct owner owner;
        owner_init(&owner);
        for (uint64_t i = 0; i <= WINDOW_PIECES; i++)
            assert_int_equal(put(&owner, i), STATUS_OK);
        if (is_over)
            assert_true(end(&owner, STATUS_OK, "", 7));
        mesh_pieces_cancel(&owner.request);
        assert_int_equal(owner.ends, is_over); /* what waited is dropped, but the end is reported */
        assert_int_equal(put(&owner, 0), STATUS_CANCELLED);
        if (!is_over)
            assert_false(end(&owner, STATUS_CANCELLED, "", 0));
        assert_int_equal(atomic_load(&owner.came), WINDOW_PIECES);
        owner_fini(&owner);
    }
}

static void *
read_all(void *context)
{
    struct owner *owner = context;
    for (uint64_t taken = 0; taken < PIECES;) {
        uint64_t there = atomic_load(&owner->came) - taken;
        assert_true(there <= WINDOW_PIECES);
        if (there == 0)
            sched_yield();
        take(owner, (unsigned)there);
        taken += there;
    }
    return NULL;
}

TEST_CASE(test_two_threads)
{
    struct owner owner;
    pthread_t reader;
    owner_init(&owner);
    assert_int_equal(pthread_create(&reader, NULL, read_all, &owner), 0);
    for (uint64_t i = 0; i < PIECES;) {
        enum status status = put(&owner, i);
        assert_true(status == STATUS_OK || status == STATUS_RESOURCE_EXHAUSTED);
        i += status == STATUS_OK;
        if (status != STATUS_OK)
            sched_yield();
    }
    bool waits = end(&owner, STATUS_OK, "", PIECES);
    assert_int_equal(pthread_join(reader, NULL), 0);
    assert_int_equal(atomic_load(&owner.came), PIECES);
    assert_int_equal(owner.ends, waits);
    if (waits)
        assert_int_equal(owner.last, PIECES);
    owner_fini(&owner);
}

TEST_MAIN()
