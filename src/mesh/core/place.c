/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/core/place.h"

enum {
    FULL_NEAR_MS = 45000,  /* P4 */
    BUSY_PER_MINUTE = 100, /* P6: nobody is busy below this */
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

/* P1, but for the labels and the reach. */
static bool
is_free_to_load(const struct tables *tables, const struct place_wish *wish, uint32_t number)
{
    const struct instance *instance = &tables->instances[number];
    if (instance->session == 0 || instance->draining || (wish->not_self && number == INSTANCE_SELF))
        return false;
    for (uint32_t i = 0; i < wish->tried_count; i++)
        if (wish->tried[i].instance == number && wish->tried[i].list != MESH_LIST_HIT)
            return false;
    const struct place *place = model_place(wish->model, (uint16_t)number);
    if (place == NULL)
        return true;
    if (place->kind == MESH_PLACE_FAILED)
        return !failure_is_fresh(place->since_ms, wish->wall_ms, wish->fresh_ms);
    return !place_alive(tables, place);
}

/* P5: what is free there, less what is on its way. */
static uint64_t
room_of(const struct instance *instance)
{
    uint64_t room = instance->figures.full ? 0 : instance->figures.free_units;
    return room > instance->pending_units ? room - instance->pending_units : 0;
}

/* E3, E4, as far as its figures tell: it would take the model. */
static bool
would_accept(const struct instance *instance, const struct place_wish *wish)
{
    if (room_of(instance) > 0)
        return true;
    int64_t oldest = instance->figures.oldest_ms;
    return oldest < wish->wall_ms - wish->churn_ms && oldest < wish->used_ms;
}

/* P2 to P4 as numbers: the lowest tier, then who has room, then the score. */
struct worth {
    int64_t tier;
    int64_t score; /* room, or minus the oldest's stamp */
    bool roomy;
};

struct search {
    const struct tables *tables;
    const struct place_wish *wish;
    const struct type_rule *rule;
    bool reach_all; /* the unreachable, too */
};

static bool
is_candidate(const struct search *search, uint32_t number, struct worth *worth)
{
    const struct instance *instance = &search->tables->instances[number];
    if (instance->session == 0 || !types_allow(search->rule, instance->labels) ||
        !is_free_to_load(search->tables, search->wish, number) ||
        !would_accept(instance, search->wish))
        return false;
    if (!search->reach_all && instance->unreachable_until_ms > search->wish->now_ms)
        return false;
    uint64_t room = room_of(instance);
    *worth = (struct worth){
        .tier = -(int64_t)types_preference(&search->tables->types, search->rule, instance->labels),
        .roomy = room > 0,
        .score = room > 0 ? (int64_t)(room < INT64_MAX ? room : INT64_MAX)
                          : -instance->figures.oldest_ms,
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

/* P4: near enough to the best one. */
static bool
is_short_listed(const struct search *search, struct worth worth, struct worth best)
{
    if (worth.tier != best.tier || worth.roomy != best.roomy)
        return false;
    if (best.roomy)
        return worth.score >= best.score - best.score / 4;
    int64_t age = search->wish->wall_ms + best.score;
    int64_t younger = best.score - worth.score;
    return younger <= FULL_NEAR_MS || younger <= age / 10;
}

/* P6: tenths of the least busy one's rate that are still good enough; 0: no limit. */
static uint32_t
busy_tenths(const struct place_wish *wish)
{
    int64_t age = wish->wall_ms - wish->used_ms;
    if (age < 0)
        return 11;
    if (age < 5000)
        return 15;
    if (age < 12 * 60000)
        return 30;
    return age < 24 * 3600000 ? 40 : 0;
}

struct shortlist {
    struct worth best;
    uint32_t best_number; /* NAME_NONE: nobody */
    uint32_t calls_min;
};

static uint32_t
count_of(const struct search *search)
{
    return search->tables->instance_names.used;
}

static struct shortlist
find_best(const struct search *search)
{
    struct shortlist list = {.best_number = NAME_NONE, .calls_min = UINT32_MAX};
    struct worth worth;
    for (uint32_t i = 0; i < count_of(search); i++) {
        if (!is_candidate(search, i, &worth))
            continue;
        if (list.best_number == NAME_NONE || is_better(worth, list.best)) {
            list.best = worth;
            list.best_number = i;
        }
    }
    return list;
}

static uint32_t
rate_of(const struct search *search, uint32_t number)
{
    uint32_t rate = search->tables->instances[number].figures.calls_per_minute;
    return rate < BUSY_PER_MINUTE ? BUSY_PER_MINUTE : rate;
}

/* P6, P7: one of the shortlist, each with the same chance. */
static uint32_t
draw(const struct search *search, struct shortlist *list, uint64_t *random)
{
    struct worth worth;
    for (uint32_t i = 0; i < count_of(search); i++)
        if (is_candidate(search, i, &worth) && is_short_listed(search, worth, list->best) &&
            rate_of(search, i) < list->calls_min)
            list->calls_min = rate_of(search, i);
    uint32_t tenths = busy_tenths(search->wish);
    uint64_t rate_max = tenths == 0 ? UINT64_MAX : (uint64_t)list->calls_min * tenths / 10;
    uint32_t chosen = NAME_NONE;
    uint32_t seen = 0;
    uint64_t stream = random_next(random);
    for (uint32_t i = 0; i < count_of(search); i++) {
        if (!is_candidate(search, i, &worth) || !is_short_listed(search, worth, list->best) ||
            rate_of(search, i) > rate_max)
            continue;
        if (i == INSTANCE_SELF && search->wish->own)
            return i;
        if (random_next(&stream) % ++seen == 0)
            chosen = i;
    }
    return chosen;
}

uint32_t
place_choose(const struct tables *tables, const struct place_wish *wish, uint64_t *random)
{
    const char *type = names_text(&tables->type_names, wish->model->type);
    struct search search = {
        .tables = tables, .wish = wish, .rule = types_rule(&tables->types, type)};
    struct shortlist list = find_best(&search);
    if (list.best_number == NAME_NONE) {
        search.reach_all = true;
        list = find_best(&search);
    }
    return list.best_number == NAME_NONE ? NAME_NONE : draw(&search, &list, random);
}

enum place_refusal
place_refusal(const struct tables *tables, const struct place_wish *wish)
{
    const char *type = names_text(&tables->type_names, wish->model->type);
    const struct type_rule *rule = types_rule(&tables->types, type);
    enum place_refusal refusal = PLACE_NO_LABELS;
    for (uint32_t i = 0; i < tables->instance_names.used; i++) {
        const struct instance *instance = &tables->instances[i];
        if (instance->session == 0 || !types_allow(rule, instance->labels))
            continue;
        if (is_free_to_load(tables, wish, i))
            return PLACE_ALL_FULL;
        refusal = PLACE_ALL_TRIED;
    }
    return refusal;
}
