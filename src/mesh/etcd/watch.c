/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A watch: a sequence of streams, each with one watcher of the server per range.
 *
 *   1. Each range has its own position: the next revision to show. Earlier events are not shown
 * again, even if a server that is behind sends them.
 *   2. The position advances with events of complete revisions, and to the last but one progress
 *      report: by the next report everything before it has arrived. (Some versions report progress
 *      ahead of events.)
 *   3. A server that has not reached the position is behind: another one is asked. If all are, the
 *      watch ends.
 *   4. A stream that does not open in time, breaks or stays silent too long is abandoned for
 *      another endpoint: at once the first time, then with growing pauses.
 *   5. A refusal may concern an old token (some versions do not say so): it counts when a new token
 *      is refused as well, by an endpoint that has not failed since.
 *   6. A callback may close the watch: it is freed when the watch's code has returned.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "loop/timer.h"
#include "mesh/etcd/client.h"
#include "mesh/etcd/request.h"

#define PROGRESS_NS (600 * NS_PER_S)
#define CREATE_NS (5 * NS_PER_S)
#define STEADY_NS (5 * NS_PER_S) /* a stream that lasted this long counts as opened */
#define PAUSE_NS_MIN (50LL * NS_PER_MS)

enum { PAUSE_DOUBLINGS_MAX = 16 };

enum watch_state { WATCH_TOKEN, WATCH_PAUSED, WATCH_OPENING, WATCH_OPEN, WATCH_ENDED };

struct etcd_watched {
    struct etcd_range range;
    int64_t next_revision;     /* 0: from now on */
    int64_t progress_revision; /* of the last report */
    bool created;
    struct etcd_watch_line *pieces; /* of incomplete revisions */
    size_t piece_count;
    size_t piece_bytes;
};

struct etcd_watch {
    struct etcd *etcd;
    struct etcd_watch_options options;
    struct etcd_watched ranges[ETCD_RANGES_MAX];
    enum watch_state state;
    struct loop_timer *timer;
    struct etcd_exchange *exchange;
    struct bytes body;
    size_t endpoint; /* of the exchange */
    size_t created_count;
    int64_t opened_ns;
    uint32_t breaks; /* in a row */
    uint32_t behind; /* in a row */
    struct etcd_token_wait token_wait;
    uint64_t token_number;   /* of the stream */
    uint64_t refused_number; /* 0: none since a stream was open */
    uint32_t depth;          /* nesting of callbacks */
    bool closed;
};

static void watch_begin(struct etcd_watch *watch);

/* Allowed transitions. */
static const uint32_t EDGES[] = {
    [WATCH_TOKEN] = 1u << WATCH_OPENING | 1u << WATCH_PAUSED,
    [WATCH_PAUSED] = 1u << WATCH_TOKEN,
    [WATCH_OPENING] = 1u << WATCH_OPEN | 1u << WATCH_PAUSED | 1u << WATCH_TOKEN | 1u << WATCH_ENDED,
    [WATCH_OPEN] = 1u << WATCH_PAUSED | 1u << WATCH_TOKEN | 1u << WATCH_ENDED,
    [WATCH_ENDED] = 0,
};

static void
watch_set(struct etcd_watch *watch, enum watch_state state)
{
    CHECK(EDGES[watch->state] & 1u << state);
    watch->state = state;
}

/* ---- pieces of revisions ---- */

static void
drop_pieces(struct etcd_watched *watched)
{
    for (size_t i = 0; i < watched->piece_count; i++)
        etcd_watch_line_fini(&watched->pieces[i]);
    free(watched->pieces);
    watched->pieces = NULL;
    watched->piece_count = watched->piece_bytes = 0;
}

/* Takes over the line's memory. */
static void
keep_piece(struct etcd_watched *watched, struct etcd_watch_line *line, size_t bytes)
{
    size_t count = watched->piece_count + 1;
    struct etcd_watch_line *pieces = reallocarray(watched->pieces, count, sizeof(*watched->pieces));
    CHECK(pieces != NULL);
    pieces[count - 1] = *line;
    line->arena = (struct bump){0};
    watched->pieces = pieces;
    watched->piece_count = count;
    watched->piece_bytes += bytes;
}

/* ---- life ---- */

