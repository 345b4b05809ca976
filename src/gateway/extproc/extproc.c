/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/extproc/extproc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/check.h"
#include "base/clock.h"
#include "gateway/extproc/internal.h"

enum {
    MESSAGE_HEAD_BYTES = 1 << 20,
    OTHER_STREAMS = 64, /* health, and requests whose answer is that there are too many */
};

static const char process_path[] = "envoy.service.ext_proc.v3.ExternalProcessor";

/* ---- health ---- */

static void
on_health_open(void *context, struct grpc_stream *rpc)
{
    grpc_stream_set_user(rpc, context);
}

/* An unknown service is an answer, as in the reference. Envoy must keep asking while no endpoint is
 * usable: it gets better errors from us than it has. */
static void
on_health(struct grpc_stream *rpc, const void *data, size_t bytes)
{
    enum { SERVING = 1, NOT_SERVING = 2, SERVICE_UNKNOWN = 3 };
    const struct extproc *extproc = grpc_stream_user(rpc);
    const struct wire_span span = {.data = data, .bytes = bytes};
    const struct wire_message message = {.spans = &span, .span_count = 1, .bytes = bytes};
    struct wire_cursor cursor = wire_begin(&message);
    struct wire_field field;
    struct wire_span service = {.data = "", .bytes = 0};
    while (wire_next(&cursor, &field) == WIRE_FIELD)
        if (field.number == 1 && field.type == WIRE_BYTES) {
            const unsigned char *at = NULL;
            service.bytes = wire_run(&field.data, &at);
            service.data = at;
        }
    bool is_ready = !extproc->is_draining && endpoint_pool_usable(extproc->endpoints) > 0;
    int state = SERVICE_UNKNOWN;
    if (service.bytes == 0 || extproc_is(service, "liveness") || extproc_is(service, process_path))
        state = extproc->is_draining ? NOT_SERVING : SERVING;
    else if (extproc_is(service, "readiness"))
        state = is_ready ? SERVING : NOT_SERVING;
    const unsigned char answer[] = {1 << 3, (unsigned char)state};
    grpc_send(rpc, answer, sizeof(answer), NULL, 0);
    grpc_finish(rpc, STATUS_OK, NULL);
}

static void
on_health_end(struct grpc_stream *rpc)
{
    grpc_finish(rpc, STATUS_INVALID_ARGUMENT, "expected a message");
}

/* ---- for operators ---- */

static void
write_metrics(void *context, struct bytes *out)
{
    static const char *const names[] = {
#define EXTPROC_COUNTER(name, text) text,
#include "gateway/extproc/counters.def"
    };
    const struct extproc *extproc = context;
    const struct grpc_figures *figures = grpc_front_figures(extproc->server);
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
        {"streams", extproc->open_count},
        {"connections", figures->connections},
        {"held_bytes", figures->held_bytes},
        {"connections_total", figures->connections_total},
        {"connections_refused_total", figures->connections_refused},
        {"connections_evicted_total", figures->connections_evicted},
        {"streams_reset_total", figures->streams_reset},
        {"malformed_total", figures->malformed},
        {"overflows_total", figures->overflows},
        {"idle_total", figures->idle},
        {"not_accepting_total", figures->not_accepting},
    };
    char line[128];
    for (size_t i = 0; i < ARRAY_COUNT(names) + ARRAY_COUNT(rows); i++) {
        size_t row = i - ARRAY_COUNT(names);
        bool is_counter = i < ARRAY_COUNT(names);
        int used = snprintf(line, sizeof(line), "shoal_gateway_ext_proc_%s %" PRIu64 "\n",
                            is_counter ? names[i] : rows[row].name,
                            is_counter ? extproc->counters[i] : rows[row].value);
        bytes_put(out, line, (size_t)used);
    }
}

/* ---- life ---- */

static void
on_drain_over(void *context)
{
    struct extproc *extproc = context;
    void (*on_drained)(void *context) = extproc->on_drained;
    extproc->on_drained = NULL;
    if (on_drained != NULL)
        on_drained(extproc->drained_context);
}

