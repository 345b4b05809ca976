/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/scan/load_report.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base64.h"
#include "base/check.h"
#include "gateway/scan/json_scan.h"
#include "wire/wire.h"

enum { REPORT_BYTES_MAX = 8192, NAME_BYTES_MAX = 256, NAMED_METRICS = 8 };

static const char report_header[] = "endpoint-load-metrics";
static const char binary_header[] = "endpoint-load-metrics-bin";
static const char queue_header[] = "pending_queue_size";    /* this and the next: the reference's */
static const char active_header[] = "active_lora_adapters"; /* proof of concept's */
const char *const load_report_headers[] = {report_header, binary_header, queue_header,
                                           active_header, NULL};

/* ---- figures ---- */

static bool
is_name(const char *name, size_t bytes, const char *wanted)
{
    return bytes == strlen(wanted) && memcmp(name, wanted, bytes) == 0;
}

static void
take_waiting(struct load_report *report, double value)
{
    report->figures.has_waiting = true;
    report->figures.waiting = (uint32_t)value;
}

static void
take_running(struct load_report *report, double value)
{
    report->figures.has_running = true;
    report->figures.running = (uint32_t)value;
}

static void
take_kv_used(struct load_report *report, double value)
{
    report->figures.has_kv_used = true;
    report->figures.kv_used = value < 1 ? value : 1;
}

static void
take_adapter(struct load_report *report, const char *name, size_t bytes, double value)
{
    struct gateway_report *figures = &report->figures;
    figures->has_adapters = true;
    figures->adapters = report->adapters;
    if (bytes == 0 || figures->adapter_count == GATEWAY_ADAPTERS_MAX)
        return;
    report->adapters[figures->adapter_count++] =
        (struct gateway_adapter){.name = gateway_name_hash(name, bytes),
                                 .state = GATEWAY_ADAPTER_LOADED,
                                 .pending = (uint32_t)value};
}

static const struct named_metric {
    const char *name;
    void (*take)(struct load_report *report, double value);
} known[] = {
    {"requests_waiting", take_waiting},     {"requests_running", take_running},
    {"kv_cache_used_ratio", take_kv_used},  {"num_requests_waiting", take_waiting}, /* vLLM's */
    {"num_requests_running", take_running}, {"kv_cache_usage_perc", take_kv_used},
    {"kv_cache_utilization", take_kv_used}, /* Triton's */
};

static void
take(struct load_report *report, const char *name, size_t bytes, double value)
{
    static const char prefix[] = "adapter_requests.";
    enum { PREFIX_BYTES = sizeof(prefix) - 1 };
    if (!(value >= 0 && value < UINT32_MAX)) /* nor NaN */
        return;
    if (is_name(name, bytes, "adapters_loaded")) { /* none, if no others follow */
        report->figures.has_adapters = true;
        report->figures.adapters = report->adapters;
    } else if (bytes > PREFIX_BYTES && memcmp(name, prefix, PREFIX_BYTES) == 0) {
        take_adapter(report, name + PREFIX_BYTES, bytes - PREFIX_BYTES, value);
    } else {
        for (size_t i = 0; i < ARRAY_COUNT(known); i++)
            if (is_name(name, bytes, known[i].name))
                known[i].take(report, value);
    }
}

/* ---- forms ---- */

/* NAME=VALUE, NAME=VALUE; older servers write colons, which may also be in names. */
static void
read_text(const char *text, struct load_report *report)
{
    static const char prefix[] = "named_metrics.";
    while (*text != '\0') {
        text += strspn(text, ", ");
        size_t length = strcspn(text, ",");
        const char *sign = memchr(text, '=', length);
        if (sign == NULL)
            sign = memchr(text, ':', length);
        if (sign != NULL) {
            bool has_prefix = strncmp(text, prefix, sizeof(prefix) - 1) == 0;
            const char *name = text + (has_prefix ? sizeof(prefix) - 1 : 0);
            char *end;
            double value = strtod(sign + 1, &end);
            if (end != sign + 1 && name < sign)
                take(report, name, (size_t)(sign - name), value);
        }
        text += length;
    }
}

