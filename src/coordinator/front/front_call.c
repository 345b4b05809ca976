/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/front_call.h"

static bool
metadata(const void *call, const char *key, size_t *position, struct wire_span *value)
{
    return rpc_call_metadata_next(call, key, position, value);
}

static bool
walk(void *call, size_t *position, struct rpc_metadata *entry)
{
    return rpc_call_metadata_walk(call, position, entry);
}

static bool
names(const void *call, void (*take)(void *context, const void *name, size_t bytes), void *context)
{
    return rpc_call_caller_names(call, take, context);
}

static size_t
address(const void *call, char *text, size_t room)
{
    return rpc_call_peer(call, text, room);
}

static void
answer(void *call, const struct rpc_answer *given)
{
    rpc_call_answer(call, given);
}

static void
refuse(void *call, enum status status, const char *text, uint32_t retry_ms)
{
    rpc_call_refuse(call, status, text, retry_ms);
}

static void
sink_tagged(void *call, uint64_t tag)
{
    rpc_call_set_tag(call, tag);
}

static void
sink_reply(void *call, const struct rpc_piece *pieces, size_t piece_count)
{
    rpc_call_reply(call, pieces, piece_count);
}

static void
sink_fail(void *call, enum status status, const char *text)
{
    rpc_call_finish(call, status, text);
}

static const struct request_sink sink = {
    .tagged = sink_tagged, .reply = sink_reply, .fail = sink_fail, .refused = front_call_refused};

const struct inbound_type front_call_type = {
    .metadata = metadata,
    .walk = walk,
    .names = names,
    .address = address,
    .sink = &sink,
    .answer = answer,
    .refuse = refuse,
};

struct inbound
front_call_inbound(struct rpc_call *call, const struct wire_message *message, uint32_t queue)
{
    return (struct inbound){
        .type = &front_call_type,
        .call = call,
        .method = rpc_call_method(call),
        .message = message,
        .deadline_ns = rpc_call_deadline_ns(call),
        .queue = queue,
    };
}
