/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds members of a JSON object without building a tree: the bytes are walked once, strings are
 * skipped by memchr, nothing is allocated by the scan and nothing recurses. Pure.
 *
 * The scan checks what it needs to find its way, not all of JSON: the model server judges the rest.
 * A name with an escape in it is refused.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/bytes.h"

struct json_span {
    const char *at; /* NULL: not there */
    size_t bytes;   /* of a string with its quotes */
};

struct json_member {
    const char *name;
    struct json_span value;
};

/* Finds these members of the object that is all of `text`. Returns NULL, or the mistake: no object,
 * an object that does not end, a name with an escape, or a wanted name that comes twice. */
const char *json_scan_members(const char *text, size_t bytes, struct json_member *members,
                              size_t count);

/* The next element of an array, from position 0; false: there are no more. */
bool json_scan_next(struct json_span array, size_t *position, struct json_span *element);

/* Like json_scan_next(), for an object. */
bool json_scan_next_member(struct json_span object, size_t *position, struct json_span *name,
                           struct json_span *value);

/* The inside of a string, escapes as written; false: it is no string. */
bool json_span_string(struct json_span value, struct json_span *inside);
/* Appends what a string means; false: it is no string, or no UTF-8. */
bool json_span_decode(struct json_span value, struct bytes *out);
/* Finds what a string means: its inside, which is decoded into `room` if it has escapes. False: it
 * is no string, or has an escape that means nothing. */
bool json_span_text(struct json_span value, struct bytes *room, struct json_span *text);
