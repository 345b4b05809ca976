/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A byte buffer that grows at its end. Running out of memory sets `failed`, which the writer checks
 * once at the end; later writes are lost.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct bytes {
    char *data; /* from malloc; NULL while empty */
    size_t used;
    size_t capacity;
    bool failed;
};

void bytes_fini(struct bytes *bytes);

/* Makes room for `count` more bytes at data + used; NULL: failed. The caller adds to `used` what it
 * wrote. */
char *bytes_reserve(struct bytes *bytes, size_t count);

void bytes_put(struct bytes *bytes, const void *data, size_t count);
void bytes_put_text(struct bytes *bytes, const char *text);
void bytes_put_char(struct bytes *bytes, char character);

/* Hands the memory to the caller, to be freed with free(), and empties the buffer. */
char *bytes_take(struct bytes *bytes, size_t *count);
