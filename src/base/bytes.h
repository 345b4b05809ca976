/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run of bytes that grows at its end. Out of memory is remembered, not returned: whoever has
 * written all of it asks once, with `failed`; what was put after that is lost.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct bytes {
    char *data; /* malloc'ed; NULL while nothing was put */
    size_t used;
    size_t capacity;
    bool failed;
};

void bytes_fini(struct bytes *bytes);

/* Room for `count` more at data + used; NULL: failed. The caller adds to `used` what it wrote. */
char *bytes_reserve(struct bytes *bytes, size_t count);

void bytes_put(struct bytes *bytes, const void *data, size_t count);
void bytes_put_text(struct bytes *bytes, const char *text);
void bytes_put_char(struct bytes *bytes, char character);

/* The memory is the caller's, to be freed with free(); the run is empty. */
char *bytes_take(struct bytes *bytes, size_t *count);
