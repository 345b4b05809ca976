/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/core/cluster/place.h"
#include "base/check.h"

#define MINUTE_MS INT64_C(60000)

enum {
    FULL_NEAR_MS = 45000,    /* P4 */
    BUSY_PER_MINUTE = 100,   /* P6: below this no node counts as busy */
    OLD_TIER = 1 << 20,      /* U3: outweighs types_preference */
    YOUNGER_MS = 20 * 60000, /* G4 */
    LOADS_OUT_MAX = 4,       /* R14 */
    LOADS_FEW = 4,           /* P4 */
    LOADS_MANY = 1 << 20,
};

uint64_t
random_next(uint64_t *random)
{
    uint64_t z = *random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

bool
failure_is_fresh(int64_t failed_ms, int64_t wall_ms, int64_t fresh_ms)
{
    return failed_ms > wall_ms - fresh_ms && failed_ms < wall_ms + fresh_ms;
}

static bool
was_futile(const struct place_wish *wish, const struct core_place *place)
{
    for (uint32_t i = 0; i < wish->tried_count; i++)
        if (wish->tried[i].instance == place->instance && wish->tried[i].list == MESH_LIST_HIT &&
            wish->tried[i].since_ms == place->since_ms)
            return true;
    return false;
}

/* P1, except labels and reachability; `again`: R12 at another node. */
static bool
is_free_to_load(const struct tables *tables, const struct place_wish *wish, uint32_t number,
                bool again)
{
    const struct instance *instance = &tables->instances[number];
    if (instance->session == 0 || instance->draining || (wish->not_self && number == INSTANCE_SELF))
        return false;
    for (uint32_t i = 0; i < wish->tried_count; i++)
        if (wish->tried[i].instance == number && wish->tried[i].list != MESH_LIST_HIT)
            return false;
    const struct core_place *place = model_place(wish->model, (uint16_t)number);
    if (place == NULL)
        return true;
    if (place->kind == MESH_PLACE_FAILED)
        return !failure_is_fresh(place->since_ms, wish->wall_ms, wish->fresh_ms);
    return !place_alive(tables, place) || (again && was_futile(wish, place));
}

/* P5: free room minus loads on their way. */
static uint64_t
room_of(const struct instance *instance, const struct core_model *model)
{
    const struct mesh_figures *figures = figures_for(instance, model);
    uint64_t room = figures->full ? 0 : figures->free_units;
    return room > instance->pending_units ? room - instance->pending_units : 0;
}

/* E3, E4 as far as figures show: a full node that would evict for the model. */
static bool
would_evict(const struct instance *instance, const struct place_wish *wish)
{
    const struct mesh_figures *figures = figures_for(instance, wish->model);
    int64_t oldest = figures->oldest_ms;
    if (wish->urgent)
        return figures->copies > 0 && oldest != STAMP_MAX;
    return oldest < wish->wall_ms - wish->churn_ms && oldest < wish->used_ms;
}

/* G4: its oldest model has been unused so much longer that this one deserves its room. */
static bool
would_renew(const struct instance *instance, const struct place_wish *wish)
{
    int64_t oldest_ms = figures_for(instance, wish->model)->oldest_ms;
    int64_t least_ms = (wish->wall_ms - oldest_ms) / 3;
    if (least_ms < YOUNGER_MS)
        least_ms = YOUNGER_MS;
    return instance->renew_units >= wish->preload_units && wish->used_ms - least_ms > oldest_ms &&
           would_evict(instance, wish);
}

/* R14: its pending or recent answers speak for all waiting calls. */
static bool
is_asked(const struct instance *instance, const struct place_wish *wish)
{
    return instance->loads_out >= LOADS_OUT_MAX || instance->refused_until_ms > wish->now_ms;
}

enum offer { OFFER_NONE, OFFER_EVICTS, OFFER_ROOM };

/* P2, P3: whether and how the node would take the model. */
static enum offer
offer_of(const struct instance *instance, const struct place_wish *wish, uint64_t room)
{
    if (wish->preload_units == 0 && room > 0)
        return OFFER_ROOM;
    if (wish->preload_units == 0)
        return !wish->roomy && would_evict(instance, wish) &&
                       !(wish->patient && is_asked(instance, wish))
                   ? OFFER_EVICTS
                   : OFFER_NONE;
    if (instance->preload_ms > wish->paced_ms)
        return OFFER_NONE; /* G5 */
    if (room > 0 && instance->preload_units >= wish->preload_units)
        return OFFER_ROOM; /* G3 */
    return would_renew(instance, wish) ? OFFER_EVICTS : OFFER_NONE;
}

struct place_search {
    uint64_t maybe_spoken_for; /* bit n: P1 must check instances with number % 64 == n */
    const struct tables *tables;
    const struct place_wish *wish;
    const struct type_rule *rule;
    bool last_resort; /* include unreachable nodes and copies tried without success */
};

static uint64_t
bit_of(uint32_t number)
{
    return UINT64_C(1) << number % 64;
}

static uint64_t
spoken_for(const struct place_wish *wish)
{
    uint64_t bits = wish->not_self ? bit_of(INSTANCE_SELF) : 0;
    const struct core_place *places = model_places(wish->model);
    for (uint32_t i = 0; i < wish->model->place_count; i++)
        bits |= bit_of(places[i].instance);
    for (uint32_t i = 0; i < wish->tried_count; i++)
        bits |= bit_of(wish->tried[i].instance);
    return bits;
}

static bool
is_candidate(const struct place_search *search, uint32_t number, struct worth *worth)
{
    const struct instance *instance = &search->tables->instances[number];
    uint64_t room = room_of(instance, search->wish->model);
    if (instance->session == 0 || instance->draining ||
        !types_allow(search->rule, instance->labels))
        return false;
    enum offer offer = offer_of(instance, search->wish, room);
    if (offer == OFFER_NONE)
        return false;
    if ((search->maybe_spoken_for & bit_of(number)) != 0 &&
        !is_free_to_load(search->tables, search->wish, number,
                         search->last_resort && search->wish->again))
        return false;
    if ((!search->last_resort || search->wish->reachable) &&
        instance->unreachable_until_ms > search->wish->now_ms)
        return false;
    *worth = (struct worth){
        .tier = (instance->old ? OLD_TIER : 0) -
                types_preference(&search->tables->types, search->rule, instance->labels),
        .roomy = offer == OFFER_ROOM,
        .score = offer == OFFER_ROOM ? (int64_t)(room < INT64_MAX ? room : INT64_MAX)
                                     : -figures_for(instance, search->wish->model)->oldest_ms,
    };
    return true;
}

static bool
is_better(struct worth a, struct worth b)
{
    if (a.tier != b.tier)
        return a.tier < b.tier;
    if (a.roomy != b.roomy)
        return a.roomy;
    return a.score > b.score;
}

/* P4: close enough to the best. */
static bool
is_short_listed(const struct place_search *search, struct worth worth, struct worth best)
{
    if (worth.tier != best.tier || worth.roomy != best.roomy)
        return false;
    if (best.roomy)
        return worth.score >= best.score - best.score / 4;
    int64_t age = search->wish->wall_ms + best.score;
    int64_t younger = best.score - worth.score;
    return younger <= FULL_NEAR_MS || younger <= age / 10;
}

/* P6: acceptable rate in tenths of the least busy node's; 0: no limit. */
static uint32_t
busy_tenths(const struct place_wish *wish)
{
    int64_t age = wish->wall_ms - wish->used_ms;
    if (age < 0)
        return 11;
    if (age < 5000)
        return 15;
    if (age < MINUTE_MS * 12)
        return 30;
    return age < MINUTE_MS * 60 * 24 ? 40 : 0;
}

/* Loads queued or under way there; its figures may not include those from here yet. */
static uint32_t
loads_of(const struct instance *instance, const struct core_model *model)
{
    uint32_t loading = figures_for(instance, model)->loading;
    uint32_t loads = loading > instance->loads_out ? loading : instance->loads_out;
    return loads < LOADS_MANY ? loads : LOADS_MANY;
}

/* Collects the candidates in the tables' scratch memory and the best one's worth. */
static uint32_t
gather(const struct place_search *search, struct worth *best)
{
    struct placement_candidate *candidates = search->tables->candidates;
    uint32_t count = 0;
    for (uint32_t i = 0; i < search->tables->instance_names.used; i++) {
        struct worth worth;
        if (!is_candidate(search, i, &worth))
            continue;
        if (count == 0 || is_better(worth, *best))
            *best = worth;
        uint32_t rate = search->tables->instances[i].figures.calls_per_minute;
        candidates[count++] = (struct placement_candidate){
            .worth = worth,
            .number = i,
            .rate = rate < BUSY_PER_MINUTE ? BUSY_PER_MINUTE : rate,
            .loads = loads_of(&search->tables->instances[i], search->wish->model),
        };
    }
    return count;
}

static bool
is_as_good(struct worth a, struct worth b)
{
    return a.tier == b.tier && a.roomy == b.roomy;
}

/* P4: keeps those of the best kind with few pending loads, where a new load does not wait long, and
 * updates the best. */
static uint32_t
keep_idle(const struct place_search *search, uint32_t count, struct worth *best)
{
    struct placement_candidate *candidates = search->tables->candidates;
    const struct worth kind = *best;
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++)
        if (is_as_good(candidates[i].worth, kind) && candidates[i].loads < least)
            least = candidates[i].loads;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!is_as_good(candidates[i].worth, kind) || candidates[i].loads > 2 * least + LOADS_FEW)
            continue;
        candidates[kept] = candidates[i];
        if (kept++ == 0 || is_better(candidates[i].worth, *best))
            *best = candidates[i].worth;
    }
    return kept;
}

