/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lifetime of a call for several models. It belongs to itself until it has begun all its parts
 * and all have ended (`open` counts both), and it holds its parts as long, so that they can be
 * cancelled. A part ends once and does not touch this call afterwards.
 *
 * The first part that fails answers the caller at once, on whichever thread it fails, possibly with
 * the runner's lock held. The others are cancelled by the loop thread, or by the thread that is
 * still beginning them (that one sets `begun`, then reads `answered`; the failing one sets
 * `answered`, then reads `begun`: one of the two sees the other).
 */
#include "coordinator/mesh/mesh_many.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/telemetry/meters.h"
#include "coordinator/telemetry/tracer.h"
#include "ipc/counters.h"
#include "loop/loop.h"
#include "mesh/edge/peer_flow.h"

enum { TEXT_BYTES_MAX = 1024 };

struct many_entries {
    struct rpc_metadata *at; /* their texts are in the same block */
    size_t count;
};

/* The part of one model: its answer, kept until all have answered. */
struct many_part {
    struct mesh_call *call; /* a reference of ours */
    bool answered;          /* with STATUS_OK */
    struct rpc_piece *pieces;
    size_t piece_count;
    struct many_entries initial;
    struct many_entries trailers;
};

struct mesh_many {
    struct pending_item item; /* first */
    const struct mesh_calls_options *options;
    const struct inbound_type *type; /* by which `call`, the caller's, is answered */
    void *call;
    struct meters_call reported; /* of the call, before it ends */
    int64_t begun_ns;
    bool all; /* each must be found: "mm-required" */
    uint32_t count;
    _Atomic uint32_t open; /* parts that have not ended, plus 1 until all have begun */
    _Atomic bool begun;
    _Atomic bool answered;
    _Atomic uint64_t bytes; /* of the answers */
    struct many_part parts[];
};

static struct mesh_many *
many_of_item(struct pending_item *item)
{
    return (struct mesh_many *)(void *)item;
}

/* ---- what a part has answered ---- */

/* Kept pieces by reference. Others are copied: a lent piece is a slot's memory, which requests wait
 * for, and another model's load may take minutes. */
static struct rpc_piece
piece_hold(const struct rpc_piece *piece)
{
    if (piece->kept != NULL) {
        rpc_kept_acquire((struct rpc_kept *)(uintptr_t)piece->kept);
        return *piece;
    }
    void *copy = malloc(piece->bytes + 1);
    CHECK(copy != NULL);
    if (piece->bytes > 0)
        memcpy(copy, piece->data, piece->bytes);
    rpc_pieces_release(piece, 1);
    return (struct rpc_piece){
        .data = copy, .bytes = piece->bytes, .release = free, .release_context = copy};
}

static void
part_hold(struct many_part *part, const struct rpc_answer *answer)
{
    CHECK(!part->answered);
    part->answered = true;
    part->pieces = calloc(answer->piece_count + 1, sizeof(*part->pieces));
    CHECK(part->pieces != NULL);
    for (size_t i = 0; i < answer->piece_count; i++)
        part->pieces[part->piece_count++] = piece_hold(&answer->pieces[i]);
    part->initial = (struct many_entries){rpc_metadata_copy(answer->initial, answer->initial_count),
                                          answer->initial_count};
    part->trailers = (struct many_entries){
        rpc_metadata_copy(answer->trailers, answer->trailer_count), answer->trailer_count};
}

static void
part_fini(struct many_part *part)
{
    for (size_t i = 0; i < part->piece_count; i++) {
        rpc_pieces_release(&part->pieces[i], 1);
        rpc_kept_release((struct rpc_kept *)(uintptr_t)part->pieces[i].kept);
    }
    free(part->pieces);
    free(part->initial.at);
    free(part->trailers.at);
    if (part->call != NULL)
        mesh_call_unref(part->call);
}

/* ---- the end ---- */

static void
many_destroy(struct pending_item *item)
{
    struct mesh_many *many = many_of_item(item);
    CHECK(atomic_load(&many->answered));
    for (uint32_t i = 0; i < many->count; i++)
        part_fini(&many->parts[i]);
    free(many);
}

static void
cancel_parts(struct mesh_many *many)
{
    for (uint32_t i = 0; i < many->count; i++)
        mesh_call_cancel(many->parts[i].call);
}

