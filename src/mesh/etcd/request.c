/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/etcd/request.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "mesh/etcd/json.h"

struct etcd_bytes
etcd_text(const char *text)
{
    return (struct etcd_bytes){text, strlen(text)};
}

/* The first of all keys; as an end "to the last". */
static const struct etcd_bytes nul = {"", 1};

/* The first key after all keys with the prefix, in memory of its size; 0 bytes if the prefix is
 * empty or all 0xff. */
static size_t
prefix_end(struct etcd_bytes prefix, unsigned char *end)
{
    size_t bytes = prefix.bytes;
    const unsigned char *data = prefix.data;
    while (bytes > 0 && data[bytes - 1] == 0xff)
        bytes--;
    if (bytes > 0) {
        memcpy(end, data, bytes);
        end[bytes - 1]++;
    }
    return bytes;
}

static void
put_prefix_end(struct json *json, struct etcd_bytes prefix)
{
    unsigned char *end = malloc(prefix.bytes + 1);
    CHECK(end != NULL);
    size_t bytes = prefix_end(prefix, end);
    etcd_put_bytes(json, ETCD_FIELD_RANGE_END, bytes == 0 ? nul : (struct etcd_bytes){end, bytes});
    free(end);
}

static void
put_range(struct json *json, const struct etcd_range *range)
{
    etcd_put_bytes(json, ETCD_FIELD_KEY,
                   range->key.bytes == 0 && range->span != ETCD_ONE ? nul : range->key);
    switch (range->span) {
    case ETCD_ONE: break;
    case ETCD_PREFIX: put_prefix_end(json, range->key); break;
    case ETCD_FROM: etcd_put_bytes(json, ETCD_FIELD_RANGE_END, nul); break;
    case ETCD_UNTIL: etcd_put_bytes(json, ETCD_FIELD_RANGE_END, range->end); break;
    }
}

static void
put_range_options(struct json *json, const struct etcd_op *op)
{
    if (op->limit != 0)
        etcd_put_int(json, ETCD_FIELD_LIMIT, op->limit);
    if (op->revision != 0)
        etcd_put_int(json, ETCD_FIELD_REVISION, op->revision);
    if (op->content == ETCD_KEYS_ONLY)
        etcd_put_true(json, ETCD_FIELD_KEYS_ONLY);
    if (op->content == ETCD_COUNT_ONLY)
        etcd_put_true(json, ETCD_FIELD_COUNT_ONLY);
    if (op->freshness == ETCD_SERIALIZABLE)
        etcd_put_true(json, ETCD_FIELD_SERIALIZABLE);
}

/* The members of a request and the end of its object. */
static void
put_op(struct json *json, const struct etcd_op *op)
{
    put_range(json, &op->range);
    if (op->kind == ETCD_RANGE)
        put_range_options(json, op);
    if (op->kind == ETCD_PUT) {
        etcd_put_bytes(json, ETCD_FIELD_VALUE, op->value);
        if (op->lease_id != 0)
            etcd_put_int(json, ETCD_FIELD_LEASE, op->lease_id);
    }
    if (op->kind != ETCD_RANGE && op->previous == ETCD_WITH_PREVIOUS)
        etcd_put_true(json, ETCD_FIELD_PREV_KV);
    json_close(json, '}');
}

void
etcd_request_op(struct bytes *out, const struct etcd_op *op)
{
    struct json json = etcd_json_begin(out);
    put_op(&json, op);
}

static const struct {
    const char *name;
    enum etcd_field field;
} targets[] = {
    [ETCD_VERSION] = {"VERSION", ETCD_FIELD_VERSION},
    [ETCD_CREATE] = {"CREATE", ETCD_FIELD_CREATE_REVISION},
    [ETCD_MOD] = {"MOD", ETCD_FIELD_MOD_REVISION},
    [ETCD_VALUE] = {"VALUE", ETCD_FIELD_VALUE},
    [ETCD_LEASE] = {"LEASE", ETCD_FIELD_LEASE},
};

static const char *const relations[] = {
    [ETCD_EQUAL] = "EQUAL",
    [ETCD_GREATER] = "GREATER",
    [ETCD_LESS] = "LESS",
    [ETCD_NOT_EQUAL] = "NOT_EQUAL",
};

static void
put_compare(struct json *json, const struct etcd_compare *compare)
{
    enum etcd_field field = targets[compare->target].field;
    json_open(json, '{');
    put_range(json, &compare->range);
    etcd_put_text(json, ETCD_FIELD_TARGET, targets[compare->target].name);
    etcd_put_text(json, ETCD_FIELD_RESULT, relations[compare->relation]);
    if (compare->target == ETCD_VALUE)
        etcd_put_bytes(json, field, compare->value);
    else
        etcd_put_int(json, field, compare->number);
    json_close(json, '}');
}

