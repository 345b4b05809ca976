/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/core/containers/scratch.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { ELEMENTS_MIN = 16 };

void
scratch_grow(void **array, uint32_t *capacity, uint32_t wanted, size_t size)
{
    if (wanted <= *capacity)
        return;
    uint32_t grown = *capacity < ELEMENTS_MIN ? ELEMENTS_MIN : *capacity;
    while (grown < wanted) {
        CHECK(grown <= UINT32_MAX / 2);
        grown *= 2;
    }
    unsigned char *memory = reallocarray(*array, grown, size);
    CHECK(memory != NULL);
    memset(memory + *capacity * size, 0, (grown - *capacity) * size);
    *array = memory;
    *capacity = grown;
}

void *
scratch_copy(const void *data, size_t size)
{
    void *copy = malloc(size);
    CHECK(copy != NULL);
    memcpy(copy, data, size);
    return copy;
}

const char *
memory_join(struct bump *bump, const char *const *parts, size_t count)
{
    size_t bytes = 1;
    for (size_t i = 0; i < count; i++)
        bytes += strlen(parts[i]);
    char *text = bump_take(bump, bytes);
    char *at = text;
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(parts[i]);
        memcpy(at, parts[i], length);
        at += length;
    }
    *at = '\0';
    return text;
}