static void
on_cancel_parts(void *context)
{
    struct mesh_many *many = context;
    cancel_parts(many);
    pending_unref(&many->item);
}

static void
meter(const struct mesh_many *many, enum status status, uint64_t response_bytes)
{
    struct meters_call reported = many->reported;
    reported.status = status;
    reported.took_ns = clock_now_ns() - many->begun_ns;
    reported.response_bytes = response_bytes;
    meters_record(many->options->meters, METER_REQUEST, &reported);
}

static void
fail(struct mesh_many *many, enum status status, const char *text, uint32_t retry_ms)
{
    if (atomic_exchange(&many->answered, true))
        return;
    counter_add_shared(many->options->counters, NODE_CALLS_REFUSED, 1);
    meter(many, status, 0);
    many->type->refuse(many->call, status, text, retry_ms);
    if (!atomic_load(&many->begun))
        return;
    pending_ref(&many->item);
    loop_post(many->options->loop, on_cancel_parts, many);
}

/* Fails with the text of the failed call, which may be empty (a deadline, a cancelled call). */
static void
fail_as(struct mesh_many *many, const struct rpc_answer *answer, uint32_t retry_ms)
{
    char text[TEXT_BYTES_MAX];
    int bytes = answer->text.bytes < TEXT_BYTES_MAX ? (int)answer->text.bytes : TEXT_BYTES_MAX;
    snprintf(text, sizeof(text), "%.*s", bytes, bytes > 0 ? (const char *)answer->text.data : "");
    fail(many, answer->status, bytes > 0 ? text : NULL, retry_ms);
}

/* The most entries of a kind that may go with an answer. */
static size_t
entries_append(struct rpc_metadata to[PEERS_METADATA_MAX], size_t count,
               const struct many_entries *entries)
{
    for (size_t i = 0; i < entries->count && count < PEERS_METADATA_MAX; i++)
        to[count++] = entries->at[i];
    return count;
}

/* The lent pieces of all parts are the library's from here on. */
static void
reply(struct mesh_many *many)
{
    struct rpc_metadata initial[PEERS_METADATA_MAX];
    struct rpc_metadata trailers[PEERS_METADATA_MAX];
    struct rpc_answer answer = {.status = STATUS_OK, .initial = initial, .trailers = trailers};
    size_t room = 1;
    for (uint32_t i = 0; i < many->count; i++)
        room += many->parts[i].piece_count;
    struct rpc_piece *pieces = malloc(room * sizeof(*pieces));
    CHECK(pieces != NULL);
    answer.pieces = pieces;
    for (uint32_t i = 0; i < many->count; i++) {
        struct many_part *part = &many->parts[i];
        for (size_t j = 0; j < part->piece_count; j++) {
            pieces[answer.piece_count++] = part->pieces[j];
            part->pieces[j].release = NULL;
        }
        answer.initial_count = entries_append(initial, answer.initial_count, &part->initial);
        answer.trailer_count = entries_append(trailers, answer.trailer_count, &part->trailers);
    }
    atomic_store(&many->answered, true); /* no other thread is left to do it */
    meter(many, STATUS_OK, atomic_load(&many->bytes));
    many->type->answer(many->call, &answer);
    free(pieces);
}

static bool
is_any_answered(const struct mesh_many *many)
{
    for (uint32_t i = 0; i < many->count; i++)
        if (many->parts[i].answered)
            return true;
    return false;
}

/* Drops one of the counts in `open`. */
static void
close_one(struct mesh_many *many)
{
    if (atomic_fetch_sub(&many->open, 1) != 1)
        return;
    if (!atomic_load(&many->answered) && is_any_answered(many))
        reply(many);
    fail(many, STATUS_NOT_FOUND, "none of the requested models were found", 0); /* if unanswered */
    pending_remove(&many->item);
    pending_unref(&many->item);
}

/* Bounds the answers of one caller that wait here for the others. */
static bool
is_too_much(struct mesh_many *many, uint64_t bytes)
{
    uint64_t all = atomic_fetch_add(&many->bytes, bytes) + bytes;
    if (all <= many->options->message_bytes_max)
        return false;
    char text[TEXT_BYTES_MAX];
    snprintf(text, sizeof(text),
             "the answers of %u models have more than %zu bytes together (message_mib)",
             many->count, many->options->message_bytes_max);
    fail(many, STATUS_RESOURCE_EXHAUSTED, text, 0);
    return true;
}

