/* SPDX-License-Identifier: Apache-2.0 */
/* The streams' memory, which is taken at start. */
#include "base/check.h"
#include "gateway/extproc/internal.h"

void
extproc_drain_look(struct extproc *extproc)
{
    if (extproc->is_draining && extproc->open_count == 0 && extproc->on_drained != NULL)
        loop_timer_set(extproc->drain, 0); /* its end is still to be written */
}

struct extproc_stream *
extproc_stream_take(struct extproc *extproc, struct grpc_stream *rpc)
{
    extproc->counters[EXTPROC_COUNT_STREAMS]++;
    if (extproc->is_draining || extproc->first_free == EXTPROC_NONE)
        return NULL;
    struct extproc_stream *stream = &extproc->streams[extproc->first_free];
    uint32_t number = extproc->first_free;
    extproc->first_free = stream->next_free;
    *stream = (struct extproc_stream){
        .extproc = extproc,
        .number = number,
        .state = EXTPROC_OPENED,
        .rpc = rpc,
        .request_mode = EXTPROC_BODY_DUPLEX,
        .response_mode = EXTPROC_BODY_DUPLEX,
        .body_declared = SIZE_MAX,
    };
    extproc->open_count++;
    return stream;
}

void
extproc_stream_give(struct extproc_stream *stream)
{
    struct extproc *extproc = stream->extproc;
    CHECK(stream->state != EXTPROC_FREE && stream->body == NULL && stream->ask == NULL);
    stream->state = EXTPROC_FREE;
    stream->rpc = NULL;
    stream->next_free = extproc->first_free;
    extproc->first_free = stream->number;
    extproc->open_count--;
    extproc_drain_look(extproc);
}