static void
stop_stream(struct etcd_watch *watch)
{
    if (watch->exchange != NULL)
        etcd_exchange_cancel(watch->exchange);
    watch->exchange = NULL;
    etcd_token_leave(watch->etcd, &watch->token_wait);
    for (size_t i = 0; i < watch->options.range_count; i++)
        drop_pieces(&watch->ranges[i]);
}

static void
watch_free(struct etcd_watch *watch)
{
    for (size_t i = 0; i < watch->options.range_count; i++)
        etcd_range_free(&watch->ranges[i].range);
    bytes_fini(&watch->body);
    free(watch);
}

void
etcd_watch_close(struct etcd_watch *watch)
{
    CHECK(!watch->closed);
    stop_stream(watch);
    loop_timer_destroy(watch->timer);
    watch->timer = NULL;
    watch->etcd->users--;
    watch->closed = true;
    if (watch->depth == 0)
        watch_free(watch);
}

static void
enter(struct etcd_watch *watch)
{
    watch->depth++;
}

static void
leave(struct etcd_watch *watch)
{
    CHECK(watch->depth > 0);
    if (--watch->depth == 0 && watch->closed)
        watch_free(watch);
}

static void
watch_end(struct etcd_watch *watch, enum etcd_watch_end end, const struct error *error)
{
    stop_stream(watch);
    loop_timer_clear(watch->timer);
    watch_set(watch, WATCH_ENDED);
    watch->options.on_end(watch->options.context, end, error);
}

/* Continues with another stream, after a pause unless this is the first failure. */
static void
watch_again(struct etcd_watch *watch, const struct error *error)
{
    int64_t now_ns = clock_now_ns();
    if (watch->state == WATCH_OPEN && now_ns - watch->opened_ns > STEADY_NS)
        watch->breaks = 0;
    int64_t pause_ns = watch->breaks == 0 ? 0 : PAUSE_NS_MIN << (watch->breaks - 1);
    if (pause_ns > watch->etcd->endpoints.pause_ns_max)
        pause_ns = watch->etcd->endpoints.pause_ns_max;
    if (watch->breaks < PAUSE_DOUBLINGS_MAX)
        watch->breaks++;
    stop_stream(watch);
    watch_set(watch, WATCH_PAUSED);
    loop_timer_set(watch->timer, etcd_endpoints_jitter(&watch->etcd->endpoints, pause_ns));
    if (watch->options.on_trouble != NULL)
        watch->options.on_trouble(watch->options.context, error);
}

static void
watch_break(struct etcd_watch *watch, struct error *error)
{
    struct etcd *etcd = watch->etcd;
    etcd->figures.endpoint_failures++;
    etcd_endpoints_failed(&etcd->endpoints, watch->endpoint, clock_now_ns());
    watch->refused_number = 0; /* the next endpoint may not know the new token either */
    error_prefix(error, "etcd: a watch");
    watch_again(watch, error);
}

/* True: retried with a new token. */
static bool
watch_renew_token(struct etcd_watch *watch)
{
    if (watch->etcd->user == NULL || watch->refused_number != 0)
        return false;
    watch->refused_number = watch->token_number;
    stop_stream(watch);
    watch_begin(watch);
    return true;
}

static void
watch_refused(struct etcd_watch *watch, struct error *error)
{
    if (watch_renew_token(watch))
        return;
    if (error->status == STATUS_PERMISSION_DENIED) {
        error_prefix(error, "etcd: a watch is refused");
        watch_end(watch, ETCD_WATCH_REFUSED, error);
    } else {
        watch_break(watch, error);
    }
}

static void
watch_fail(struct etcd_watch *watch, struct etcd_verdict *verdict)
{
    if (verdict->token_bad || verdict->error.status == STATUS_PERMISSION_DENIED)
        watch_refused(watch, &verdict->error);
    else
        watch_break(watch, &verdict->error);
}

/* ---- messages of the server ---- */

static const char *
watch_url(const struct etcd_watch *watch)
{
    return watch->etcd->endpoints.list[watch->endpoint].url;
}

static int64_t
silence_ns(const struct etcd_watch *watch)
{
    return watch->options.progress_ns / 2 * 5;
}

