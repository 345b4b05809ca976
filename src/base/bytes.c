/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES_START = 512 };

void
bytes_fini(struct bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct bytes){0};
}

char *
bytes_reserve(struct bytes *bytes, size_t count)
{
    if (bytes->failed)
        return NULL;
    if (count <= bytes->capacity - bytes->used && bytes->data != NULL)
        return bytes->data + bytes->used;
    size_t capacity = bytes->capacity == 0 ? BYTES_START : bytes->capacity;
    while (capacity - bytes->used < count && capacity <= SIZE_MAX / 4)
        capacity *= 2;
    char *grown = capacity - bytes->used < count ? NULL : realloc(bytes->data, capacity);
    if (grown == NULL) {
        bytes->failed = true;
        return NULL;
    }
    bytes->data = grown;
    bytes->capacity = capacity;
    return grown + bytes->used;
}

void
bytes_put(struct bytes *bytes, const void *data, size_t count)
{
    char *to = bytes_reserve(bytes, count);
    if (to == NULL || count == 0)
        return;
    memcpy(to, data, count);
    bytes->used += count;
}

void
bytes_put_text(struct bytes *bytes, const char *text)
{
    bytes_put(bytes, text, strlen(text));
}

void
bytes_put_char(struct bytes *bytes, char character)
{
    bytes_put(bytes, &character, 1);
}

char *
bytes_take(struct bytes *bytes, size_t *count)
{
    char *data = bytes->data;
    *count = bytes->used;
    *bytes = (struct bytes){0};
    return data;
}
