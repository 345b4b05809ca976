/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/core/containers/names.h"
#include "base/check.h"
#include "mesh/core/containers/scratch.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS_MIN = 32 };

static uint64_t
mix(uint64_t a, uint64_t b)
{
    a ^= b;
    a *= UINT64_C(0x9e3779b97f4a7c15);
    return a ^ a >> 29;
}

static uint32_t
hash_of(const struct names *names, const char *text)
{
    size_t left = strlen(text);
    uint64_t hash = mix(names->key, left);
    for (; left > 0; text += 8) {
        uint64_t word = 0;
        size_t part = left < 8 ? left : 8;
        memcpy(&word, text, part);
        hash = mix(hash, word);
        left -= part;
    }
    return (uint32_t)(mix(hash, names->key) >> 16);
}

void
names_init(struct names *names, uint32_t limit, uint64_t key)
{
    CHECK(limit < NAME_NONE / 4);
    *names = (struct names){.limit = limit, .key = key, .first_free = NAME_NONE};
}

void
names_fini(struct names *names)
{
    for (uint32_t i = 0; i < names->used; i++)
        free(names->at[i].text);
    free(names->at);
    free(names->slots);
    *names = (struct names){.first_free = NAME_NONE};
}

/* The slot of the text, or the empty slot where it belongs. */
static uint32_t
slot_of(const struct names *names, const char *text, uint32_t hash)
{
    uint32_t mask = names->slot_count - 1;
    for (uint32_t slot = hash & mask;; slot = (slot + 1) & mask) {
        uint32_t number = names->slots[slot];
        if (number == 0)
            return slot;
        const struct name *name = &names->at[number - 1];
        if (name->hash == hash && strcmp(name->text, text) == 0)
            return slot;
    }
}

uint32_t
names_find(const struct names *names, const char *text)
{
    if (names->slot_count == 0)
        return NAME_NONE;
    uint32_t number = names->slots[slot_of(names, text, hash_of(names, text))];
    return number == 0 ? NAME_NONE : number - 1;
}

static void
slots_double(struct names *names)
{
    uint32_t count = names->slot_count == 0 ? SLOTS_MIN : names->slot_count * 2;
    free(names->slots);
    names->slots = calloc(count, sizeof(*names->slots));
    CHECK(names->slots != NULL);
    names->slot_count = count;
    for (uint32_t i = 0; i < names->used; i++) {
        uint32_t slot = names->at[i].hash & (count - 1);
        if (names->at[i].text == NULL)
            continue;
        while (names->slots[slot] != 0)
            slot = (slot + 1) & (count - 1);
        names->slots[slot] = i + 1;
    }
}

static uint32_t
number_take(struct names *names)
{
    uint32_t number = names->first_free;
    if (number != NAME_NONE) {
        names->first_free = names->at[number].references;
        return number;
    }
    if (names->used == names->limit)
        return NAME_NONE;
    scratch_grow((void **)&names->at, &names->capacity, names->used + 1, sizeof(*names->at));
    return names->used++;
}

uint32_t
names_hold(struct names *names, const char *text)
{
    if (names->slot_count < 2 * (names->live + 1))
        slots_double(names);
    uint32_t hash = hash_of(names, text);
    uint32_t slot = slot_of(names, text, hash);
    if (names->slots[slot] != 0) {
        names->at[names->slots[slot] - 1].references++;
        return names->slots[slot] - 1;
    }
    uint32_t number = number_take(names);
    if (number == NAME_NONE)
        return NAME_NONE;
    names->at[number] =
        (struct name){.text = scratch_copy(text, strlen(text) + 1), .hash = hash, .references = 1};
    names->slots[slot] = number + 1;
    names->live++;
    return number;
}

void
names_keep(struct names *names, uint32_t number)
{
    CHECK(number < names->used && names->at[number].text != NULL);
    names->at[number].references++;
}

/* Moves later slots into the gap unless that would put them before their own position. */
static void
slot_empty(struct names *names, uint32_t gap)
{
    uint32_t mask = names->slot_count - 1;
    for (uint32_t slot = (gap + 1) & mask; names->slots[slot] != 0; slot = (slot + 1) & mask) {
        uint32_t home = names->at[names->slots[slot] - 1].hash & mask;
        if (((slot - home) & mask) >= ((slot - gap) & mask)) {
            names->slots[gap] = names->slots[slot];
            gap = slot;
        }
    }
    names->slots[gap] = 0;
}

void
names_release(struct names *names, uint32_t number)
{
    CHECK(number < names->used && names->at[number].text != NULL);
    struct name *name = &names->at[number];
    if (--name->references > 0)
        return;
    slot_empty(names, slot_of(names, name->text, name->hash));
    free(name->text);
    *name = (struct name){.references = names->first_free};
    names->first_free = number;
    names->live--;
}

void
names_check(const struct names *names)
{
    uint32_t filled = 0;
    for (uint32_t slot = 0; slot < names->slot_count; slot++) {
        if (names->slots[slot] == 0)
            continue;
        CHECK(names->slots[slot] <= names->used);
        const struct name *name = &names->at[names->slots[slot] - 1];
        CHECK(name->text != NULL && name->references > 0);
        CHECK(slot_of(names, name->text, name->hash) == slot);
        filled++;
    }
    CHECK(filled == names->live && 2 * names->live <= names->slot_count);
    uint32_t unused = 0;
    for (uint32_t number = names->first_free; number != NAME_NONE;
         number = names->at[number].references) {
        CHECK(number < names->used && names->at[number].text == NULL);
        unused++;
        CHECK(unused <= names->used); /* the list has no cycle */
    }
    CHECK(names->live + unused == names->used);
}