static void
take_cancel(struct etcd_watch *watch, const struct etcd_watch_line *line)
{
    struct error error = ERROR_NONE;
    if (line->compact_revision > 0) {
        error_set(&error, STATUS_OUT_OF_RANGE,
                  "etcd: a watch: revisions before %" PRId64 " are compacted",
                  line->compact_revision);
        watch_end(watch, ETCD_WATCH_COMPACTED, &error);
        return;
    }
    bool denied = strstr(line->cancel_reason, "permission denied") != NULL;
    bool token = strstr(line->cancel_reason, "auth") != NULL;
    error_set(&error,
              denied  ? STATUS_PERMISSION_DENIED
              : token ? STATUS_UNAUTHENTICATED
                      : STATUS_UNAVAILABLE,
              "%s: the server ended it: %s", watch_url(watch),
              line->cancel_reason[0] != '\0' ? line->cancel_reason : "no reason given");
    if (denied || token)
        watch_refused(watch, &error);
    else
        watch_break(watch, &error);
}

static void
take_behind(struct etcd_watch *watch, int64_t revision, int64_t place)
{
    struct error error = ERROR_NONE;
    watch->behind++;
    watch->etcd->figures.behind++;
    error_set(&error, STATUS_UNAVAILABLE,
              "%s is behind: revision %" PRId64 " after %" PRId64 " was seen", watch_url(watch),
              revision, place);
    if (watch->behind >= 2 && watch->behind >= watch->etcd->endpoints.count)
        watch_end(watch, ETCD_WATCH_BEHIND, &error);
    else
        watch_break(watch, &error);
}

static void
take_created(struct etcd_watch *watch, struct etcd_watched *watched, int64_t revision)
{
    if (watched->next_revision == 0)
        watched->next_revision = revision + 1; /* where the next stream would resume */
    if (revision < watched->next_revision - 1) {
        take_behind(watch, revision, watched->next_revision - 1);
        return;
    }
    watch->created_count += !watched->created;
    watched->created = true;
    if (watch->created_count < watch->options.range_count || watch->state == WATCH_OPEN)
        return;
    watch_set(watch, WATCH_OPEN);
    watch->opened_ns = clock_now_ns();
    loop_timer_set(watch->timer, silence_ns(watch));
    watch->behind = 0;
    watch->refused_number = 0;
    etcd_endpoints_worked(&watch->etcd->endpoints, watch->endpoint);
    if (watch->options.on_open != NULL)
        watch->options.on_open(watch->options.context);
}

/* Copies new events with revisions below `before`, in order; returns their number. */
static size_t
take_new(const struct etcd_watched *watched, int64_t before, int64_t *last,
         const struct etcd_watch_line *line, struct etcd_event *to)
{
    size_t count = 0;
    for (size_t i = 0; i < line->event_count; i++) {
        int64_t revision = line->events[i].kv.mod_revision;
        if (revision < watched->next_revision || revision < *last || revision >= before)
            continue;
        *last = revision;
        to[count++] = line->events[i];
    }
    return count;
}

/* Shows events with revisions below `before` of the fragments, which are dropped, and of the line.
 */
static void
show_events(struct etcd_watch *watch, struct etcd_watched *watched,
            const struct etcd_watch_line *line, int64_t before)
{
    struct etcd_watched whole =
        *watched; /* valid until the callback returns, even if it closes this */
    watched->pieces = NULL;
    watched->piece_count = watched->piece_bytes = 0;
    size_t room = line->event_count;
    for (size_t i = 0; i < whole.piece_count; i++)
        room += whole.pieces[i].event_count;
    struct etcd_event *events = calloc(room, sizeof(*events));
    CHECK(events != NULL);
    size_t count = 0;
    int64_t last = 0;
    for (size_t i = 0; i < whole.piece_count; i++)
        count += take_new(&whole, before, &last, &whole.pieces[i], events + count);
    count += take_new(&whole, before, &last, line, events + count);
    CHECK(count <= room);
    if (count > 0) {
        CHECK(last >= watched->next_revision); /* rule 1 */
        watched->next_revision = last + 1;
        watch->options.on_events(watch->options.context, (size_t)(watched - watch->ranges), events,
                                 count);
    }
    free(events);
    drop_pieces(&whole);
}

static int64_t
last_revision(const struct etcd_watch_line *line)
{
    return line->events[line->event_count - 1].kv.mod_revision;
}

/* A fragment's last revision may continue in the next; earlier ones are complete and shown at once:
 * a server may send the events of hours in fragments, more than is kept. */