/* P4: keeps those close enough to the best. */
static uint32_t
keep_best(const struct place_search *search, uint32_t count, struct worth best, uint32_t *rate_min)
{
    struct placement_candidate *candidates = search->tables->candidates;
    uint32_t kept = 0;
    *rate_min = UINT32_MAX;
    for (uint32_t i = 0; i < count; i++) {
        if (!is_short_listed(search, candidates[i].worth, best))
            continue;
        candidates[kept] = candidates[i];
        if (candidates[kept].rate < *rate_min)
            *rate_min = candidates[kept].rate;
        kept++;
    }
    return kept;
}

/* P6, P7: draws one, all with the same probability. */
static uint32_t
draw(const struct place_search *search, uint32_t count, uint32_t rate_min, uint64_t *random)
{
    struct placement_candidate *candidates = search->tables->candidates;
    uint32_t tenths = busy_tenths(search->wish);
    uint64_t rate_max = tenths == 0 ? UINT64_MAX : (uint64_t)rate_min * tenths / 10;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (candidates[i].rate > rate_max)
            continue;
        if (candidates[i].number == INSTANCE_SELF && search->wish->own)
            return INSTANCE_SELF;
        candidates[kept++].number = candidates[i].number;
    }
    CHECK(kept > 0); /* the least busy one is kept */
    return candidates[random_next(random) % kept].number;
}

