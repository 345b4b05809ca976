/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/telemetry/tracer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "coordinator/telemetry/trace_backlog.h"
#include "coordinator/telemetry/trace_json.h"
#include "coordinator/telemetry/trace_log.h"
#include "coordinator/telemetry/trace_pool.h"
#include "coordinator/telemetry/trace_sink.h"
#include "ipc/counters.h"
#include "shm/doorbell.h"

/* Limits of one export. */
enum { EXPORT_TRACES_MAX = 128, HOST_NAME_BYTES = 256 };

#define COMPLAINT_NS (60 * NS_PER_S)
#define SLEEP_NS (3600 * NS_PER_S)

struct tracer {
    struct tracer_options options;
    struct trace_pool pool;
    struct shm_doorbell bell;
    struct trace_sink *sink; /* NULL: no spans are made */
    _Atomic uint64_t calls;  /* for access_log */
    pthread_t thread;
    _Atomic int64_t end_ns; /* TIME_NEVER_NS: not ending */
    /* the writer's */
    char host_name[HOST_NAME_BYTES];
    struct backlog backlog;
    bool failing;
    int64_t complained_ns;
};

/* ---- on the request path ---- */

static uint64_t
draw_seed(void)
{
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
        seed = (uint64_t)clock_now_ns();
    return seed | 1; /* 0: not drawn yet */
}

/* splitmix64, one state per thread: no secret depends on which calls are sampled. */
static bool
samples(const struct tracer *tracer)
{
    static _Thread_local uint64_t state;
    if (tracer->options.sample == 0)
        return false;
    if (state == 0)
        state = draw_seed();
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) >> 32 < tracer->options.sample;
}

unsigned
tracer_uses(struct tracer *tracer, const struct traceparent *parent)
{
    const struct tracer_options *options = &tracer->options;
    bool spans = options->target != NULL && (parent != NULL ? parent->sampled : samples(tracer));
    bool line =
        options->access_log > 0 &&
        atomic_fetch_add_explicit(&tracer->calls, 1, memory_order_relaxed) % options->access_log ==
            0;
    return (spans ? TRACE_SPANS : 0u) | (line ? TRACE_LINE : 0u);
}

struct trace *
tracer_begin(struct tracer *tracer, const struct trace_origin *origin,
             const struct trace_context *context, unsigned uses)
{
    struct trace *trace = trace_pool_take(&tracer->pool);
    _Atomic uint64_t *counters = tracer->options.counters;
    if (trace == NULL) {
        if ((uses & TRACE_SPANS) != 0)
            counter_add_shared(counters, NODE_TRACES_DROPPED, 1);
        if ((uses & TRACE_LINE) != 0)
            counter_add_shared(counters, NODE_CALL_LINES_DROPPED, 1);
        return NULL;
    }
    if ((uses & TRACE_SPANS) != 0)
        counter_add_shared(counters, NODE_TRACES, 1);
    trace->tracer = tracer;
    trace->uses = uses;
    trace->origin = origin;
    trace->has_parent = context != NULL;
    if (context != NULL)
        trace->context = *context;
    trace->pipeline[0] = '\0';
    trace->model[0] = '\0';
    trace->request[0] = '\0';
    trace->admitted = false;
    trace->began_ns = clock_now_ns();
    return trace;
}

void
tracer_end(struct trace *trace, enum status status, const char *text)
{
    struct tracer *tracer = trace->tracer;
    trace->ended_ns = clock_now_ns();
    trace->status = status;
    trace_copy_text(trace->text, sizeof(trace->text), text);
    trace_pool_hand_over(&tracer->pool, trace);
    /* The only wake: the writer's bell is armed only while it has nothing to do, and a woken writer
     * naps before it looks. */
    doorbell_ring(&tracer->bell);
}

/* ---- the writer: making exports ---- */

static int64_t
unix_offset_ns(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    return now.tv_sec * NS_PER_S + now.tv_nsec - clock_now_ns();
}

static void
draw_ids(struct trace_ids *ids)
{
    char *bytes = (char *)ids;
    size_t drawn = 0;
    while (drawn < sizeof(*ids)) {
        ssize_t got = getrandom(bytes + drawn, sizeof(*ids) - drawn, 0);
        if (got > 0)
            drawn += (size_t)got;
    }
}

