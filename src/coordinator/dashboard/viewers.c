/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/dashboard/viewers.h"

#include <stdlib.h>

#include "base/check.h"
#include "coordinator/dashboard/pages.h"

enum {
    SKIPPED_MAX = 60,
    BUFFER_BYTES = 64 << 10, /* of the kernel: what it keeps, a slow viewer gets late */
};

struct viewer {
    struct http_request *request;
    uint32_t skipped; /* samples in a row */
};

struct viewers {
    _Atomic uint64_t *counters;
    uint32_t most;
    uint32_t count;
    struct viewer items[];
};

/* One sample, written once and sent to all. */
struct sample {
    uint32_t uses;
    struct bytes bytes;
};

struct viewers *
viewers_create(uint32_t most, _Atomic uint64_t *counters)
{
    struct viewers *viewers = calloc(1, sizeof(*viewers) + most * sizeof(struct viewer));
    CHECK(viewers != NULL);
    viewers->counters = counters;
    viewers->most = most;
    return viewers;
}

void
viewers_destroy(struct viewers *viewers)
{
    free(viewers);
}

uint32_t
viewers_count(const struct viewers *viewers)
{
    return viewers->count;
}

static void
on_writable(struct http_request *request)
{
    (void)request; /* the next sample will see it */
}

enum status
viewers_add(struct viewers *viewers, struct http_request *request, struct error *error)
{
    static const char first[] = "retry: 1000\n\n";
    const struct http_piece piece = {.data = first, .bytes = sizeof(first) - 1};
    if (viewers->count == viewers->most)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "%u pages are open already: close one, or raise dashboard_viewers",
                         viewers->most);
    viewers->items[viewers->count++] = (struct viewer){.request = request};
    counter_set(viewers->counters, NODE_DASHBOARD_VIEWERS, viewers->count);
    http_answer_set_buffer(request, BUFFER_BYTES);
    pages_begin_events(request, on_writable);
    (void)http_answer_write(request, &piece);
    return STATUS_OK;
}

static void
drop(struct viewers *viewers, uint32_t index)
{
    viewers->items[index] = viewers->items[--viewers->count];
    counter_set(viewers->counters, NODE_DASHBOARD_VIEWERS, viewers->count);
}

void
viewers_remove(struct viewers *viewers, struct http_request *request)
{
    for (uint32_t i = 0; i < viewers->count; i++)
        if (viewers->items[i].request == request) {
            drop(viewers, i);
            http_answer_end(request);
            return;
        }
}

void
viewers_end(struct viewers *viewers)
{
    while (viewers->count > 0) {
        struct http_request *request = viewers->items[viewers->count - 1].request;
        drop(viewers, viewers->count - 1);
        http_answer_end(request);
    }
}

/* ---- samples ---- */

static void
sample_release(void *context)
{
    struct sample *sample = context;
    if (--sample->uses > 0)
        return;
    bytes_fini(&sample->bytes);
    free(sample);
}

static struct sample *
sample_create(struct bytes *json)
{
    struct sample *sample = calloc(1, sizeof(*sample));
    CHECK(sample != NULL);
    sample->uses = 1;
    bytes_put_text(&sample->bytes, "event: sample\ndata: ");
    bytes_put(&sample->bytes, json->data, json->used);
    bytes_put_text(&sample->bytes, "\n\n");
    CHECK(!sample->bytes.failed && !json->failed);
    return sample;
}

/* False: it was disconnected. */
static bool
skip(struct viewers *viewers, struct viewer *viewer)
{
    counter_add_shared(viewers->counters, NODE_DASHBOARD_SKIPPED, 1);
    return ++viewer->skipped < SKIPPED_MAX;
}

void
viewers_send(struct viewers *viewers, struct bytes *json)
{
    struct sample *sample = sample_create(json);
    const struct http_piece piece = {.data = sample->bytes.data,
                                     .bytes = sample->bytes.used,
                                     .release = sample_release,
                                     .release_context = sample};
    for (uint32_t i = viewers->count; i-- > 0;) {
        struct viewer *viewer = &viewers->items[i];
        struct http_request *request = viewer->request;
        if (http_answer_waiting(request) == 0) {
            viewer->skipped = 0;
            sample->uses++;
            (void)http_answer_write(request, &piece);
        } else if (!skip(viewers, viewer)) {
            counter_add_shared(viewers->counters, NODE_DASHBOARD_CUT, 1);
            drop(viewers, i);
            http_answer_abort(request);
        }
    }
    sample_release(sample);
}
