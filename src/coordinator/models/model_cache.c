/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/models/model_cache.h"

#include <stddef.h>

#include "base/check.h"

/* ---- lists ---- */

static void
list_init(struct model_cache_link *list)
{
    list->prev = list->next = list;
}

static void
list_append(struct model_cache_link *list, struct model_cache_link *link)
{
    CHECK(link->next == NULL);
    link->prev = list->prev;
    link->next = list;
    list->prev->next = link;
    list->prev = link;
}

static void
list_remove(struct model_cache_link *link)
{
    CHECK(link->next != NULL);
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->prev = link->next = NULL;
}

static struct model_cache_entry *
place_of(const struct model_cache_link *link)
{
    return (struct model_cache_entry *)(void *)((char *)(uintptr_t)link -
                                                offsetof(struct model_cache_entry, link));
}

void
model_cache_init(struct model_cache *cache, uint64_t capacity_bytes, uint32_t loads_max,
                 uint32_t held_max)
{
    *cache = (struct model_cache){
        .capacity_bytes = capacity_bytes, .loads_max = loads_max, .held_max = held_max};
    list_init(&cache->by_use);
    for (int demand = 0; demand < MODEL_CACHE_DEMANDS; demand++)
        list_init(&cache->queues[demand]);
}

void
model_cache_touch(struct model_cache *cache, struct model_cache_entry *place, int64_t now_ns)
{
    place->used_ns = now_ns;
    if (place->state != MODEL_IS_LOADED || cache->by_use.prev == &place->link)
        return;
    list_remove(&place->link);
    list_append(&cache->by_use, &place->link);
}

struct model_cache_entry *
model_cache_used_before(const struct model_cache *cache, const struct model_cache_entry *place)
{
    const struct model_cache_link *link = place == NULL ? cache->by_use.prev : place->link.prev;
    return link == &cache->by_use ? NULL : place_of(link);
}

/* ---- the queue ---- */

void
model_cache_queue(struct model_cache *cache, struct model_cache_entry *place,
                  enum model_cache_demand demand)
{
    if (place->begun && place->demand < demand)
        place->demand = demand;
    if (place->begun || (place->queued && place->demand >= demand))
        return;
    if (place->queued)
        list_remove(&place->link);
    else
        CHECK(place->state == MODEL_IS_KNOWN || place->state == MODEL_IS_FAILED);
    CHECK(!place->reserved);
    place->state = MODEL_IS_LOADING;
    place->queued = true;
    place->demand = demand;
    list_append(&cache->queues[demand], &place->link);
}

static struct model_cache_entry *
first_queued(const struct model_cache *cache, enum model_cache_demand demand)
{
    const struct model_cache_link *list = &cache->queues[demand];
    return list->next == list ? NULL : place_of(list->next);
}

struct model_cache_entry *
model_cache_preload(const struct model_cache *cache)
{
    return first_queued(cache, MODEL_CACHE_PRELOAD);
}

void
model_cache_drop(struct model_cache *cache, struct model_cache_entry *place)
{
    (void)cache;
    CHECK(place->queued);
    list_remove(&place->link);
    place->queued = false;
    place->state = MODEL_IS_KNOWN;
}

struct model_cache_entry *
model_cache_next(struct model_cache *cache)
{
    if (cache->loads >= cache->loads_max || cache->asides >= MODEL_CACHE_ASIDES_MAX)
        return NULL;
    struct model_cache_entry *place = NULL;
    for (int demand = MODEL_CACHE_DEMANDS; place == NULL && demand-- > 0;)
        place = first_queued(cache, demand);
    if (place == NULL)
        return NULL;
    list_remove(&place->link);
    place->queued = false;
    place->begun = true;
    cache->loads++;
    return place;
}

void
model_cache_step_aside(struct model_cache *cache, struct model_cache_entry *place)
{
    CHECK(place->begun && !place->aside && cache->loads > 0);
    cache->loads--;
    cache->asides++;
    place->aside = true;
}

bool
model_cache_step_back(struct model_cache *cache, struct model_cache_entry *place)
{
    CHECK(place->begun && place->aside && cache->asides > 0);
    if (cache->loads >= cache->loads_max)
        return false;
    cache->asides--;
    cache->loads++;
    place->aside = false;
    return true;
}

/* ---- the budget ---- */

static bool
fits(const struct model_cache *cache, uint64_t used_bytes, uint32_t held, uint64_t bytes)
{
    return held < cache->held_max && used_bytes <= cache->capacity_bytes &&
           bytes <= cache->capacity_bytes - used_bytes;
}

static struct model_cache_entry *
least_used(const struct model_cache *cache, const struct model_cache_entry *spared)
{
    for (const struct model_cache_link *link = cache->by_use.next; link != &cache->by_use;
         link = link->next) {
        struct model_cache_entry *place = place_of(link);
        if (place != spared && !place->ordered && place->users == 0)
            return place;
    }
    return NULL;
}

