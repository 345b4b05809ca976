/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/pipeline/audit.h"

#include <stdlib.h>

#include "base/check.h"
#include "coordinator/pipeline/lane.h"
#include "coordinator/pipeline/pipeline.h"
#include "shm/arena.h"
#include "shm/former.h"
#include "shm/ring.h"

/* An object's word, and when it was first seen with this value. */
struct audit_watched {
    uint64_t word;
    int64_t since_ns;
    uint32_t met_in; /* the last look in which a popper would have met it */
    bool suspected;  /* the last look found it lost */
};

/* The process in a place, as seen at this look and at the previous one. */
struct watched_worker {
    struct shm_worker *worker; /* NULL: none */
    uint32_t stage;
    uint16_t owner;
    int64_t beat_ns;        /* its sign of life */
    int64_t beat_before_ns; /* at the previous look; 0: it was not there */
};

struct audit {
    uint32_t look_number;
    int64_t next_ns;
    uint64_t heads[STAGES_MAX];        /* of the stages' rings */
    int64_t head_since_ns[STAGES_MAX]; /* when the head was first seen there */
    struct watched_worker workers[WORKERS_MAX];
    uint16_t worker_of_owner[OWNER_MAX + 1]; /* index into workers, plus one; 0: none */
    struct audit_watched *slots;
    struct audit_watched *blocks;
};

/* One look at one lane. */
struct audit_look {
    struct audit *audit;
    const struct lane *lane;
    int64_t now_ns;
    bool awaken; /* something has waited at a stage for long */
};

struct audit *
audit_create(uint32_t slot_count, uint32_t block_count)
{
    struct audit *audit = calloc(1, sizeof(*audit));
    CHECK(audit != NULL);
    audit->slots = calloc(slot_count, sizeof(*audit->slots));
    audit->blocks = calloc(block_count, sizeof(*audit->blocks));
    CHECK(audit->slots != NULL && audit->blocks != NULL);
    return audit;
}

void
audit_destroy(struct audit *audit)
{
    free(audit->slots);
    free(audit->blocks);
    free(audit);
}

/* Returns whether the word has been the same for AUDIT_STILL_NS. */
static bool
is_still(struct audit_watched *watched, uint64_t word, int64_t now_ns)
{
    if (word == watched->word)
        return now_ns - watched->since_ns >= AUDIT_STILL_NS;
    watched->word = word;
    watched->since_ns = now_ns;
    return false;
}

/* ---- what is there ---- */

/* The objects of one ring that a popper would accept. */
struct audit_walk {
    struct audit_look *look;
    const struct shm_objects *objects;
    struct audit_watched *watched;
    uint8_t place;
};

static void
note_met(void *context, uint64_t cell)
{
    const struct audit_walk *walk = context;
    uint32_t index = cell_index(cell);
    if (index >= walk->objects->count)
        return;
    struct shm_word word = word_unpack(atomic_load(object_word(walk->objects, index)));
    if (!word.held && word.place == walk->place && cell_names(cell, index, word))
        walk->watched[index].met_in = walk->look->audit->look_number;
}

static void
walk_ring(struct audit_look *look, struct shm_ring ring, const struct shm_objects *objects,
          struct audit_watched *watched)
{
    struct audit_walk walk = {look, objects, watched, ring.place};
    ring_visit(&ring, note_met, &walk);
}

static void
see_worker(struct audit_look *look, struct watched_worker *seen, struct shm_worker *worker,
           uint32_t stage, uint16_t owner)
{
    struct audit *audit = look->audit;
    bool same = seen->worker != NULL && worker != NULL && seen->owner == owner;
    audit->worker_of_owner[seen->owner] = 0;
    seen->worker = worker;
    seen->stage = stage;
    seen->beat_before_ns = same ? seen->beat_ns : 0;
    if (worker == NULL)
        return;
    seen->owner = owner;
    seen->beat_ns = atomic_load_explicit(&worker->heartbeat_ns, memory_order_relaxed);
    audit->worker_of_owner[owner] = (uint16_t)(seen - audit->workers + 1);
}

static void
see_workers(struct audit_look *look, const struct audit_workers *workers)
{
    const struct region_layout *layout = &look->lane->region.layout;
    for (uint32_t stage = 0; stage < layout->plan.stage_count; stage++) {
        for (uint32_t i = 0; i < layout->plan.worker_counts[stage]; i++) {
            uint16_t owner = OWNER_NONE;
            struct shm_worker *worker = workers->member(workers->context, stage, i, &owner);
            see_worker(look, &look->audit->workers[layout->first_worker[stage] + i], worker, stage,
                       owner);
        }
    }
}

