/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gateway's JSON, one level below its messages: fields by id, 64-bit numbers as strings, bytes
 * in base64. A missing or null field is 0, "" or false: the gateway omits defaults.
 *
 * Readers return false if the field exists and is of another kind. Depth is limited by the parser,
 * size by the exchange.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bump.h"
#include "base/json.h"
#include "mesh/etcd/etcd.h"

enum etcd_field {
#define FIELD(id, name) ETCD_FIELD_##id,
#include "mesh/etcd/fields.def"
#undef FIELD
    ETCD_FIELDS
};

/* ---- writing ---- */

/* Opens an object. */
struct json etcd_json_begin(struct bytes *out);
/* Writes `"name":`; a value must follow. */
void etcd_put_field(struct json *json, enum etcd_field field);
void etcd_put_int(struct json *json, enum etcd_field field, int64_t number);
void etcd_put_true(struct json *json, enum etcd_field field);
void etcd_put_bytes(struct json *json, enum etcd_field field, struct etcd_bytes data);
void etcd_put_text(struct json *json, enum etcd_field field, const char *text);

/* ---- reading ---- */

const json_t *etcd_get(const json_t *object, enum etcd_field field);
bool etcd_get_int(const json_t *object, enum etcd_field field, int64_t *number);
bool etcd_get_uint(const json_t *object, enum etcd_field field, uint64_t *number);
bool etcd_get_bool(const json_t *object, enum etcd_field field, bool *value);
bool etcd_get_bytes(const json_t *object, enum etcd_field field, struct bump *arena,
                    struct etcd_bytes *data);
/* "" if missing or not a string; the object's memory. */
const char *etcd_get_text(const json_t *object, enum etcd_field field);