uint64_t
model_cache_ordered_bytes(const struct model_cache *cache)
{
    uint64_t bytes = 0;
    for (const struct model_cache_link *link = cache->by_use.next; link != &cache->by_use;
         link = link->next)
        bytes += place_of(link)->ordered ? place_of(link)->bytes : 0;
    return bytes;
}

enum model_cache_room
model_cache_reserve(struct model_cache *cache, struct model_cache_entry *place, uint64_t bytes,
                    struct model_cache_entry **victim)
{
    CHECK(place->begun && place->state == MODEL_IS_LOADING && !place->reserved);
    *victim = NULL;
    if (fits(cache, cache->used_bytes, cache->held, bytes)) {
        place->bytes = bytes;
        place->reserved = true;
        cache->used_bytes += bytes;
        cache->held++;
        CHECK(cache->used_bytes <= cache->capacity_bytes && cache->held <= cache->held_max);
        return ROOM_RESERVED;
    }
    if (place->demand == MODEL_CACHE_PRELOAD)
        return ROOM_NOT_IN_ADVANCE;
    uint64_t staying_bytes = cache->used_bytes - cache->leaving_bytes;
    if (fits(cache, staying_bytes, cache->held - cache->leaving, bytes))
        return ROOM_WAIT;
    if (!fits(cache, model_cache_ordered_bytes(cache), 0, bytes))
        return ROOM_NEVER;
    *victim = least_used(cache, place);
    return *victim != NULL ? ROOM_EVICT : ROOM_WAIT;
}

void
model_cache_resize(struct model_cache *cache, struct model_cache_entry *place, uint64_t bytes)
{
    CHECK(place->reserved && cache->used_bytes >= place->bytes);
    cache->used_bytes = cache->used_bytes - place->bytes + bytes;
    if (place->state == MODEL_IS_UNLOADING || place->state == MODEL_IS_FAILED)
        cache->leaving_bytes = cache->leaving_bytes - place->bytes + bytes;
    place->bytes = bytes;
}

static void
end_load(struct model_cache *cache, struct model_cache_entry *place)
{
    CHECK(!place->begun || (place->aside ? cache->asides : cache->loads) > 0);
    if (place->begun && place->aside)
        cache->asides--;
    else if (place->begun)
        cache->loads--;
    place->begun = place->aside = false;
}

void
model_cache_loaded(struct model_cache *cache, struct model_cache_entry *place, uint64_t bytes,
                   int64_t now_ns)
{
    CHECK(place->state == MODEL_IS_LOADING && place->begun);
    model_cache_resize(cache, place, bytes);
    end_load(cache, place);
    place->state = MODEL_IS_LOADED;
    place->used_ns = now_ns;
    cache->loaded++;
    list_append(&cache->by_use, &place->link);
}

bool
model_cache_excess(struct model_cache *cache, const struct model_cache_entry *spared,
                   struct model_cache_entry **victim)
{
    *victim = NULL;
    if (cache->used_bytes - cache->leaving_bytes <= cache->capacity_bytes)
        return false;
    *victim = least_used(cache, spared);
    return true;
}

/* ---- unloading ---- */

/* Makes the entry's bytes count as about to be free. */
static void
leave(struct model_cache *cache, struct model_cache_entry *place, enum model_state state)
{
    bool loaded = place->state == MODEL_IS_LOADED;
    CHECK(!loaded || (place->reserved && cache->loaded > 0));
    CHECK(loaded || (place->state == MODEL_IS_LOADING && place->begun));
    if (loaded) {
        list_remove(&place->link);
        cache->loaded--;
    }
    if (place->reserved) {
        cache->leaving_bytes += place->bytes;
        cache->leaving++;
    }
    place->state = state;
}

void
model_cache_unload(struct model_cache *cache, struct model_cache_entry *place)
{
    leave(cache, place, MODEL_IS_UNLOADING);
}

void
model_cache_fail(struct model_cache *cache, struct model_cache_entry *place)
{
    leave(cache, place, MODEL_IS_FAILED);
}

void
model_cache_gone(struct model_cache *cache, struct model_cache_entry *place)
{
    CHECK(place->state == MODEL_IS_UNLOADING || place->state == MODEL_IS_FAILED);
    end_load(cache, place);
    if (place->reserved) {
        CHECK(cache->leaving > 0 && cache->leaving <= cache->held);
        CHECK(cache->leaving_bytes >= place->bytes && cache->used_bytes >= cache->leaving_bytes);
        cache->leaving_bytes -= place->bytes;
        cache->used_bytes -= place->bytes;
        cache->leaving--;
        cache->held--;
    }
    place->reserved = false;
    place->bytes = 0;
    if (place->state == MODEL_IS_UNLOADING)
        place->state = MODEL_IS_KNOWN;
}
