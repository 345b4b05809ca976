/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gateway's JSON, one level below its messages: fields by their id, 64-bit numbers as strings,
 * bytes in base64. What is left out, or null, means 0, "" or false: the gateway leaves out all that
 * is.
 *
 * Reading: functions return false if the field is there and is not of the kind. They know nothing
 * of depth and size: the parser limits the one, the exchange the other.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "mesh/etcd/etcd.h"

enum etcd_field {
#define FIELD(id, name) ETCD_FIELD_##id,
#include "mesh/etcd/fields.def"
#undef FIELD
    ETCD_FIELDS
};

const char *etcd_field_name(enum etcd_field field);

/* ---- writing: commas are put where they belong ---- */

void etcd_put_open(struct bytes *json, char bracket);
void etcd_put_close(struct bytes *json, char bracket);
/* `"name":`, to be followed by a value. */
void etcd_put_field(struct bytes *json, enum etcd_field field);
void etcd_put_int(struct bytes *json, enum etcd_field field, int64_t number);
void etcd_put_true(struct bytes *json, enum etcd_field field);
void etcd_put_word(struct bytes *json, enum etcd_field field, const char *word);
void etcd_put_bytes(struct bytes *json, enum etcd_field field, struct etcd_bytes data);
/* Any text, which is escaped. */
void etcd_put_text(struct bytes *json, enum etcd_field field, const char *text);

/* ---- memory of what is read: released as a whole ---- */

struct etcd_arena {
    struct etcd_chunk *chunks;
};

void *etcd_arena_take(struct etcd_arena *arena, size_t bytes);
void etcd_arena_fini(struct etcd_arena *arena);

/* ---- reading ---- */

const json_t *etcd_get(const json_t *object, enum etcd_field field);
bool etcd_get_int(const json_t *object, enum etcd_field field, int64_t *number);
bool etcd_get_uint(const json_t *object, enum etcd_field field, uint64_t *number);
bool etcd_get_bool(const json_t *object, enum etcd_field field, bool *value);
bool etcd_get_bytes(const json_t *object, enum etcd_field field, struct etcd_arena *arena,
                    struct etcd_bytes *data);
/* "" if it is left out or no string; the object's. */
const char *etcd_get_text(const json_t *object, enum etcd_field field);