static void
put_ops(struct json *json, enum etcd_field field, const struct etcd_op *ops, size_t count)
{
    static const enum etcd_field kinds[] = {
        [ETCD_RANGE] = ETCD_FIELD_REQUEST_RANGE,
        [ETCD_PUT] = ETCD_FIELD_REQUEST_PUT,
        [ETCD_DELETE] = ETCD_FIELD_REQUEST_DELETE,
    };
    etcd_put_field(json, field);
    json_open(json, '[');
    for (size_t i = 0; i < count; i++) {
        json_open(json, '{');
        etcd_put_field(json, kinds[ops[i].kind]);
        json_open(json, '{');
        put_op(json, &ops[i]);
        json_close(json, '}');
    }
    json_close(json, ']');
}

void
etcd_request_txn(struct bytes *out, const struct etcd_txn *txn)
{
    struct json json = etcd_json_begin(out);
    etcd_put_field(&json, ETCD_FIELD_COMPARE);
    json_open(&json, '[');
    for (size_t i = 0; i < txn->compare_count; i++)
        put_compare(&json, &txn->compares[i]);
    json_close(&json, ']');
    put_ops(&json, ETCD_FIELD_SUCCESS, txn->success, txn->success_count);
    put_ops(&json, ETCD_FIELD_FAILURE, txn->failure, txn->failure_count);
    json_close(&json, '}');
}

void
etcd_request_compact(struct bytes *out, int64_t revision)
{
    struct json json = etcd_json_begin(out);
    etcd_put_int(&json, ETCD_FIELD_REVISION, revision);
    json_close(&json, '}');
}

void
etcd_request_grant(struct bytes *out, int64_t ttl_s, int64_t lease_id)
{
    struct json json = etcd_json_begin(out);
    etcd_put_int(&json, ETCD_FIELD_TTL, ttl_s);
    etcd_put_int(&json, ETCD_FIELD_ID, lease_id);
    json_close(&json, '}');
}

void
etcd_request_lease(struct bytes *out, int64_t lease_id)
{
    struct json json = etcd_json_begin(out);
    etcd_put_int(&json, ETCD_FIELD_ID, lease_id);
    json_close(&json, '}');
}

void
etcd_request_token(struct bytes *out, const char *user, const char *password)
{
    struct json json = etcd_json_begin(out);
    etcd_put_text(&json, ETCD_FIELD_NAME, user);
    etcd_put_text(&json, ETCD_FIELD_PASSWORD, password);
    json_close(&json, '}');
}

void
etcd_request_watch(struct bytes *out, const struct etcd_range *range, int64_t watch_id,
                   int64_t revision)
{
    if (out->used > 0) /* one object after another; anything in between is insignificant */
        bytes_put_char(out, '\n');
    struct json json = etcd_json_begin(out);
    etcd_put_field(&json, ETCD_FIELD_CREATE_REQUEST);
    json_open(&json, '{');
    put_range(&json, range);
    etcd_put_int(&json, ETCD_FIELD_WATCH_ID, watch_id);
    if (revision != 0)
        etcd_put_int(&json, ETCD_FIELD_START_REVISION, revision);
    etcd_put_true(&json, ETCD_FIELD_PROGRESS_NOTIFY);
    etcd_put_true(&json, ETCD_FIELD_FRAGMENT);
    json_close(&json, '}');
    json_close(&json, '}');
}

/* Copies with room for one more byte. */
static struct etcd_bytes
bytes_copy(struct etcd_bytes data)
{
    char *copy = malloc(data.bytes + 1);
    CHECK(copy != NULL);
    if (data.bytes > 0)
        memcpy(copy, data.data, data.bytes);
    copy[data.bytes] = '\0';
    return (struct etcd_bytes){copy, data.bytes};
}

struct etcd_range
etcd_range_copy(const struct etcd_range *range)
{
    return (struct etcd_range){
        .span = range->span, .key = bytes_copy(range->key), .end = bytes_copy(range->end)};
}

struct etcd_range
etcd_range_rest(const struct etcd_range *range, struct etcd_bytes last)
{
    struct etcd_range rest = {.span = range->span, .key = bytes_copy(last)};
    rest.key.bytes++; /* appends NUL: no key lies between a key and itself followed by NUL */
    if (range->span != ETCD_PREFIX) {
        rest.end = bytes_copy(range->end);
        return rest;
    }
    rest.end = bytes_copy(range->key);
    rest.end.bytes = prefix_end(range->key, (unsigned char *)(uintptr_t)rest.end.data);
    rest.span = rest.end.bytes == 0 ? ETCD_FROM : ETCD_UNTIL;
    return rest;
}

void
etcd_range_free(struct etcd_range *range)
{
    free((void *)(uintptr_t)range->key.data);
    free((void *)(uintptr_t)range->end.data);
    *range = (struct etcd_range){0};
}