static void
put_export(struct tracer *tracer, struct trace_export *export, uint32_t spans)
{
    struct backlog_export made = {.spans = spans};
    made.text = trace_export_finish(export, &made.bytes);
    uint64_t dropped = backlog_put(&tracer->backlog, made);
    counter_add_shared(tracer->options.counters, NODE_SPANS_DROPPED, dropped);
}

/* Takes all records handed over. Returns their number. */
static uint32_t
make_exports(struct tracer *tracer)
{
    struct trace_resource resource = {.service_name = "shoald",
                                      .service_version = tracer->options.version,
                                      .host_name = tracer->host_name,
                                      .pid = getpid()};
    struct trace_export *export = NULL;
    uint32_t count = 0;
    uint32_t spans = 0;
    int64_t offset_ns = unix_offset_ns();
    uint32_t list = trace_pool_collect(&tracer->pool);
    for (struct trace *trace; (trace = trace_pool_step(&tracer->pool, &list)) != NULL; count++) {
        struct trace_ids ids;
        draw_ids(&ids);
        if ((trace->uses & TRACE_LINE) != 0 && !trace_log(trace, &ids))
            counter_add_shared(tracer->options.counters, NODE_CALL_LINES_DROPPED, 1);
        if ((trace->uses & TRACE_SPANS) != 0) {
            if (export == NULL)
                export = trace_export_create(&resource);
            spans += trace_export_add(export, trace, &ids, offset_ns);
        }
        trace_pool_give(&tracer->pool, trace);
        if ((count + 1) % EXPORT_TRACES_MAX == 0 && export != NULL) {
            put_export(tracer, export, spans);
            export = NULL;
            spans = 0;
        }
    }
    if (export != NULL)
        put_export(tracer, export, spans);
    return count;
}

/* ---- the writer: sending them ---- */

/* Logs a lasting failure once a minute. */
static void
complain(struct tracer *tracer, const char *action, const struct error *error, int64_t now_ns)
{
    bool first = !tracer->failing;
    tracer->failing = true;
    if (!first && now_ns - tracer->complained_ns < COMPLAINT_NS)
        return;
    tracer->complained_ns = now_ns;
    log_warn("traces_not_exported action=%s waiting_spans=%llu error=\"%s\"", action,
             (unsigned long long)backlog_spans(&tracer->backlog), error->text);
}

static void
on_taken(struct tracer *tracer, uint32_t spans, uint64_t rejected)
{
    if (rejected > spans)
        rejected = spans;
    counter_add_shared(tracer->options.counters, NODE_SPANS_EXPORTED, spans - rejected);
    counter_add_shared(tracer->options.counters, NODE_SPANS_DROPPED, rejected);
    backlog_pop(&tracer->backlog);
    if (tracer->failing)
        log_info("traces_exported_again waiting_spans=%llu",
                 (unsigned long long)backlog_spans(&tracer->backlog));
    tracer->failing = false;
}

/* Records are scarcer than memory: they are emptied even while a collector keeps the writer
 * waiting. */
static void
while_sending(void *context)
{
    (void)make_exports(context);
}

/* Tries the oldest export. False: to be retried later. */
static bool
send_first(struct tracer *tracer)
{
    const struct backlog_export *first = backlog_first(&tracer->backlog);
    struct trace_sink_answer answer = {.error = ERROR_NONE};
    uint32_t spans = first->spans;
    backlog_send(&tracer->backlog);
    switch (tracer->sink->send(tracer->sink, first->text, first->bytes, &answer)) {
    case SINK_TAKEN: on_taken(tracer, spans, answer.rejected); return true;
    case SINK_LATER:
        counter_add_shared(tracer->options.counters, NODE_EXPORTS_FAILED, 1);
        backlog_later(&tracer->backlog, clock_now_ns(), answer.said_ns);
        complain(tracer, "later", &answer.error, clock_now_ns());
        return false;
    case SINK_REFUSED:
        counter_add_shared(tracer->options.counters, NODE_EXPORTS_FAILED, 1);
        counter_add_shared(tracer->options.counters, NODE_SPANS_DROPPED, spans);
        backlog_pop(&tracer->backlog);
        complain(tracer, "dropped", &answer.error, clock_now_ns());
        return true;
    }
    UNREACHABLE();
}

/* ---- the writer: its loop ---- */

static bool
is_ending(const struct tracer *tracer)
{
    return atomic_load(&tracer->end_ns) != TIME_NEVER_NS;
}