static void
see_heads(struct audit_look *look)
{
    const struct region *region = &look->lane->region;
    for (uint32_t stage = 0; stage < region->layout.plan.stage_count; stage++) {
        struct shm_ring ring = region_slot_ring(region, (uint8_t)stage);
        uint64_t head = atomic_load_explicit(&ring.shared->head, memory_order_relaxed);
        if (head == look->audit->heads[stage])
            continue;
        look->audit->heads[stage] = head;
        look->audit->head_since_ns[stage] = look->now_ns;
    }
}

/* NULL: no such owner. */
static const struct watched_worker *
worker_of(const struct audit_look *look, uint16_t owner)
{
    uint32_t number = look->audit->worker_of_owner[owner];
    return number == 0 ? NULL : &look->audit->workers[number - 1];
}

/* Returns whether a whole turn of the worker's loop lies between `since_ns` and now. */
static bool
has_turned(const struct watched_worker *seen, int64_t since_ns)
{
    return seen->beat_before_ns > since_ns && seen->beat_ns > seen->beat_before_ns;
}

static bool
all_have_turned(const struct audit_look *look, uint32_t stage, int64_t since_ns)
{
    const struct region_layout *layout = &look->lane->region.layout;
    uint32_t count = 0;
    for (uint32_t i = 0; i < layout->plan.worker_counts[stage]; i++) {
        const struct watched_worker *seen = &look->audit->workers[layout->first_worker[stage] + i];
        if (seen->worker == NULL)
            continue;
        if (!has_turned(seen, since_ns))
            return false;
        count++;
    }
    return count > 0;
}

/* ---- rules ---- */

static bool
would_be_met(const struct audit_look *look, const struct audit_watched *watched)
{
    return watched->met_in == look->audit->look_number;
}

/* Rule 1, for an object that no reader would meet. Its pusher may have been stopped before it
 * filled the cell. */
static const char *
judge_unmet(const struct audit_look *look, struct shm_word word,
            const struct audit_watched *watched)
{
    const struct watched_worker *pusher = worker_of(look, word.owner);
    if (pusher != NULL && !has_turned(pusher, watched->since_ns))
        return NULL;
    return "an entry waits in a ring where no reader would find it";
}

/* Rule 5, for a request that a popper would meet. */
static const char *
judge_ignored(struct audit_look *look, uint8_t place, int64_t since_ns)
{
    if (place >= look->lane->region.layout.plan.stage_count)
        return "an answer waits, and the coordinator does not find it";
    look->awaken = true;
    int64_t head_since_ns = look->audit->head_since_ns[place];
    if (since_ns < head_since_ns)
        since_ns = head_since_ns;
    return all_have_turned(look, place, since_ns)
               ? "a request waits, and idle workers do not find it"
               : NULL;
}

/* Rules 3 and 4, for a slot in flight. */
static const char *
judge_held(const struct audit_look *look, struct shm_word word, int64_t since_ns)
{
    const struct watched_worker *worker = worker_of(look, word.owner);
    if (worker == NULL || worker->stage != word.place)
        return "a request is held by an owner that does not exist";
    int64_t wait_ns = look->lane->generation->config->stages[worker->stage].batch_wait_ns;
    return has_turned(worker, since_ns + wait_ns) ? "a request is held by a worker that idles"
                                                  : NULL;
}

static const char *
judge_slot(struct audit_look *look, uint64_t use, const struct audit_watched *watched)
{
    struct shm_word word = word_unpack(watched->word);
    enum request_state state = use_state(use);
    if (state == REQUEST_ADMITTED || state == REQUEST_ANSWERED)
        return NULL; /* ours; its release will show it */
    if (state == REQUEST_WAITING)
        return word.held && word.owner == OWNER_COORDINATOR &&
                       word.generation == use_generation(use)
                   ? NULL
                   : "a request that waits for its model is not held by the coordinator";
    bool in_flight = state == REQUEST_IN_FLIGHT;
    if (in_flight && word.generation != use_generation(use))
        return "the generation of a request in flight has changed";
    if (word.held)
        return in_flight ? judge_held(look, word, watched->since_ns) : "a free slot is held";
    if (in_flight == (word.place == PLACE_FREE) ||
        !region_place_exists(&look->lane->region, word.place))
        return "a slot waits in an impossible place";
    if (!would_be_met(look, watched))
        return judge_unmet(look, word, watched);
    return in_flight ? judge_ignored(look, word.place, watched->since_ns) : NULL;
}