void
mesh_many_ended(struct mesh_many *many, uint32_t number, const struct rpc_answer *answer,
                uint32_t retry_ms)
{
    struct many_part *part = &many->parts[number];
    bool fine = answer->status == STATUS_OK;
    bool held = fine && !atomic_load(&many->answered) &&
                !is_too_much(many, peer_pieces_bytes(answer->pieces, answer->piece_count));
    if (held)
        part_hold(part, answer);
    else
        rpc_pieces_release(answer->pieces, answer->piece_count);
    if (!fine && (many->all || answer->status != STATUS_NOT_FOUND))
        fail_as(many, answer, retry_ms);
    close_one(many);
}

static void
on_cancel(struct pending_item *item)
{
    cancel_parts(many_of_item(item));
}

/* ---- the beginning ---- */

static bool
is_all_required(const struct inbound *inbound)
{
    struct wire_span value;
    return inbound_metadata(inbound, "mm-required", &value) && value.bytes == 3 &&
           strncasecmp(value.data, "all", 3) == 0;
}

/* Prepares all parts before the first begins: when one has ended the caller's call may be gone. */
static enum status
prepare_parts(struct mesh_many *many, struct mesh_calls *calls, const struct mesh_call_start *start,
              const struct mesh_named *named, struct error *error)
{
    struct mesh_call_start one = *start;
    struct target_id id;
    size_t position = 0;
    one.id = id.text;
    one.name = named->name;
    one.many = many;
    one.kept = rpc_message_keep(inbound_message(start->inbound)); /* once: it may be a copy */
    while (mesh_id_next(start->inbound, named, &position, &id)) {
        one.part = many->count;
        struct mesh_call *call = mesh_call_prepare(calls, &one, error);
        if (call == NULL)
            break;
        many->parts[many->count++].call = call;
        one.origin.trace = NULL; /* one call, one trace: of its first model */
    }
    rpc_kept_release(one.kept);
    return error->status;
}

/* Parts after the first failure need not begin. */
static void
begin_parts(struct mesh_many *many)
{
    for (uint32_t i = 0; i < many->count; i++) {
        if (atomic_load(&many->answered))
            mesh_call_drop(many->parts[i].call);
        else
            mesh_call_go(many->parts[i].call);
    }
    atomic_store(&many->begun, true);
    if (atomic_load(&many->answered))
        cancel_parts(many);
    close_one(many);
}

void
mesh_many_begin(struct mesh_calls *calls, const struct mesh_call_start *start,
                const struct mesh_named *named)
{
    const struct inbound *inbound = start->inbound;
    size_t parts_bytes = named->count * sizeof(struct many_part);
    struct mesh_many *many = calloc(1, sizeof(*many) + parts_bytes); /* one for all its models */
    CHECK(many != NULL && named->count >= 1);
    many->item.on_cancel = on_cancel;
    many->item.destroy = many_destroy;
    many->options = mesh_calls_options(calls);
    many->type = inbound->type;
    many->call = inbound->call;
    many->all = is_all_required(inbound);
    many->begun_ns = clock_now_ns();
    many->reported =
        (struct meters_call){.method = meters_method(many->options->meters, inbound->method),
                             .request_bytes = inbound_message(inbound)->bytes};
    struct error error = ERROR_NONE;
    uint64_t tag = pending_add(many->options->pending, &many->item);
    if (tag == 0)
        (void)error_set(&error, STATUS_RESOURCE_EXHAUSTED,
                        "too many calls of this node wait for models");
    else
        (void)prepare_parts(many, calls, start, named, &error);
    if (error.status == STATUS_OK) {
        atomic_store(&many->open, many->count + 1);
        inbound->type->sink->tagged(inbound->call, tag);
        begin_parts(many);
        return;
    }
    if (start->origin.trace != NULL)
        tracer_end(start->origin.trace, error.status, error.text);
    fail(many, error.status, error.text, 0);
    for (uint32_t i = 0; i < many->count; i++)
        mesh_call_discard(many->parts[i].call);
    if (tag != 0)
        pending_remove(&many->item);
    many_destroy(&many->item);
}