static void
take_events(struct etcd_watch *watch, struct etcd_watched *watched, struct etcd_watch_line *line,
            size_t bytes)
{
    if (!line->fragment) {
        show_events(watch, watched, line, INT64_MAX);
        return;
    }
    int64_t last = last_revision(line);
    size_t pieces = watched->piece_count;
    if (pieces == 0 || last_revision(&watched->pieces[pieces - 1]) < last)
        show_events(watch, watched, line, last);
    if (watch->closed)
        return;
    keep_piece(watched, line, bytes);
    if (watched->piece_bytes > watch->etcd->pieces_bytes_max) {
        struct error error = ERROR_NONE;
        error_set(&error, STATUS_RESOURCE_EXHAUSTED, "%s: one revision is longer than %zu bytes",
                  watch_url(watch), watch->etcd->pieces_bytes_max);
        watch_break(watch, &error);
    }
}

static void
take_progress(struct etcd_watch *watch, struct etcd_watched *watched, int64_t revision)
{
    if (watched->piece_count > 0 || revision < watched->next_revision - 1)
        return;
    if (watched->progress_revision >= watched->next_revision)
        watched->next_revision = watched->progress_revision + 1;
    watched->progress_revision = revision;
    if (watch->options.on_progress != NULL)
        watch->options.on_progress(watch->options.context, (size_t)(watched - watch->ranges),
                                   revision);
}

static void
take_line(struct etcd_watch *watch, struct etcd_watch_line *line, size_t bytes)
{
    struct etcd_answer header = {.revision = line->revision, .cluster_id = line->cluster_id};
    struct error error = ERROR_NONE;
    if (line->failed) {
        watch_fail(watch, &line->failure);
        return;
    }
    if (!etcd_cluster_seen(watch->etcd, watch->endpoint, &header, 0, &error)) {
        watch_break(watch, &error);
        return;
    }
    if (line->canceled) {
        take_cancel(watch, line);
        return;
    }
    if (line->watch_id < 1 || line->watch_id > (int64_t)watch->options.range_count)
        return; /* not one of our watchers */
    struct etcd_watched *watched = &watch->ranges[line->watch_id - 1];
    if (watch->state == WATCH_OPEN)
        loop_timer_set(watch->timer, silence_ns(watch));
    if (line->created)
        take_created(watch, watched, line->revision);
    else if (line->event_count > 0)
        take_events(watch, watched, line, bytes);
    else
        take_progress(watch, watched, line->revision);
}

static void
on_line(void *context, const char *text, size_t bytes)
{
    struct etcd_watch *watch = context;
    struct etcd_watch_line line;
    struct error error = ERROR_NONE;
    enter(watch);
    if (etcd_watch_line_read(watch_url(watch), text, bytes, &line, &error) == STATUS_OK)
        take_line(watch, &line, bytes);
    else
        watch_break(watch, &error);
    etcd_watch_line_fini(&line);
    leave(watch);
}

static void
on_stream_end(void *context, const struct etcd_exchange_end *end)
{
    struct etcd_watch *watch = context;
    struct etcd_verdict verdict = {.error = end->error};
    watch->exchange = NULL;
    enter(watch);
    if (end->http_status == 200)
        error_set(&verdict.error, STATUS_UNAVAILABLE, "%s closed the stream", watch_url(watch));
    else if (end->http_status != 0)
        etcd_answer_judge(watch_url(watch), end->http_status, end->answer, end->answer_bytes,
                          &verdict);
    watch_fail(watch, &verdict);
    leave(watch);
}

/* ---- streams ---- */

static void
watch_stream(struct etcd_watch *watch)
{
    struct etcd *etcd = watch->etcd;
    watch_set(watch, WATCH_OPENING);
    watch->endpoint = etcd->endpoints.current;
    watch->token_number = etcd->token_number;
    watch->created_count = 0;
    bytes_fini(&watch->body);
    for (size_t i = 0; i < watch->options.range_count; i++) {
        struct etcd_watched *watched = &watch->ranges[i];
        watched->created = false;
        watched->progress_revision = 0;
        etcd_request_watch(&watch->body, &watched->range, (int64_t)i + 1, watched->next_revision);
    }
    CHECK(!watch->body.failed);
    etcd->figures.streams++;
    loop_timer_set(watch->timer, watch->options.create_ns);
    watch->exchange =
        etcd_exchange_start(etcd->wire, &(struct etcd_exchange_request){
                                            .endpoint = etcd->endpoints.list[watch->endpoint].url,
                                            .path = "/v3/watch",
                                            .token = etcd->token,
                                            .body = watch->body.data,
                                            .body_bytes = watch->body.used,
                                            .form = ETCD_ANSWER_LINES,
                                            .on_line = on_line,
                                            .on_end = on_stream_end,
                                            .context = watch,
                                        });
}

