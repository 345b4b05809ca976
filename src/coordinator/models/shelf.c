/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/models/shelf.h"

#include <stddef.h>

#include "base/check.h"

/* ---- lists ---- */

static void
list_init(struct shelf_link *list)
{
    list->prev = list->next = list;
}

static void
list_append(struct shelf_link *list, struct shelf_link *link)
{
    CHECK(link->next == NULL);
    link->prev = list->prev;
    link->next = list;
    list->prev->next = link;
    list->prev = link;
}

static void
list_remove(struct shelf_link *link)
{
    CHECK(link->next != NULL);
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->prev = link->next = NULL;
}

static struct shelf_place *
place_of(const struct shelf_link *link)
{
    return (struct shelf_place *)(void *)((char *)(uintptr_t)link -
                                          offsetof(struct shelf_place, link));
}

void
shelf_init(struct shelf *shelf, uint64_t capacity_bytes, uint32_t loads_max, uint32_t held_max)
{
    *shelf = (struct shelf){
        .capacity_bytes = capacity_bytes, .loads_max = loads_max, .held_max = held_max};
    list_init(&shelf->by_use);
    list_init(&shelf->awaited);
    list_init(&shelf->asked);
}

void
shelf_touch(struct shelf *shelf, struct shelf_place *place, int64_t now_ns)
{
    place->used_ns = now_ns;
    if (place->state != MODEL_IS_LOADED || shelf->by_use.prev == &place->link)
        return;
    list_remove(&place->link);
    list_append(&shelf->by_use, &place->link);
}

struct shelf_place *
shelf_used_before(const struct shelf *shelf, const struct shelf_place *place)
{
    const struct shelf_link *link = place == NULL ? shelf->by_use.prev : place->link.prev;
    return link == &shelf->by_use ? NULL : place_of(link);
}

/* ---- the queue ---- */

void
shelf_queue(struct shelf *shelf, struct shelf_place *place, enum shelf_demand demand)
{
    bool awaited = demand == SHELF_AWAITED;
    if (place->queued && (place->awaited || !awaited))
        return;
    if (place->queued)
        list_remove(&place->link);
    else
        CHECK(place->state == MODEL_IS_KNOWN || place->state == MODEL_IS_FAILED);
    CHECK(!place->reserved && !place->begun);
    place->state = MODEL_IS_LOADING;
    place->queued = true;
    place->awaited = awaited;
    list_append(awaited ? &shelf->awaited : &shelf->asked, &place->link);
}

void
shelf_drop(struct shelf *shelf, struct shelf_place *place)
{
    (void)shelf;
    CHECK(place->queued);
    list_remove(&place->link);
    place->queued = false;
    place->state = MODEL_IS_KNOWN;
}

struct shelf_place *
shelf_next(struct shelf *shelf)
{
    struct shelf_link *list =
        shelf->awaited.next != &shelf->awaited ? &shelf->awaited : &shelf->asked;
    if (shelf->loads >= shelf->loads_max || list->next == list)
        return NULL;
    struct shelf_place *place = place_of(list->next);
    list_remove(&place->link);
    place->queued = false;
    place->begun = true;
    shelf->loads++;
    return place;
}

/* ---- the budget ---- */

static bool
fits(const struct shelf *shelf, uint64_t used_bytes, uint32_t held, uint64_t bytes)
{
    return held < shelf->held_max && used_bytes <= shelf->capacity_bytes &&
           bytes <= shelf->capacity_bytes - used_bytes;
}

static struct shelf_place *
least_used(const struct shelf *shelf, const struct shelf_place *spared)
{
    for (const struct shelf_link *link = shelf->by_use.next; link != &shelf->by_use;
         link = link->next) {
        struct shelf_place *place = place_of(link);
        if (place != spared && !place->ordered && place->users == 0)
            return place;
    }
    return NULL;
}

