/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/dashboard/recent_events.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"

enum { TEXT_BYTES = 248 };

struct recent_event {
    int64_t time_ms;
    enum log_level level;
    uint16_t bytes;
    char text[TEXT_BYTES];
};

struct recent_events {
    pthread_mutex_t lock;
    uint64_t newest; /* number of the newest event; 0: there is none */
    struct recent_event events[RECENT_EVENTS_MAX];
};

/* Static: a thread that logs may still be in `take` when the owner is done. */
static struct recent_events kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
take(enum log_level level, const char *text, size_t bytes)
{
    struct recent_events *events = &kept;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    CHECK(pthread_mutex_lock(&events->lock) == 0);
    struct recent_event *event = &events->events[++events->newest % RECENT_EVENTS_MAX];
    event->time_ms = now.tv_sec * 1000 + now.tv_nsec / NS_PER_MS;
    event->level = level;
    event->bytes = (uint16_t)(bytes < TEXT_BYTES ? bytes : TEXT_BYTES);
    memcpy(event->text, text, event->bytes);
    CHECK(pthread_mutex_unlock(&events->lock) == 0);
}

struct recent_events *
recent_events_start(void)
{
    CHECK(pthread_mutex_lock(&kept.lock) == 0);
    kept.newest = 0;
    CHECK(pthread_mutex_unlock(&kept.lock) == 0);
    log_set_tap(take);
    return &kept;
}

void
recent_events_stop(void)
{
    log_set_tap(NULL);
}

static const char *
level_name(enum log_level level)
{
    return level == LOG_ERROR ? "error" : level == LOG_WARN ? "warn" : "info";
}

uint64_t
recent_events_json(struct recent_events *events, uint64_t after, struct json *json)
{
    CHECK(pthread_mutex_lock(&events->lock) == 0);
    uint64_t newest = events->newest;
    uint64_t first = newest > RECENT_EVENTS_MAX ? newest - RECENT_EVENTS_MAX + 1 : 1;
    if (after < newest && after + 1 > first)
        first = after + 1;
    json_open(json, '[');
    for (uint64_t number = first; number <= newest && after < newest; number++) {
        const struct recent_event *event = &events->events[number % RECENT_EVENTS_MAX];
        json_open(json, '{');
        json_field_uint(json, "number", number);
        json_field_int(json, "time_ms", event->time_ms);
        json_field_string(json, "level", level_name(event->level));
        json_name(json, "text");
        json_put_text(json, event->text, event->bytes);
        json_close(json, '}');
    }
    json_close(json, ']');
    CHECK(pthread_mutex_unlock(&events->lock) == 0);
    return newest;
}
