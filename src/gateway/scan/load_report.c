/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/scan/load_report.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base64.h"
#include "base/check.h"
#include "gateway/scan/json_scan.h"
#include "wire/wire.h"

enum { REPORT_BYTES_MAX = 4096, NAMED_METRICS = 8 };

static const char report_header[] = "endpoint-load-metrics";
static const char binary_header[] = "endpoint-load-metrics-bin";
static const char queue_header[] = "pending_queue_size";
const char *const load_report_headers[] = {report_header, binary_header, queue_header, NULL};

static void
take(struct gateway_report *report, const char *name, size_t bytes, double value)
{
    static const char *const waiting[] = {"num_requests_waiting"}; /* vLLM's */
    static const char *const kv_used[] = {"kv_cache_usage_perc", "kv_cache_utilization"};
    if (!(value >= 0 && value < UINT32_MAX)) /* nor NaN */
        return;
    for (size_t i = 0; i < ARRAY_COUNT(waiting); i++)
        if (strlen(waiting[i]) == bytes && memcmp(name, waiting[i], bytes) == 0) {
            report->has_waiting = true;
            report->waiting = (uint32_t)value;
        }
    for (size_t i = 0; i < ARRAY_COUNT(kv_used); i++)
        if (strlen(kv_used[i]) == bytes && memcmp(name, kv_used[i], bytes) == 0) {
            report->has_kv_used = true;
            report->kv_used = value < 1 ? value : 1;
        }
}

/* NAME=VALUE, NAME=VALUE; older servers write colons. */
static void
read_text(const char *text, struct gateway_report *report)
{
    static const char prefix[] = "named_metrics.";
    while (*text != '\0') {
        text += strspn(text, ", ");
        size_t bytes = strcspn(text, "=:,");
        if (text[bytes] == '=' || text[bytes] == ':') {
            bool has_prefix = strncmp(text, prefix, sizeof(prefix) - 1) == 0;
            size_t skipped = has_prefix ? sizeof(prefix) - 1 : 0;
            char *end;
            double value = strtod(text + bytes + 1, &end);
            if (end != text + bytes + 1)
                take(report, text + skipped, bytes - skipped, value);
        }
        text += strcspn(text, ",");
    }
}

static void
read_json(const char *text, struct gateway_report *report)
{
    static const char *const names[] = {"num_requests_waiting", "kv_cache_usage_perc",
                                        "kv_cache_utilization"};
    struct json_member named = {.name = "named_metrics"};
    if (json_scan_members(text, strlen(text), &named, 1) != NULL || named.value.at == NULL)
        return;
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        struct json_member member = {.name = names[i]};
        char *end;
        if (json_scan_members(named.value.at, named.value.bytes, &member, 1) != NULL ||
            member.value.at == NULL)
            continue;
        double value = strtod(member.value.at, &end); /* the header ends in NUL */
        if (end == member.value.at + member.value.bytes)
            take(report, names[i], strlen(names[i]), value);
    }
}

/* An entry of a map<string, double>: 1 is the key, 2 the value. */
static void
read_entry(struct wire_cursor entry, struct gateway_report *report)
{
    struct wire_field field;
    char name[32];
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
read_binary(const char *text, struct gateway_report *report)
{
    unsigned char data[REPORT_BYTES_MAX];
    size_t bytes = strlen(text);
    if (bytes > REPORT_BYTES_MAX || !base64_decode(text, bytes, data, &bytes))
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
load_report_read(const char *header, const char *value, struct gateway_report *report)
{
    char *end;
    if (strcasecmp(header, binary_header) == 0) {
        read_binary(value, report);
    } else if (strcasecmp(header, queue_header) == 0) {
        double waiting = strtod(value, &end);
        if (end != value && *end == '\0')
            take(report, "num_requests_waiting", strlen("num_requests_waiting"), waiting);
    } else if (strncasecmp(value, "TEXT ", 5) == 0) {
        read_text(value + 5, report);
    } else if (strncasecmp(value, "JSON ", 5) == 0) {
        read_json(value + 5, report);
    } else if (strncasecmp(value, "BIN ", 4) == 0) {
        read_binary(value + 4, report);
    }
}