uint64_t
shelf_ordered_bytes(const struct shelf *shelf)
{
    uint64_t bytes = 0;
    for (const struct shelf_link *link = shelf->by_use.next; link != &shelf->by_use;
         link = link->next)
        bytes += place_of(link)->ordered ? place_of(link)->bytes : 0;
    return bytes;
}

enum shelf_room
shelf_reserve(struct shelf *shelf, struct shelf_place *place, uint64_t bytes,
              struct shelf_place **victim)
{
    CHECK(place->begun && place->state == MODEL_IS_LOADING && !place->reserved);
    *victim = NULL;
    if (fits(shelf, shelf->used_bytes, shelf->held, bytes)) {
        place->bytes = bytes;
        place->reserved = true;
        shelf->used_bytes += bytes;
        shelf->held++;
        return ROOM_RESERVED;
    }
    uint64_t staying_bytes = shelf->used_bytes - shelf->leaving_bytes;
    if (fits(shelf, staying_bytes, shelf->held - shelf->leaving, bytes))
        return ROOM_WAIT;
    if (!fits(shelf, shelf_ordered_bytes(shelf), 0, bytes))
        return ROOM_NEVER;
    *victim = least_used(shelf, place);
    return *victim != NULL ? ROOM_EVICT : ROOM_WAIT;
}

void
shelf_resize(struct shelf *shelf, struct shelf_place *place, uint64_t bytes)
{
    CHECK(place->reserved);
    shelf->used_bytes = shelf->used_bytes - place->bytes + bytes;
    if (place->state == MODEL_IS_UNLOADING || place->state == MODEL_IS_FAILED)
        shelf->leaving_bytes = shelf->leaving_bytes - place->bytes + bytes;
    place->bytes = bytes;
}

static void
end_load(struct shelf *shelf, struct shelf_place *place)
{
    if (place->begun)
        shelf->loads--;
    place->begun = false;
}

void
shelf_loaded(struct shelf *shelf, struct shelf_place *place, uint64_t bytes, int64_t now_ns)
{
    CHECK(place->state == MODEL_IS_LOADING && place->begun);
    shelf_resize(shelf, place, bytes);
    end_load(shelf, place);
    place->state = MODEL_IS_LOADED;
    place->used_ns = now_ns;
    shelf->loaded++;
    list_append(&shelf->by_use, &place->link);
}

bool
shelf_excess(struct shelf *shelf, const struct shelf_place *spared, struct shelf_place **victim)
{
    *victim = NULL;
    if (shelf->used_bytes - shelf->leaving_bytes <= shelf->capacity_bytes)
        return false;
    *victim = least_used(shelf, spared);
    return true;
}

/* ---- unloading ---- */

/* From here on its bytes are about to be free. */
static void
leave(struct shelf *shelf, struct shelf_place *place, enum model_state state)
{
    bool loaded = place->state == MODEL_IS_LOADED;
    CHECK(loaded || (place->state == MODEL_IS_LOADING && place->begun));
    if (loaded) {
        list_remove(&place->link);
        shelf->loaded--;
    }
    if (place->reserved) {
        shelf->leaving_bytes += place->bytes;
        shelf->leaving++;
    }
    place->state = state;
}

void
shelf_unload(struct shelf *shelf, struct shelf_place *place)
{
    leave(shelf, place, MODEL_IS_UNLOADING);
}

void
shelf_fail(struct shelf *shelf, struct shelf_place *place)
{
    leave(shelf, place, MODEL_IS_FAILED);
}

void
shelf_gone(struct shelf *shelf, struct shelf_place *place)
{
    CHECK(place->state == MODEL_IS_UNLOADING || place->state == MODEL_IS_FAILED);
    end_load(shelf, place);
    if (place->reserved) {
        shelf->leaving_bytes -= place->bytes;
        shelf->used_bytes -= place->bytes;
        shelf->leaving--;
        shelf->held--;
    }
    place->reserved = false;
    place->bytes = 0;
    if (place->state == MODEL_IS_UNLOADING)
        place->state = MODEL_IS_KNOWN;
}
