/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/core/cluster/upgrade.h"
#include "mesh/core/containers/scratch.h"

#include <stdlib.h>

enum { NUMBER_BYTES = 16, TEXT_BYTES = 2 * NUMBER_BYTES + GENERATION_PREFIX + 1 };

void
generations_init(struct generations *generations, uint32_t limit, uint64_t key)
{
    *generations = (struct generations){0};
    names_init(&generations->names, limit, key);
}

void
generations_fini(struct generations *generations)
{
    names_fini(&generations->names);
    free(generations->at);
    free(generations->newest);
}

static char *
put_number(char *at, uint64_t number)
{
    for (int shift = 60; shift >= 0; shift -= 4)
        *at++ = "0123456789abcdef"[number >> shift & 15];
    return at;
}

/* U1 */
static void
name_generation(char text[TEXT_BYTES], const char *id, int64_t version, uint32_t label_set)
{
    char *at = put_number(text, (uint64_t)version);
    at = put_number(at, label_set);
    for (int i = 0; i < GENERATION_PREFIX && id[i] != '\0'; i++)
        *at++ = id[i];
    *at = '\0';
}

uint32_t
generations_join(struct generations *generations, const char *id, int64_t version,
                 uint32_t label_set, int64_t start_ms)
{
    char text[TEXT_BYTES];
    name_generation(text, id, version, label_set);
    uint32_t number = names_hold(&generations->names, text);
    if (number == NAME_NONE)
        return NAME_NONE;
    scratch_grow((void **)&generations->at, &generations->capacity, number + 1,
                 sizeof(*generations->at));
    struct upgrade_generation *generation = &generations->at[number];
    if (generations->names.at[number].references == 1)
        *generation = (struct upgrade_generation){.version = version,
                                                  .first_ms = start_ms,
                                                  .lost_ms = INT64_MIN / 2,
                                                  .label_set = label_set};
    if (start_ms < generation->first_ms)
        generation->first_ms = start_ms;
    return number;
}

void
generations_leave(struct generations *generations, uint32_t number)
{
    names_release(&generations->names, number);
}

void
generations_lose(struct generations *generations, uint32_t number, int64_t now_ms)
{
    generations->at[number].lost_ms = now_ms;
}

void
generations_begin(struct generations *generations)
{
    for (uint32_t i = 0; i < generations->names.used; i++)
        generations->at[i].last_ms = INT64_MIN / 2;
}

/* Ignores starts far in the future. */
void
generations_show(struct generations *generations, uint32_t number, int64_t start_ms,
                 int64_t wall_ms)
{
    struct upgrade_generation *generation = &generations->at[number];
    if (start_ms > generation->last_ms && start_ms < wall_ms + UPGRADE_MS)
        generation->last_ms = start_ms;
}

static bool
is_older(const struct upgrade_generation *a, const struct upgrade_generation *b)
{
    return a->version != b->version ? a->version < b->version : a->first_ms < b->first_ms;
}

static void
find_newest(struct generations *generations)
{
    for (uint32_t i = 0; i < generations->newest_capacity; i++)
        generations->newest[i] = NAME_NONE;
    for (uint32_t i = 0; i < generations->names.used; i++) {
        if (names_text(&generations->names, i) == NULL)
            continue;
        const struct upgrade_generation *generation = &generations->at[i];
        uint32_t *newest = &generations->newest[generation->label_set];
        if (*newest == NAME_NONE || is_older(&generations->at[*newest], generation))
            *newest = i;
    }
}

/* U2 */
static bool
is_replaced(const struct upgrade_generation *generation, const struct upgrade_generation *newest,
            int64_t now_ms, int64_t wall_ms)
{
    if (!is_older(generation, newest))
        return false;
    bool gained = newest->last_ms > wall_ms - UPGRADE_MS;
    bool lost = generation->lost_ms > now_ms - UPGRADE_MS;
    return generation->version != newest->version ? gained || lost : gained && lost;
}

void
generations_judge(struct generations *generations, int64_t now_ms, int64_t wall_ms)
{
    uint32_t label_sets = 0;
    for (uint32_t i = 0; i < generations->names.used; i++)
        if (names_text(&generations->names, i) != NULL &&
            generations->at[i].label_set >= label_sets)
            label_sets = generations->at[i].label_set + 1;
    scratch_grow((void **)&generations->newest, &generations->newest_capacity, label_sets,
                 sizeof(*generations->newest));
    find_newest(generations);
    for (uint32_t i = 0; i < generations->names.used; i++) {
        if (names_text(&generations->names, i) == NULL)
            continue;
        struct upgrade_generation *generation = &generations->at[i];
        const struct upgrade_generation *newest =
            &generations->at[generations->newest[generation->label_set]];
        generation->old = is_replaced(generation, newest, now_ms, wall_ms);
    }
}
