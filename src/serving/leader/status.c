/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "serving/leader/inside.h"

enum { EVENTS_MAX = 8, MESSAGE_BYTES_MAX = 1024 };

/* ---- fields ---- */

/* RFC 3339, in seconds. */
static void
put_time(struct json *json, const char *name, int64_t ms)
{
    char text[32];
    struct tm parts;
    time_t seconds = (time_t)(ms / 1000);
    if (gmtime_r(&seconds, &parts) == NULL ||
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
        return;
    json_field_string(json, name, text);
}

static void
put_message(struct json *json, const char *message)
{
    size_t bytes = strlen(message);
    json_name(json, "message");
    json_put_text(json, message, bytes < MESSAGE_BYTES_MAX ? bytes : MESSAGE_BYTES_MAX);
}

static void
put_failure(struct json *json, const struct serving_status *status, const char *model)
{
    if (status->reason == NULL)
        return;
    json_field_open(json, "lastFailureInfo", '{');
    if (status->location != NULL)
        json_field_string(json, "location", status->location);
    json_field_string(json, "reason", status->reason);
    put_message(json, status->message != NULL ? status->message : "");
    json_field_string(json, model, status->model);
    if (status->failed_ms > 0)
        put_time(json, "time", status->failed_ms);
    json_close(json, '}');
}

static void
put_condition(struct json *json, const char *type, const struct serving_status *status,
              int64_t since_ms)
{
    json_open(json, '{');
    json_field_string(json, "type", type);
    json_field_string(json, "status", status->available ? "True" : "False");
    put_time(json, "lastTransitionTime", since_ms);
    if (!status->available && status->reason != NULL) {
        json_field_string(json, "reason", status->reason);
        put_message(json, status->message != NULL ? status->message : "");
    }
    json_close(json, '}');
}

static void
put_service(struct json *json, const struct serving_status *status, const char *url,
            int64_t since_ms)
{
    json_field_open(json, "conditions", '[');
    put_condition(json, "PredictorReady", status, since_ms);
    put_condition(json, "Ready", status, since_ms);
    json_close(json, ']');
    json_field_open(json, "modelStatus", '{');
    json_field_open(json, "copies", '{');
    json_field_uint(json, "failedCopies", status->failed_copies);
    json_field_uint(json, "totalCopies", status->copies);
    json_close(json, '}');
    put_failure(json, status, "modelRevisionName");
    json_field_open(json, "states", '{');
    json_field_string(json, "activeModelState", status->active);
    json_field_string(json, "targetModelState", status->target);
    json_close(json, '}');
    json_field_string(json, "transitionStatus", status->transition);
    json_close(json, '}');
    if (url != NULL && status->available)
        json_field_string(json, "url", url);
}

static void
put_predictor(struct json *json, const struct serving_status *status)
{
    json_field_string(json, "activeModelState", status->active);
    json_field_bool(json, "available", status->available);
    json_field_uint(json, "failedCopies", status->failed_copies);
    put_failure(json, status, "modelId");
    json_field_string(json, "targetModelState", status->target);
    json_field_uint(json, "totalCopies", status->copies);
    json_field_string(json, "transitionStatus", status->transition);
}

void
serving_status_write(enum serving_form form, const struct serving_status *status, const char *url,
                     int64_t since_ms, struct bytes *to)
{
    struct json json = json_begin(to, JSON_STYLE_ANY);
    json_open(&json, '{');
    if (form == SERVING_PREDICTOR)
        put_predictor(&json, status);
    else
        put_service(&json, status, url, since_ms);
    json_close(&json, '}');
}

/* ---- events ---- */

/* Returns where the last `count` events begin; each begins with its time. */
static const char *
last_events(const struct status_record *former, uint32_t count)
{
    static const char mark[] = "\"},{\"time\"";
    const char *starts[EVENTS_MAX] = {NULL};
    const char *at = former->events + 1;
    const char *end = former->events + former->events_bytes - 1;
    uint32_t seen = 0;
    for (const char *next = at; next != NULL; at = next) {
        starts[seen++ % count] = at;
        next = memmem(at, (size_t)(end - at), mark, strlen(mark));
        next = next != NULL ? next + strlen("\"},") : NULL;
    }
    return starts[seen > count ? seen % count : 0];
}

void
serving_events_write(const struct status_record *former, const struct serving_status *status,
                     int64_t now_ms, struct bytes *to)
{
    struct json json = json_begin(to, JSON_STYLE_ANY);
    bool failed = status->reason != NULL;
    char text[128] = "";
    json_open(&json, '[');
    if (former->events_bytes > 2) {
        const char *first = last_events(former, EVENTS_MAX - 1);
        const char *end = former->events + former->events_bytes - 1;
        json_put_raw(&json, first, (size_t)(end - first));
    }
    snprintf(text, sizeof(text), "%s%s%s, %s", status->active,
             status->target[0] != '\0' ? ", next " : "", status->target, status->transition);
    json_open(&json, '{');
    put_time(&json, "time", now_ms);
    json_field_string(&json, "type", failed ? "Warning" : "Normal");
    json_field_string(&json, "reason", failed ? status->reason : status->active);
    put_message(&json, failed && status->message != NULL ? status->message : text);
    json_close(&json, '}');
    json_close(&json, ']');
}