/* Rule 2, for a block that a slot or the coordinator holds. */
static const char *
judge_held_block(const struct lane *lane, uint32_t index, struct shm_word word, int64_t since_ns)
{
    if (word.owner == OWNER_KEEPER)
        return arena_keeps(&lane->region, index)
                   ? NULL
                   : "a block is kept by an owner that does not exist";
    if (word.owner >= lane->region.slots.count)
        return "a block is held by no request";
    const struct request *request = &lane->requests[word.owner];
    if (use_state(atomic_load(&request->use)) == REQUEST_NONE)
        return "a block is held by no request";
    /* a slot acquires its blocks after it arrived; a look may last a while */
    int64_t arrived_ns = atomic_load_explicit(&request->arrived_ns, memory_order_relaxed);
    return since_ns + AUDIT_EVERY_NS < arrived_ns ? "a block is held by a request that is over"
                                                  : NULL;
}

/* A piece waits for the coordinator, or is held by the thread that passes it on. */
static const char *
judge_piece(const struct audit_look *look, uint32_t index, struct shm_word word,
            const struct audit_watched *watched)
{
    const struct lane *lane = look->lane;
    if (word.held)
        return atomic_load(&lane->piece_in_hand) == index + 1 ? NULL : "a piece is held by nobody";
    if (lane->region.layout.plan.pieces == 0 || !would_be_met(look, watched))
        return judge_unmet(look, word, watched);
    return "a piece waits, and the coordinator does not find it";
}

static const char *
judge_block(const struct audit_look *look, uint32_t index, const struct audit_watched *watched)
{
    const struct lane *lane = look->lane;
    struct shm_word word = word_unpack(watched->word);
    if (word.place == PLACE_PIECE)
        return judge_piece(look, index, word, watched);
    if (word.held)
        return judge_held_block(lane, index, word, watched->since_ns);
    if (word.place != arena_class_of(&lane->region.layout, index))
        return "a block waits among those of another size";
    return would_be_met(look, watched) ? NULL : judge_unmet(look, word, watched);
}

/* ---- the look ---- */

/* A fault seen once may be a request that moved between two of our loads. */
static const char *
confirm(struct audit_watched *watched, const char *found)
{
    bool before = watched->suspected;
    watched->suspected = found != NULL;
    return before ? found : NULL;
}

static const char *
look_at_slots(struct audit_look *look)
{
    struct audit *audit = look->audit;
    const struct region *region = &look->lane->region;
    for (uint32_t place = 0; place <= PLACE_FREE; place++)
        if (region_place_exists(region, (uint8_t)place))
            walk_ring(look, region_slot_ring(region, (uint8_t)place), &region->slots, audit->slots);
    for (uint32_t i = 0; i < region->slots.count; i++) {
        /* in this order: an unchanged word was this word when the use was read */
        uint64_t use = atomic_load(&look->lane->requests[i].use);
        uint64_t seen = atomic_load(object_word(&region->slots, i));
        struct audit_watched *watched = &audit->slots[i];
        const char *found = NULL;
        if (is_still(watched, seen, look->now_ns))
            found = judge_slot(look, use, watched);
        if ((found = confirm(watched, found)) != NULL)
            return found;
    }
    return NULL;
}

static const char *
look_at_blocks(struct audit_look *look)
{
    struct audit *audit = look->audit;
    const struct region *region = &look->lane->region;
    for (uint32_t n = 0; n < region->layout.plan.class_count; n++)
        walk_ring(look, region_class_ring(region, n), &region->blocks, audit->blocks);
    if (region->layout.plan.pieces != 0)
        walk_ring(look, region_piece_ring(region), &region->blocks, audit->blocks);
    for (uint32_t i = 0; i < region->blocks.count; i++) {
        uint64_t seen = atomic_load(object_word(&region->blocks, i));
        struct audit_watched *watched = &audit->blocks[i];
        const char *found = NULL;
        if (is_still(watched, seen, look->now_ns))
            found = judge_block(look, i, watched);
        if ((found = confirm(watched, found)) != NULL)
            return found;
    }
    return NULL;
}

const char *
audit_look(struct audit *audit, const struct lane *lane, const struct audit_workers *workers,
           int64_t now_ns)
{
    if (now_ns < audit->next_ns)
        return NULL;
    audit->next_ns = now_ns + AUDIT_EVERY_NS;
    audit->look_number++;
    struct audit_look look = {.audit = audit, .lane = lane, .now_ns = now_ns};
    see_workers(&look, workers);
    see_heads(&look);
    const char *found = look_at_slots(&look);
    if (found == NULL)
        found = look_at_blocks(&look);
    if (look.awaken)
        stages_awaken(&lane->region);
    return found;
}
