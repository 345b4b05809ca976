/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/audit.h"

#include <stdlib.h>

#include "base/check.h"
#include "coordinator/lane.h"
#include "coordinator/pipeline.h"
#include "coordinator/roster.h"
#include "shm/arena.h"
#include "shm/former.h"
#include "shm/ring.h"

#define AUDIT_EVERY_NS ((int64_t)NS_PER_S)

/* An object's word, and since when it has been seen unchanged. */
struct watched {
    uint64_t word;
    int64_t since_ns;
    bool named;     /* a cell of the ring where it waits names it */
    bool suspected; /* the last look found it lost */
};

struct audit {
    int64_t next_ns;
    uint64_t heads[STAGES_MAX]; /* of the stages' rings, at the last look */
    struct watched *slots;
    struct watched *blocks;
};

/* One look at one lane. */
struct look {
    const struct lane *lane;
    const struct roster *roster;
    int64_t now_ns;
    bool awaken;                 /* something waits at a stage, and has for long */
    bool head_moved[STAGES_MAX]; /* since the last look something was taken from the stage's ring */
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

/* True if the word has been the same for long. */
static bool
is_still(struct watched *watched, uint64_t word, int64_t now_ns)
{
    if (word == watched->word)
        return now_ns - watched->since_ns >= AUDIT_STILL_NS;
    watched->word = word;
    watched->since_ns = now_ns;
    return false;
}

/* ---- rules ---- */

/* Notes which objects are named by a cell of this ring that a popper would accept. */
static void
note_named(const struct shm_ring *ring, const struct shm_objects *objects, struct watched *watched)
{
    for (uint32_t i = 0; i < ring->cell_count; i++) {
        uint64_t cell = atomic_load(&ring->shared->cells[i]);
        uint32_t index = cell_index(cell);
        if (!cell_is_full(cell) || index >= objects->count)
            continue;
        struct shm_word word = word_unpack(atomic_load(object_word(objects, index)));
        if (!word.held && word.place == ring->place && cell_names(cell, index, word))
            watched[index].named = true;
    }
}

static void
forget_named(struct watched *watched, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        watched[i].named = false;
}

/* True if a worker has looked for work long after `since_ns`: it gives its sign of life then, and
 * never while it runs a batch. */
static bool
has_moved_on(const struct shm_worker *worker, int64_t since_ns)
{
    int64_t heartbeat_ns = atomic_load_explicit(&worker->heartbeat_ns, memory_order_relaxed);
    return heartbeat_ns > since_ns && heartbeat_ns - since_ns >= AUDIT_STILL_NS;
}

/* Rule 1. Who pushed it may have been stopped before it filled the cell. */
static const char *
judge_waiting(const struct look *look, const struct shm_ring *ring, struct shm_word word,
              const struct watched *watched)
{
    uint32_t stage;
    struct shm_worker *pusher = roster_find(look->roster, word.party, &stage);
    if (pusher != NULL && !has_moved_on(pusher, watched->since_ns))
        return NULL;
    if (!ring_has_cell(ring))
        return "something waits in a ring that looks empty";
    return watched->named ? NULL : "something waits in a ring that does not name it";
}

/* Rule 5, of a request that a cell names. */
static const char *
judge_ignored(struct look *look, uint8_t place, int64_t since_ns)
{
    if (place >= look->lane->region.layout.plan.stage_count)
        return "an answer waits, and we do not find it";
    look->awaken = true;
    bool idle = roster_live(look->roster, place) > 0 &&
                roster_all(look->roster, place, has_moved_on, since_ns);
    return idle && !look->head_moved[place] ? "a request waits, and idle workers do not find it"
                                            : NULL;
}

/* Rules 3 and 4, of a slot in flight. */
static const char *
judge_held(const struct look *look, struct shm_word word, int64_t since_ns)
{
    uint32_t stage;
    struct shm_worker *worker = roster_find(look->roster, word.party, &stage);
    if (worker == NULL || stage != word.place)
        return "a request is held by nobody";
    int64_t wait_ns = look->lane->pipeline->options.pipeline->stages[stage].batch_wait_ns;
    return has_moved_on(worker, since_ns + wait_ns) ? "a request is held by a worker that idles"
                                                    : NULL;
}

static const char *
judge_slot(struct look *look, uint32_t index, uint32_t state, const struct watched *watched)
{
    struct shm_word word = word_unpack(watched->word);
    const struct region *region = &look->lane->region;
    const struct request *request = &look->lane->requests[index];
    if (state == REQUEST_ADMITTED || state == REQUEST_ANSWERED)
        return NULL; /* ours; its release will tell */
    bool in_flight = state == REQUEST_IN_FLIGHT;
    if (in_flight && word.generation != request->generation)
        return "the generation of a request in flight has changed";
    if (word.held)
        return in_flight ? judge_held(look, word, watched->since_ns) : "a free slot is held";
    if (in_flight == (word.place == PLACE_FREE) || !region_place_exists(region, word.place))
        return "a slot waits where it cannot be";
    struct shm_ring ring = region_slot_ring(region, word.place);
    const char *found = judge_waiting(look, &ring, word, watched);
    if (found == NULL && in_flight)
        found = judge_ignored(look, word.place, watched->since_ns);
    return found;
}

static const char *
judge_block(const struct look *look, uint32_t index, const struct watched *watched)
{
    const struct lane *lane = look->lane;
    struct shm_word word = word_unpack(watched->word);
    if (word.held) {
        bool in_use = word.party < lane->region.slots.count &&
                      atomic_load(&lane->requests[word.party].state) != REQUEST_NONE;
        return in_use ? NULL : "a block is held by no request";
    }
    if (word.place != arena_class_of(&lane->region.layout, index))
        return "a block waits among those of another size";
    struct shm_ring ring = region_class_ring(&lane->region, word.place);
    return judge_waiting(look, &ring, word, watched);
}

/* ---- the look ---- */

/* What is found once may have been in motion between two of our loads. */
static const char *
confirm(struct watched *watched, const char *found)
{
    bool before = watched->suspected;
    watched->suspected = found != NULL;
    return before ? found : NULL;
}

static const char *
look_at_slots(struct audit *audit, struct look *look)
{
    const struct region *region = &look->lane->region;
    forget_named(audit->slots, region->slots.count);
    for (uint32_t place = 0; place <= PLACE_FREE; place++) {
        if (!region_place_exists(region, (uint8_t)place))
            continue;
        struct shm_ring ring = region_slot_ring(region, (uint8_t)place);
        note_named(&ring, &region->slots, audit->slots);
    }
    for (uint32_t i = 0; i < region->slots.count; i++) {
        /* in this order: a word that has not changed was this word when the state was read */
        uint32_t state = atomic_load(&look->lane->requests[i].state);
        uint64_t seen = atomic_load(object_word(&region->slots, i));
        struct watched *watched = &audit->slots[i];
        const char *found = NULL;
        if (is_still(watched, seen, look->now_ns))
            found = judge_slot(look, i, state, watched);
        if ((found = confirm(watched, found)) != NULL)
            return found;
    }
    return NULL;
}

static const char *
look_at_blocks(struct audit *audit, struct look *look)
{
    const struct region *region = &look->lane->region;
    forget_named(audit->blocks, region->blocks.count);
    for (uint32_t n = 0; n < region->layout.plan.class_count; n++) {
        struct shm_ring ring = region_class_ring(region, n);
        note_named(&ring, &region->blocks, audit->blocks);
    }
    for (uint32_t i = 0; i < region->blocks.count; i++) {
        uint64_t seen = atomic_load(object_word(&region->blocks, i));
        struct watched *watched = &audit->blocks[i];
        const char *found = NULL;
        if (is_still(watched, seen, look->now_ns))
            found = judge_block(look, i, watched);
        if ((found = confirm(watched, found)) != NULL)
            return found;
    }
    return NULL;
}

const char *
audit_look(struct audit *audit, const struct lane *lane, const struct roster *roster,
           int64_t now_ns)
{
    if (now_ns < audit->next_ns)
        return NULL;
    audit->next_ns = now_ns + AUDIT_EVERY_NS;
    struct look look = {.lane = lane, .roster = roster, .now_ns = now_ns};
    for (uint32_t s = 0; s < lane->region.layout.plan.stage_count; s++) {
        struct shm_ring ring = region_slot_ring(&lane->region, (uint8_t)s);
        uint64_t head = atomic_load_explicit(&ring.shared->head, memory_order_relaxed);
        look.head_moved[s] = head != audit->heads[s];
        audit->heads[s] = head;
    }
    const char *found = look_at_slots(audit, &look);
    if (found == NULL)
        found = look_at_blocks(audit, &look);
    if (look.awaken)
        stages_awaken(&lane->region);
    return found;
}
