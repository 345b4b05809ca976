/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callers that do not read their answers. An answer holds its lent bytes, a slot and its memory,
 * until the transport has written it: a caller with a closed HTTP/2 window that answers pings would
 * hold it forever, in spite of any deadline. So each call records since when the transport holds
 * something of it, and the stepping thread checks all calls a few times a second.
 *
 *   1. Over the send time-out, and one more second for each SLOW_BYTES: ended.
 *   2. If others were refused since the last check (rpc_server_relieve): of the calls that wait for
 *      RELIEF_NS and one more second for each FAST_BYTES, those of peers with at least the average
 *      number of them, and at least two. So a caller that pauses is spared beside one that reads
 *      nothing, but not if it is that one.
 *
 * A call is ended by shutting its connection down, which drops everything lent to it. Connections
 * of a unix socket cannot be distinguished: there only the call is cancelled, which releases as
 * much.
 */
#include <grpc/support/alloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "rpc/internal.h"

#define RELIEF_NS NS_PER_S

enum { SLOW_BYTES = 64 << 10, FAST_BYTES = 4 << 20 };

/* A candidate for ending, while others are refused. */
struct suspect {
    struct rpc_call *call;
    char *peer; /* the library's copy */
};

void
rpc_watch_sending(struct rpc_call *call, const grpc_byte_buffer *message)
{
    if (message == NULL || call->arm->server->send_timeout_ns == 0)
        return;
    call->sending_bytes = message->data.raw.slice_buffer.length;
    atomic_store_explicit(&call->sending_since_ns, clock_now_ns(), memory_order_release);
}

void
rpc_watch_sent(struct rpc_call *call)
{
    atomic_store_explicit(&call->sending_since_ns, 0, memory_order_relaxed);
}

static void
end_call(struct rpc_call *call, const char *peer)
{
    struct rpc_acceptor *acceptor = call->arm->server->acceptor;
    rpc_watch_sent(call); /* to end it once only */
    if (peer != NULL && rpc_acceptor_cut(acceptor, peer))
        return;
    rpc_acceptor_count_cut(acceptor);
    (void)grpc_call_cancel_with_status(call->core, GRPC_STATUS_DEADLINE_EXCEEDED,
                                       "the answer was not taken in time", NULL);
}

/* Returns by how much its sending exceeds the time allowed at this pace; negative: it does not. */
static int64_t
over_ns(struct rpc_call *call, int64_t now_ns, int64_t timeout_ns, size_t bytes_per_s)
{
    int64_t since_ns = atomic_load_explicit(&call->sending_since_ns, memory_order_acquire);
    if (since_ns == 0)
        return -1;
    return now_ns - since_ns - timeout_ns -
           (int64_t)(call->sending_bytes / bytes_per_s) * (int64_t)NS_PER_S;
}

static int
by_peer(const void *a, const void *b)
{
    return strcmp(((const struct suspect *)a)->peer, ((const struct suspect *)b)->peer);
}

/* Rule 2. */
static void
judge(struct suspect *suspects, size_t count)
{
    size_t peers = 0;
    qsort(suspects, count, sizeof(suspects[0]), by_peer);
    for (size_t i = 0; i < count; i++)
        peers += i == 0 || by_peer(&suspects[i - 1], &suspects[i]) != 0;
    for (size_t from = 0, to; from < count; from = to) {
        for (to = from + 1; to < count && by_peer(&suspects[from], &suspects[to]) == 0; to++)
            continue;
        if (to - from < 2 || (to - from) * peers < count)
            continue;
        for (size_t i = from; i < to; i++)
            end_call(suspects[i].call, suspects[i].peer);
    }
}

static void
relieve(struct rpc_queue *queue, int64_t now_ns)
{
    struct suspect *suspects = rpc_allocate(queue->live, sizeof(*suspects));
    size_t count = 0;
    for (struct rpc_call *call = queue->calls; call != NULL; call = call->next_of_queue) {
        if (over_ns(call, now_ns, RELIEF_NS, FAST_BYTES) < 0)
            continue;
        char *peer = grpc_call_get_peer(call->core);
        if (peer != NULL)
            suspects[count++] = (struct suspect){call, peer};
    }
    judge(suspects, count);
    for (size_t i = 0; i < count; i++)
        gpr_free(suspects[i].peer);
    free(suspects);
}

/* A call that sends has not had its last event: its `core` exists. */
void
rpc_watch_calls(struct rpc_queue *queue)
{
    int64_t now_ns = clock_now_ns();
    for (struct rpc_call *call = queue->calls; call != NULL; call = call->next_of_queue) {
        if (over_ns(call, now_ns, call->arm->server->send_timeout_ns, SLOW_BYTES) < 0)
            continue;
        char *peer = grpc_call_get_peer(call->core);
        end_call(call, peer);
        gpr_free(peer);
    }
    if (atomic_exchange_explicit(&queue->wants_relief, false, memory_order_relaxed))
        relieve(queue, now_ns);
}
