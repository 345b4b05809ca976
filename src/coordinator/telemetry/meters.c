/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/telemetry/meters.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/telemetry/metrics.h"

enum { TIMES = MODELMESH_TIMES, SIZES = 8 };

/* Bytes of messages: ModelMesh's ends for models are larger. */
static const struct modelmesh_bound sizes[SIZES] = {
    {"128.0", 128},     {"512.0", 512},       {"2048.0", 2048},     {"8192.0", 8192},
    {"32768.0", 32768}, {"131072.0", 131072}, {"524288.0", 524288}, {"2097152.0", 2097152},
};

/* The last bucket has all larger values. */
struct time_histogram {
    _Atomic uint64_t buckets[TIMES + 1];
    _Atomic uint64_t ns;
};

struct size_histogram {
    _Atomic uint64_t buckets[SIZES + 1];
    _Atomic uint64_t bytes;
};

/* Calls of one method with one code. */
struct meter_row {
    struct time_histogram took[METER_COUNT];
    struct size_histogram requests; /* this and the next: METER_REQUEST only */
    struct size_histogram responses;
};

struct meters {
    enum meters_names names;
    pthread_mutex_t lock;
    _Atomic uint32_t method_count; /* grows under the lock; entries below it do not change */
    char *methods[METERS_METHODS_MAX + 1];
    _Atomic(struct meter_row *) rows[METERS_METHODS_MAX + 1][STATUS_COUNT];
};

struct meters *
meters_create(enum meters_names names)
{
    struct meters *meters = calloc(1, sizeof(*meters));
    CHECK(meters != NULL);
    meters->names = names;
    CHECK(pthread_mutex_init(&meters->lock, NULL) == 0);
    meters->methods[METERS_METHODS_MAX] = strdup("other");
    CHECK(meters->methods[METERS_METHODS_MAX] != NULL);
    return meters;
}

void
meters_destroy(struct meters *meters)
{
    if (meters == NULL)
        return;
    for (uint32_t method = 0; method <= METERS_METHODS_MAX; method++) {
        free(meters->methods[method]);
        for (uint32_t code = 0; code < STATUS_COUNT; code++)
            free(atomic_load_explicit(&meters->rows[method][code], memory_order_relaxed));
    }
    CHECK(pthread_mutex_destroy(&meters->lock) == 0);
    free(meters);
}

/* ---- recording ---- */

static const char *
name_of(const struct meters *meters, const char *path)
{
    const char *last = strrchr(path, '/');
    if (meters->names == METERS_SHORT && last != NULL)
        return last + 1;
    return path[0] == '/' ? path + 1 : path;
}

uint32_t
meters_method(struct meters *meters, const char *path)
{
    if (meters == NULL)
        return 0;
    const char *name = name_of(meters, path);
    if (strnlen(name, METERS_METHOD_BYTES_MAX + 1) > METERS_METHOD_BYTES_MAX)
        return METERS_METHODS_MAX;
    CHECK(pthread_mutex_lock(&meters->lock) == 0);
    uint32_t count = atomic_load_explicit(&meters->method_count, memory_order_relaxed);
    uint32_t method = 0;
    while (method < count && strcmp(meters->methods[method], name) != 0)
        method++;
    if (method == count && method < METERS_METHODS_MAX) {
        meters->methods[method] = strdup(name);
        CHECK(meters->methods[method] != NULL);
        atomic_store_explicit(&meters->method_count, count + 1, memory_order_release);
    }
    CHECK(pthread_mutex_unlock(&meters->lock) == 0);
    return method;
}

static struct meter_row *
row_at(struct meters *meters, uint32_t method, uint32_t code)
{
    _Atomic(struct meter_row *) *place = &meters->rows[method][code];
    struct meter_row *row = atomic_load_explicit(place, memory_order_acquire);
    if (row != NULL)
        return row;
    struct meter_row *made = calloc(1, sizeof(*made)); /* once per method and code */
    CHECK(made != NULL);
    if (atomic_compare_exchange_strong(place, &row, made))
        return made;
    free(made);
    return row;
}

static void
add(_Atomic uint64_t *word, uint64_t amount)
{
    atomic_fetch_add_explicit(word, amount, memory_order_relaxed);
}

static void
add_size(struct size_histogram *histogram, uint64_t bytes)
{
    uint32_t bucket = 0;
    while (bucket < SIZES && bytes > sizes[bucket].value)
        bucket++;
    add(&histogram->buckets[bucket], 1);
    add(&histogram->bytes, bytes);
}

void
meters_record(struct meters *meters, enum meter meter, const struct meters_call *call)
{
    if (meters == NULL)
        return;
    CHECK(call->method <= METERS_METHODS_MAX);
    uint32_t code = call->status < STATUS_COUNT ? call->status : STATUS_UNKNOWN;
    struct meter_row *row = row_at(meters, call->method, code);
    uint64_t took_ns = call->took_ns > 0 ? (uint64_t)call->took_ns : 0;
    uint32_t bucket = 0;
    while (bucket < TIMES && took_ns > modelmesh_times[bucket].value)
        bucket++;
    add(&row->took[meter].buckets[bucket], 1);
    add(&row->took[meter].ns, took_ns);
    if (meter == METER_REQUEST) {
        add_size(&row->requests, call->request_bytes);
        add_size(&row->responses, call->response_bytes);
    }
}

/* ---- printing ---- */

/* One histogram of one row. */
struct series {
    const char *family;
    const char *method;
    const char *code;
};