/* Sleeps; only the end wakes it. */
static void
nap(struct tracer *tracer, int64_t nap_ns)
{
    uint32_t prepared = doorbell_prepare(&tracer->bell);
    doorbell_cancel(&tracer->bell);
    if (!is_ending(tracer) && nap_ns > 0)
        doorbell_sleep(&tracer->bell, prepared, nap_ns);
}

/* Sleeps until there is a trace, and then naps so that others join it. */
static void
sleep_until_wanted(struct tracer *tracer)
{
    uint32_t prepared = doorbell_prepare(&tracer->bell);
    if (trace_pool_has_done(&tracer->pool) || is_ending(tracer))
        doorbell_cancel(&tracer->bell);
    else
        doorbell_sleep(&tracer->bell, prepared, SLEEP_NS);
    nap(tracer, TRACER_NAP_NS);
}

/* The last turn: each export is tried once, until one fails or the time is over. */
static void
send_rest(struct tracer *tracer)
{
    make_exports(tracer);
    while (backlog_first(&tracer->backlog) != NULL &&
           clock_now_ns() < atomic_load(&tracer->end_ns) && send_first(tracer))
        ;
    uint64_t lost = backlog_spans(&tracer->backlog);
    counter_add_shared(tracer->options.counters, NODE_SPANS_DROPPED, lost);
    if (lost > 0)
        log_warn("traces_lost spans=%llu why=\"the node ends\"", (unsigned long long)lost);
}

static void *
tracer_main(void *context)
{
    struct tracer *tracer = context;
    prctl(PR_SET_NAME, "shoald:trace");
    while (!is_ending(tracer)) {
        uint32_t made = make_exports(tracer);
        int64_t wait_ns = backlog_wait_ns(&tracer->backlog, clock_now_ns());
        if (wait_ns == 0)
            (void)send_first(tracer); /* one export, then look for traces again */
        else if (made > 0 || wait_ns != TIME_NEVER_NS)
            nap(tracer, wait_ns < TRACER_NAP_NS ? wait_ns : TRACER_NAP_NS);
        else
            sleep_until_wanted(tracer);
    }
    send_rest(tracer);
    return NULL;
}

/* ---- life ---- */

static enum status
open_sink(const char *target, struct trace_sink **sink, struct error *error)
{
    static const char file[] = "file:";
    if (strncmp(target, file, sizeof(file) - 1) == 0)
        return trace_file_open(target + sizeof(file) - 1, sink, error);
    return trace_http_open(target, sink, error);
}

enum status
tracer_create(const struct tracer_options *options, struct tracer **created, struct error *error)
{
    struct trace_sink *sink = NULL;
    enum status status =
        options->target == NULL ? STATUS_OK : open_sink(options->target, &sink, error);
    if (status != STATUS_OK)
        return status;
    struct tracer *tracer = aligned_alloc(_Alignof(struct tracer), sizeof(*tracer));
    CHECK(tracer != NULL);
    memset(tracer, 0, sizeof(*tracer));
    tracer->options = *options;
    tracer->sink = sink;
    if (sink != NULL) {
        sink->meanwhile = while_sending;
        sink->context = tracer;
    }
    trace_pool_init(&tracer->pool, TRACER_TRACES_MAX);
    backlog_init(&tracer->backlog, TRACER_BACKLOG_BYTES_MAX);
    atomic_store(&tracer->end_ns, TIME_NEVER_NS);
    if (gethostname(tracer->host_name, sizeof(tracer->host_name) - 1) != 0)
        tracer->host_name[0] = '\0';
    CHECK(pthread_create(&tracer->thread, NULL, tracer_main, tracer) == 0);
    *created = tracer;
    return STATUS_OK;
}

void
tracer_destroy(struct tracer *tracer)
{
    if (tracer == NULL)
        return;
    int64_t end_ns = clock_now_ns() + TRACER_END_NS;
    atomic_store(&tracer->end_ns, end_ns);
    if (tracer->sink != NULL)
        tracer->sink->hurry(tracer->sink, end_ns);
    doorbell_wake(&tracer->bell);
    CHECK(pthread_join(tracer->thread, NULL) == 0);
    if (tracer->sink != NULL)
        tracer->sink->close(tracer->sink);
    backlog_fini(&tracer->backlog);
    trace_pool_fini(&tracer->pool);
    free(tracer);
}
