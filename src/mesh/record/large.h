/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers that Jansson has no type for (integers beyond 64 bits, fractions beyond a double), kept
 * verbatim. In JSON that Jansson refused because of one, each becomes a string that begins with a
 * NUL. No other string of a record does: without JSON_ALLOW_NUL Jansson refuses the escape, and
 * large_wrap refuses it before the second parse, which allows it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/bytes.h"
#include "mesh/record/json.h"

/* Appends the JSON with each such number wrapped. False: a string contains a NUL. */
bool large_wrap(const char *json, size_t bytes, struct bytes *to);

bool large_is(const json_t *value);
/* Writes the value as it stood in the JSON. */
void large_put(struct json *to, const json_t *value);
