/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "mesh/record/record.h"

enum { SETTING_BYTES_MAX = 63, RATE_FOR_MORE_MIN = 10, RATE_FOR_MORE_MAX = 1000000000 };

static const char *const names[RECORD_SETTING_NONE] = {
    [RECORD_LOG_LEVEL] = "logger_level",
    [RECORD_LOG_CALLS] = "log_each_invocation",
    [RECORD_TELL_DESTINATION] = "send_destination_id",
    [RECORD_RATE_FOR_MORE] = "scaleup_rpm_threshold",
    [RECORD_DISABLED] = "disable",
};

/* ModelMesh's levels and ours. */
static const struct {
    const char *name;
    enum log_level level;
} log_levels[] = {
    {"OFF", LOG_ERROR}, {"FATAL", LOG_ERROR}, {"ERROR", LOG_ERROR}, {"WARN", LOG_WARN},
    {"INFO", LOG_INFO}, {"DEBUG", LOG_DEBUG}, {"TRACE", LOG_DEBUG}, {"ALL", LOG_DEBUG},
};

enum record_setting_kind
record_setting_kind(const char *name)
{
    for (enum record_setting_kind kind = 0; kind < RECORD_SETTING_NONE; kind++)
        if (strcmp(names[kind], name) == 0)
            return kind;
    return RECORD_SETTING_NONE;
}

static enum status
read_level(const char *text, enum log_level *level, struct error *error)
{
    for (size_t i = 0; i < ARRAY_COUNT(log_levels); i++)
        if (strcasecmp(log_levels[i].name, text) == 0) {
            *level = log_levels[i].level;
            return STATUS_OK;
        }
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "\"%s\" is not one of OFF, FATAL, ERROR, WARN, INFO, DEBUG, TRACE, ALL", text);
}

static enum status
read_bool(const char *text, bool *on, struct error *error)
{
    *on = strcasecmp(text, "true") == 0;
    if (*on || strcasecmp(text, "false") == 0)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "\"%s\" is neither true nor false", text);
}

static enum status
read_rate(const char *text, uint32_t *number, struct error *error)
{
    char *end;
    long rate = strtol(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || rate < RATE_FOR_MORE_MIN ||
        rate > RATE_FOR_MORE_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "\"%s\" is not a number of calls a minute from %d to %d", text,
                         RATE_FOR_MORE_MIN, RATE_FOR_MORE_MAX);
    *number = (uint32_t)rate;
    return STATUS_OK;
}

static enum status
read_text(const char *text, struct record_setting *setting, struct error *error)
{
    switch (setting->kind) {
    case RECORD_LOG_LEVEL: return read_level(text, &setting->log_level, error);
    case RECORD_LOG_CALLS:
    case RECORD_TELL_DESTINATION: return read_bool(text, &setting->on, error);
    case RECORD_RATE_FOR_MORE: return read_rate(text, &setting->number, error);
    case RECORD_DISABLED: setting->on = strcasecmp(text, "false") != 0; return STATUS_OK;
    case RECORD_SETTING_NONE: break;
    }
    UNREACHABLE();
}

enum status
record_setting_read(enum record_setting_kind kind, const void *value, size_t bytes,
                    struct record_setting *setting, struct error *error)
{
    char text[SETTING_BYTES_MAX + 1];
    struct record_setting read = {.kind = kind};
    CHECK(kind < RECORD_SETTING_NONE);
    error_clear(error);
    if (bytes > SETTING_BYTES_MAX || (bytes > 0 && memchr(value, '\0', bytes) != NULL))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "config/%s: its value is longer than %d bytes, or not text", names[kind],
                         SETTING_BYTES_MAX);
    if (bytes > 0)
        memcpy(text, value, bytes);
    text[bytes] = '\0';
    if (read_text(text, &read, error) != STATUS_OK)
        return error_prefix(error, "config/%s", names[kind]);
    *setting = read;
    return STATUS_OK;
}