static const struct grpc_method methods[] = {
    {.path = "/envoy.service.ext_proc.v3.ExternalProcessor/Process",
     .on_open = extproc_on_open,
     .on_message = extproc_on_message,
     .on_half_close = extproc_on_half_close,
     .on_gone = extproc_on_gone,
     .on_overflow = extproc_on_overflow,
     .on_writable = extproc_on_writable},
    {.path = "/grpc.health.v1.Health/Check",
     .on_open = on_health_open,
     .on_message = on_health,
     .on_half_close = on_health_end},
};

static enum status
listen(struct event_base *base, struct extproc *extproc, struct error *error)
{
    const struct gateway_settings *settings = extproc->settings;
    const struct grpc_options options = {
        .name = "ext_proc",
        .listen = settings->ext_proc,
        .connections_max = (uint32_t)settings->ext_proc_connections_max,
        .streams_max = (uint32_t)settings->ext_proc_streams_max + OTHER_STREAMS,
        .message_bytes_max = ((size_t)settings->body_mib_max << 20) + MESSAGE_HEAD_BYTES,
        .held_bytes_max = (uint64_t)settings->ext_proc_held_mib_max << 20,
        .idle_timeout_ns = settings->ext_proc_idle_timeout_ms * NS_PER_MS,
        .methods = methods,
        .method_count = ARRAY_COUNT(methods),
        .context = extproc,
    };
    return grpc_front_create(base, &options, &extproc->server, error);
}

enum status
extproc_create(struct event_base *base, const struct gateway_settings *settings,
               struct endpoint_pool *endpoints, struct extproc **created, struct error *error)
{
    struct extproc *extproc = calloc(1, sizeof(*extproc));
    CHECK(extproc != NULL);
    extproc->settings = settings;
    extproc->endpoints = endpoints;
    extproc->first_number = (uint32_t)settings->requests_max;
    CHECK(getrandom(&extproc->id_seed, sizeof(extproc->id_seed), 0) == sizeof(extproc->id_seed));
    extproc->full = (struct extproc_stream){.extproc = extproc, .state = EXTPROC_FULL};
    extproc->streams = calloc((size_t)settings->ext_proc_streams_max, sizeof(*extproc->streams));
    CHECK(extproc->streams != NULL);
    extproc->first_free = EXTPROC_NONE;
    for (int64_t i = settings->ext_proc_streams_max - 1; i >= 0; i--) {
        extproc->streams[i] = (struct extproc_stream){
            .extproc = extproc, .number = (uint32_t)i, .next_free = extproc->first_free};
        extproc->first_free = (uint32_t)i;
    }
    extproc->drain = loop_timer_create(base, on_drain_over, extproc);
    enum status status = listen(base, extproc, error);
    if (status != STATUS_OK) {
        extproc_destroy(extproc);
        return status;
    }
    endpoint_pool_attach(endpoints, &(struct endpoint_pool_picker){
                                        .first = extproc->first_number,
                                        .on_send = extproc_on_send,
                                        .on_refuse = extproc_on_refuse,
                                        .write_metrics = write_metrics,
                                        .context = extproc,
                                    });
    *created = extproc;
    return STATUS_OK;
}

void
extproc_drain(struct extproc *extproc, void (*on_done)(void *context), void *context)
{
    extproc->on_drained = on_done;
    extproc->drained_context = context;
    extproc->is_draining = true;
    grpc_front_part(extproc->server);
    loop_timer_set(extproc->drain, extproc->settings->drain_timeout_ms * NS_PER_MS);
    extproc_drain_look(extproc);
}

uint32_t
extproc_open_streams(const struct extproc *extproc)
{
    return extproc->open_count;
}

void
extproc_destroy(struct extproc *extproc)
{
    if (extproc == NULL)
        return;
    grpc_front_destroy(extproc->server);
    if (extproc->server != NULL)
        endpoint_pool_attach(extproc->endpoints, NULL);
    loop_timer_destroy(extproc->drain);
    free(extproc->streams);
    free(extproc);
}