/* B3 */
static bool
is_at_most(const struct tables *tables, const struct place_wish *wish)
{
    uint32_t most = wish->model->bounds.copies_max;
    return model_is_at_most(tables, wish->model) &&
           (!wish->leaves || model_staying(tables, wish->model, MESH_PLACE_LOADING) > most);
}

uint32_t
place_choose(const struct tables *tables, const struct place_wish *wish, uint64_t *random)
{
    if (is_at_most(tables, wish))
        return NAME_NONE;
    const char *type = names_text(&tables->type_names, wish->model->type);
    struct place_search search = {
        .maybe_spoken_for = spoken_for(wish),
        .tables = tables,
        .wish = wish,
        .rule = types_rule(&tables->types, type),
    };
    struct worth best = {0};
    uint32_t count = gather(&search, &best);
    if (count == 0) {
        search.last_resort = true;
        count = gather(&search, &best);
    }
    if (count == 0)
        return NAME_NONE;
    uint32_t rate_min;
    count = keep_idle(&search, count, &best);
    count = keep_best(&search, count, best, &rate_min);
    return draw(&search, count, rate_min, random);
}

uint64_t
place_largest(const struct tables *tables, const struct place_wish *wish)
{
    const struct type_rule *rule = tables_rule(tables, wish->model);
    uint64_t largest = 0;
    for (uint32_t i = 0; i < tables->instance_names.used; i++) {
        const struct instance *instance = &tables->instances[i];
        if (instance->session == 0 || !types_allow(rule, instance->labels))
            continue;
        uint64_t capacity = figures_for(instance, wish->model)->capacity_units;
        if (capacity == 0)
            return 0;
        if (capacity > largest)
            largest = capacity;
    }
    return largest;
}

static bool
is_on_list(const struct place_wish *wish, uint32_t number, enum mesh_list list)
{
    for (uint32_t i = 0; i < wish->tried_count; i++)
        if (wish->tried[i].instance == number && wish->tried[i].list == list)
            return true;
    return false;
}

bool
tried_is_refusal(const struct tried *tried, uint32_t count, uint32_t number)
{
    bool refused = false;
    for (uint32_t i = 0; i < count; i++) {
        if (tried[i].instance != number)
            continue;
        if (tried[i].list == MESH_LIST_LOAD && !tried[i].reported && number != INSTANCE_SELF)
            return false;
        refused |= tried[i].list == MESH_LIST_HIT && tried[i].reported;
    }
    return refused;
}

/* Room is not missing there: the call excludes the node, it fails to load the model, or it has
 * it and could not serve. A node that refused the load may accept it next time; one that has lost
 * its runtime has lost the copy, which the record may not show yet. */