/* {"NAME": VALUE, ...} */
static void
read_object(struct json_span object, struct load_report *report,
            void (*take_member)(struct load_report *report, const char *name, size_t bytes,
                                double value))
{
    struct json_span quoted;
    struct json_span name;
    struct json_span value;
    struct bytes room = {0};
    for (size_t at = 0; json_scan_next_member(object, &at, &quoted, &value);) {
        char *end;
        double number = strtod(value.at, &end); /* the header ends in NUL */
        if (end == value.at + value.bytes && number >= 0 && number < UINT32_MAX &&
            json_span_text(quoted, &room, &name))
            take_member(report, name.at, name.bytes, number);
    }
    bytes_fini(&room);
}

static void
read_json(const char *text, struct load_report *report)
{
    struct json_member named = {.name = "named_metrics"};
    if (json_scan_members(text, strlen(text), &named, 1) == NULL && named.value.at != NULL)
        read_object(named.value, report, take);
}

/* An entry of a map<string, double>: 1 is the key, 2 the value. */
static void
read_entry(struct wire_cursor entry, struct load_report *report)
{
    struct wire_field field;
    char name[NAME_BYTES_MAX];
    size_t bytes = 0;
    double value = -1;
    while (wire_next(&entry, &field) == WIRE_FIELD)
        if (field.number == 1 && field.type == WIRE_BYTES && field.value < sizeof(name)) {
            bytes = (size_t)field.value;
            wire_read(&field.data, name, bytes);
        } else if (field.number == 2 && field.type == WIRE_FIXED64) {
            memcpy(&value, &field.value, sizeof(value));
        }
    take(report, name, bytes, value);
}

/* xds.data.orca.v3.OrcaLoadReport */
static void
read_binary(const char *text, struct load_report *report)
{
    unsigned char data[REPORT_BYTES_MAX];
    char padded[REPORT_BYTES_MAX + 4];
    size_t bytes = strlen(text);
    if (bytes > REPORT_BYTES_MAX)
        return;
    /* NOLINTNEXTLINE(bugprone-not-null-terminated-result): base64_decode takes the length */
    memcpy(padded, text, bytes);
    while (bytes % 4 != 0) /* gRPC leaves the padding out */
        padded[bytes++] = '=';
    if (!base64_decode(padded, bytes, data, &bytes))
        return;
    const struct wire_span span = {data, bytes};
    const struct wire_message message = {&span, 1, bytes};
    struct wire_cursor cursor = wire_begin(&message);
    struct wire_field field;
    while (wire_next(&cursor, &field) == WIRE_FIELD)
        if (field.number == NAMED_METRICS && field.type == WIRE_BYTES)
            read_entry(field.data, report);
}

void
load_report_read(const char *header, const char *value, struct load_report *report)
{
    char *end;
    if (strcasecmp(header, binary_header) == 0) {
        read_binary(value, report);
    } else if (strcasecmp(header, queue_header) == 0) {
        double waiting = strtod(value, &end);
        if (end != value && *end == '\0')
            take(report, "requests_waiting", strlen("requests_waiting"), waiting);
    } else if (strcasecmp(header, active_header) == 0) {
        take(report, "adapters_loaded", strlen("adapters_loaded"), 0);
        read_object((struct json_span){value, strlen(value)}, report, take_adapter);
    } else if (strncasecmp(value, "TEXT ", 5) == 0) {
        read_text(value + 5, report);
    } else if (strncasecmp(value, "JSON ", 5) == 0) {
        read_json(value + 5, report);
    } else if (strncasecmp(value, "BIN ", 4) == 0) {
        read_binary(value + 4, report);
    }
}