static void
on_token(void *context, const struct error *error)
{
    struct etcd_watch *watch = context;
    if (error != NULL) {
        struct error prefixed = *error;
        enter(watch);
        error_prefix(&prefixed, "etcd: a watch");
        watch_again(watch, &prefixed);
        leave(watch);
        return;
    }
    int64_t wait_ns = etcd_endpoints_wait_ns(&watch->etcd->endpoints, clock_now_ns());
    if (wait_ns == 0) {
        watch_stream(watch);
        return;
    }
    watch_set(watch, WATCH_PAUSED);
    loop_timer_set(watch->timer, wait_ns);
}

static void
watch_begin(struct etcd_watch *watch)
{
    watch_set(watch, WATCH_TOKEN);
    loop_timer_clear(watch->timer); /* the call for the token has its own timeout */
    watch->token_wait.on_token = on_token;
    watch->token_wait.context = watch;
    etcd_token_get(watch->etcd, watch->refused_number, &watch->token_wait);
}

static void
on_time(void *context)
{
    struct etcd_watch *watch = context;
    struct error error = ERROR_NONE;
    enter(watch);
    switch (watch->state) {
    case WATCH_PAUSED: watch_begin(watch); break;
    case WATCH_OPENING:
        error_set(&error, STATUS_DEADLINE_EXCEEDED, "%s did not open it in time", watch_url(watch));
        watch_break(watch, &error);
        break;
    case WATCH_OPEN:
        error_set(&error, STATUS_DEADLINE_EXCEEDED, "%s is silent: no progress was reported",
                  watch_url(watch));
        watch_break(watch, &error);
        break;
    case WATCH_TOKEN:
    case WATCH_ENDED: UNREACHABLE();
    }
    leave(watch);
}

enum status
etcd_ranges_check(const struct etcd_range *ranges, size_t count, struct error *error)
{
    if (count == 0 || count > ETCD_RANGES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "etcd: %zu ranges, 1 to %d are allowed",
                         count, ETCD_RANGES_MAX);
    for (size_t i = 0; i < count; i++)
        if (ranges[i].span == ETCD_ONE && ranges[i].key.bytes == 0)
            return error_set(error, STATUS_INVALID_ARGUMENT, "etcd: range %zu has no key", i);
    return STATUS_OK;
}

enum status
etcd_watch_open(struct etcd *etcd, const struct etcd_watch_options *options,
                struct etcd_watch **opened, struct error *error)
{
    if (etcd_ranges_check(options->ranges, options->range_count, error) != STATUS_OK)
        return error->status;
    if (options->revision < 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "etcd: a watch's revision is negative");
    if (options->progress_ns < 0 || options->progress_ns > ETCD_TIME_NS_MAX ||
        options->create_ns < 0 || options->create_ns > ETCD_TIME_NS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "etcd: a watch's time is negative or longer than a year");
    struct etcd_watch *watch = calloc(1, sizeof(*watch));
    CHECK(watch != NULL);
    watch->etcd = etcd;
    watch->options = *options;
    if (options->progress_ns == 0)
        watch->options.progress_ns = PROGRESS_NS;
    if (options->create_ns == 0)
        watch->options.create_ns = CREATE_NS;
    for (size_t i = 0; i < options->range_count; i++) {
        watch->ranges[i].range = etcd_range_copy(&options->ranges[i]);
        watch->ranges[i].next_revision = options->revision;
    }
    watch->options.ranges = NULL;
    watch->timer = loop_timer_create(etcd->base, on_time, watch);
    etcd->users++;
    watch_set(watch, WATCH_PAUSED);
    loop_timer_set(watch->timer, 0);
    *opened = watch;
    return STATUS_OK;
}