static bool
is_hopeless(const struct tables *tables, const struct place_wish *wish, uint32_t number)
{
    const struct core_place *place = model_place(wish->model, (uint16_t)number);
    if (is_on_list(wish, number, MESH_LIST_FIXED))
        return true;
    if (place == NULL)
        return false;
    if (place->kind == MESH_PLACE_FAILED)
        return failure_is_fresh(place->since_ms, wish->wall_ms, wish->fresh_ms);
    if (place->kind != MESH_PLACE_LOADED || !was_futile(wish, place) ||
        figures_are_bare(figures_for(&tables->instances[number], wish->model)))
        return false;
    if (tried_is_refusal(wish->tried, wish->tried_count, number))
        return wish->refused;
    return number != INSTANCE_SELF && !is_on_list(wish, number, MESH_LIST_LOAD);
}

bool
place_may_have_room(const struct tables *tables, const struct place_wish *wish)
{
    const struct type_rule *rule = tables_rule(tables, wish->model);
    for (uint32_t i = 0; i < tables->instance_names.used; i++) {
        const struct instance *instance = &tables->instances[i];
        uint64_t capacity = figures_for(instance, wish->model)->capacity_units;
        bool there = instance->session != 0 && !instance->draining &&
                     instance->unreachable_until_ms <= wish->now_ms &&
                     !(wish->not_self && i == INSTANCE_SELF);
        if (there && types_allow(rule, instance->labels) &&
            (capacity == 0 || capacity >= wish->units) && !is_hopeless(tables, wish, i))
            return true;
    }
    return false;
}

bool
place_is_leaving(const struct tables *tables, const struct place_wish *wish)
{
    const struct type_rule *rule = tables_rule(tables, wish->model);
    bool some_stay = false;
    for (uint32_t i = 0; i < tables->instance_names.used; i++) {
        const struct instance *instance = &tables->instances[i];
        uint64_t capacity = figures_for(instance, wish->model)->capacity_units;
        if (instance->session == 0 || !types_allow(rule, instance->labels) ||
            (capacity != 0 && capacity < wish->units))
            continue;
        const struct core_place *place = model_place(wish->model, (uint16_t)i);
        bool failed = place != NULL && place->kind == MESH_PLACE_FAILED &&
                      failure_is_fresh(place->since_ms, wish->wall_ms, wish->fresh_ms);
        if (instance->draining && !failed)
            return true;
        some_stay = true;
    }
    return !some_stay && tables_has_departed(tables, rule, wish->units, wish->now_ms);
}

enum place_refusal
place_refusal(const struct tables *tables, const struct place_wish *wish)
{
    const struct type_rule *rule = tables_rule(tables, wish->model);
    uint64_t largest = place_largest(tables, wish);
    if (model_is_at_most(tables, wish->model))
        return PLACE_AT_MOST;
    if (largest != 0 && largest < wish->units)
        return PLACE_TOO_LARGE;
    enum place_refusal refusal = PLACE_NO_LABELS;
    for (uint32_t i = 0; i < tables->instance_names.used; i++) {
        const struct instance *instance = &tables->instances[i];
        if (instance->session == 0 || !types_allow(rule, instance->labels))
            continue;
        if (is_free_to_load(tables, wish, i, false))
            return PLACE_ALL_FULL;
        refusal = PLACE_ALL_TRIED;
    }
    return refusal;
}

bool
place_is_bare(const struct tables *tables, const struct place_wish *wish)
{
    const struct type_rule *rule = tables_rule(tables, wish->model);
    for (uint32_t i = 0; i < tables->instance_names.used; i++) {
        const struct instance *instance = &tables->instances[i];
        if (instance->session != 0 && types_allow(rule, instance->labels) &&
            is_free_to_load(tables, wish, i, false) &&
            !figures_are_bare(figures_for(instance, wish->model)))
            return false;
    }
    return true;
}

const char *
place_refusal_text(enum place_refusal refusal)
{
    switch (refusal) {
    case PLACE_NO_LABELS: return "There are no running instances that meet the label requirements";
    case PLACE_TOO_LARGE:
        return "Nowhere available to load: the model is larger than any node's memory";
    case PLACE_ALL_TRIED:
        return "Nowhere available to load: every instance that may load the model has been tried";
    case PLACE_ALL_FULL:
        return "Cache churn threshold exceeded: every instance is full of models that were used "
               "just as recently";
    case PLACE_AT_MOST:
        return "Nowhere available to load: the model has its maximum of copies, and none of them "
               "could serve";
    }
    UNREACHABLE();
}
