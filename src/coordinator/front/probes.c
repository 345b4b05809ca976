/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/probes.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/front/http_thread.h"

enum { HEADER_BYTES_MAX = 16 << 10, BODY_BYTES_MAX = 4 << 10, WAITING_MAX = 64 };

/* A loop that repairs after a death, or loads a large configuration, may be away for a moment. */
#define STANDSTILL_NS (30 * NS_PER_S)

struct probes {
    _Atomic bool ready;
    _Atomic int64_t beat_ns;
    /* The HTTP thread's: */
    struct http_request *waiting[WAITING_MAX];
    size_t waiting_count;
    bool drained;
};

static void
answer(struct http_request *request, int code, const char *text)
{
    struct http_header header = {"Content-Type", "text/plain; charset=utf-8"};
    struct http_piece piece = {.data = text, .bytes = strlen(text)};
    http_answer(request, code, &header, 1, &piece, 1);
}

/* True: it was answered. */
static bool
refuse(struct http_request *request)
{
    enum http_method method = http_request_method(request);
    if (method == HTTP_GET || method == HTTP_HEAD)
        return false;
    answer(request, 405, "only GET and HEAD are answered here\n");
    return true;
}

static void
on_probe(void *context, struct http_request *request)
{
    struct probes *probes = context;
    const char *path = http_request_path(request);
    bool lives = clock_now_ns() - atomic_load(&probes->beat_ns) < STANDSTILL_NS;
    bool ready = atomic_load(&probes->ready);
    if (refuse(request))
        return;
    if (strcmp(path, "/ready") == 0)
        answer(request, ready ? 200 : 503, ready ? "ready\n" : "not ready\n");
    else if (strcmp(path, "/live") == 0)
        answer(request, lives ? 200 : 500, lives ? "live\n" : "the node's loop stands still\n");
    else
        answer(request, 404, "not found: there are /ready and /live\n");
}

static void
on_prestop(void *context, struct http_request *request)
{
    struct probes *probes = context;
    if (refuse(request))
        return;
    if (strcmp(http_request_path(request), "/prestop") != 0)
        answer(request, 404, "not found: there is /prestop\n");
    else if (probes->drained)
        answer(request, 200, "drained\n");
    else if (probes->waiting_count == WAITING_MAX)
        answer(request, 503, "too many wait already\n");
    else
        probes->waiting[probes->waiting_count++] = request;
}

static void
on_gone(void *context, struct http_request *request)
{
    struct probes *probes = context;
    for (size_t i = 0; i < probes->waiting_count; i++)
        if (probes->waiting[i] == request) {
            probes->waiting[i] = probes->waiting[--probes->waiting_count];
            answer(request, 503, "");
            return;
        }
}

static void
on_drained(void *context)
{
    struct probes *probes = context;
    probes->drained = true;
    while (probes->waiting_count > 0)
        answer(probes->waiting[--probes->waiting_count], 200, "drained\n");
}

struct probes *
probes_create(void)
{
    struct probes *probes = calloc(1, sizeof(*probes));
    CHECK(probes != NULL);
    atomic_store(&probes->beat_ns, clock_now_ns());
    return probes;
}

void
probes_destroy(struct probes *probes)
{
    free(probes);
}

static struct http_service
service(struct probes *probes, void (*on_request)(void *context, struct http_request *request))
{
    return (struct http_service){.on_request = on_request,
                                 .on_gone = on_gone,
                                 .context = probes,
                                 .header_bytes_max = HEADER_BYTES_MAX,
                                 .body_bytes_max = BODY_BYTES_MAX};
}

struct http_service
probes_service(struct probes *probes)
{
    return service(probes, on_probe);
}

struct http_service
probes_prestop_service(struct probes *probes)
{
    return service(probes, on_prestop);
}

void
probes_set_ready(struct probes *probes, bool ready)
{
    if (probes != NULL)
        atomic_store(&probes->ready, ready);
}

void
probes_beat(struct probes *probes)
{
    if (probes != NULL)
        atomic_store(&probes->beat_ns, clock_now_ns());
}

void
probes_drained(struct probes *probes, struct http_thread *thread)
{
    if (probes != NULL && thread != NULL)
        http_thread_post(thread, on_drained, probes);
}