static void
put_series(FILE *out, const struct series *series, const char *suffix)
{
    fprintf(out, "%s%s{method=\"", series->family, suffix);
    metrics_put_escaped(out, series->method);
    fprintf(out, "\",code=\"%s\"", series->code);
}

static void
put_bucket(FILE *out, const struct series *series, const char *bound, uint64_t count)
{
    put_series(out, series, "_bucket");
    fprintf(out, ",le=\"%s\"} %" PRIu64 "\n", bound, count);
}

static void
put_sums(FILE *out, const struct series *series, double sum, uint64_t count)
{
    put_bucket(out, series, "+Inf", count);
    put_series(out, series, "_sum");
    fprintf(out, "} %.15g\n", sum);
    put_series(out, series, "_count");
    fprintf(out, "} %" PRIu64 "\n", count);
}

static uint64_t
get(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static void
put_times(FILE *out, const struct series *series, const struct time_histogram *histogram)
{
    double ms = (double)get(&histogram->ns) / (double)NS_PER_MS;
    uint64_t counts[TIMES + 1];
    uint64_t count = 0;
    for (uint32_t i = 0; i <= TIMES; i++)
        counts[i] = count += get(&histogram->buckets[i]);
    if (count == 0)
        return; /* the call's other record made the row */
    for (uint32_t i = 0; i < TIMES; i++)
        put_bucket(out, series, modelmesh_times[i].text, counts[i]);
    put_sums(out, series, ms, count);
}

static void
put_sizes(FILE *out, const struct series *series, const struct size_histogram *histogram)
{
    uint64_t counts[SIZES + 1];
    uint64_t count = 0;
    for (uint32_t i = 0; i <= SIZES; i++)
        counts[i] = count += get(&histogram->buckets[i]);
    if (count == 0)
        return;
    for (uint32_t i = 0; i < SIZES; i++)
        put_bucket(out, series, sizes[i].text, counts[i]);
    put_sums(out, series, (double)get(&histogram->bytes), count);
}

enum family { FAMILY_REQUEST, FAMILY_SERVED, FAMILY_REQUEST_SIZE, FAMILY_RESPONSE_SIZE, FAMILIES };

static void
put_row(FILE *out, enum family family, const struct series *series, const struct meter_row *row)
{
    switch (family) {
    case FAMILY_REQUEST: put_times(out, series, &row->took[METER_REQUEST]); break;
    case FAMILY_SERVED: put_times(out, series, &row->took[METER_SERVED]); break;
    case FAMILY_REQUEST_SIZE: put_sizes(out, series, &row->requests); break;
    case FAMILY_RESPONSE_SIZE: put_sizes(out, series, &row->responses); break;
    case FAMILIES: break;
    }
}

static void
put_method(const struct meters *meters, FILE *out, enum family family, const char *name,
           uint32_t method)
{
    for (uint32_t code = 0; code < STATUS_COUNT; code++) {
        const struct meter_row *row =
            atomic_load_explicit(&meters->rows[method][code], memory_order_acquire);
        const struct series series = {name, meters->methods[method],
                                      status_name((enum status)code)};
        if (row != NULL)
            put_row(out, family, &series, row);
    }
}

void
meters_print(const struct meters *meters, FILE *out)
{
    static const struct {
        const char *name;
        const char *help;
    } families[FAMILIES] = {
        [FAMILY_REQUEST] = {"modelmesh_api_request_milliseconds",
                            "How long calls for models took, where their callers are"},
        [FAMILY_SERVED] = {"modelmesh_invoke_model_milliseconds",
                           "How long models took for their calls, where they are"},
        [FAMILY_REQUEST_SIZE] = {"modelmesh_request_size_bytes", "Messages of callers"},
        [FAMILY_RESPONSE_SIZE] = {"modelmesh_response_size_bytes", "Messages that callers got"},
    };
    uint32_t count = atomic_load_explicit(&meters->method_count, memory_order_acquire);
    for (enum family family = 0; family < FAMILIES; family++) {
        const char *name = families[family].name;
        metrics_put_head(out, name, "histogram", families[family].help);
        for (uint32_t method = 0; method < count; method++)
            put_method(meters, out, family, name, method);
        put_method(meters, out, family, name, METERS_METHODS_MAX);
    }
}

/* ---- JSON ---- */

static uint64_t
count_of(const struct time_histogram *histogram)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i <= TIMES; i++)
        count += get(&histogram->buckets[i]);
    return count;
}

static void
put_object(const char *method, const char *code, const struct meter_row *row, struct json *json)
{
    json_open(json, '{');
    json_field_string(json, "method", method);
    json_field_string(json, "code", code);
    json_field_uint(json, "calls", count_of(&row->took[METER_REQUEST]));
    json_field_uint(json, "ns", get(&row->took[METER_REQUEST].ns));
    json_field_uint(json, "served", count_of(&row->took[METER_SERVED]));
    json_field_uint(json, "served_ns", get(&row->took[METER_SERVED].ns));
    json_close(json, '}');
}

void
meters_json(const struct meters *meters, struct json *json)
{
    json_open(json, '[');
    for (uint32_t method = 0; meters != NULL && method <= METERS_METHODS_MAX; method++)
        for (uint32_t code = 0; code < STATUS_COUNT; code++) {
            const struct meter_row *row =
                atomic_load_explicit(&meters->rows[method][code], memory_order_acquire);
            if (row != NULL)
                put_object(meters->methods[method], status_name((enum status)code), row, json);
        }
    json_close(json, ']');
}
