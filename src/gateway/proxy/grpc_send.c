/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages on their way to a server. They wait in the body, which counts for bodies_mib_max, and go
 * on in parts as the server takes them; meanwhile the client is paused. Until the answer begins all
 * are kept for another try.
 */
#include <string.h>

#include "base/check.h"
#include "gateway/proxy/internal.h"

enum { PART_BYTES = 64 << 10 };

/* Makes the next frame as the server gets it: from `frame` in the body, with a message of `bytes`.
 */
static void
make_frame(struct exchange *exchange, const char *frame, size_t bytes, struct oip_frame *out)
{
    const char *message = frame + GRPC_FRAME_BYTES;
    if (exchange->sent_model == NULL) {
        out->bytes = GRPC_FRAME_BYTES + bytes;
        out->pieces[0] = (struct oip_piece){frame, out->bytes};
        return;
    }
    if (exchange->part_bytes == 0) /* once, since a message may have many fields */
        CHECK(oip_scan_name(message, bytes, &exchange->sent_name) == NULL);
    oip_rename(out, message, bytes, &exchange->sent_name, exchange->sent_model);
}

static enum http_flow
send_part(struct exchange *exchange)
{
    const char *frame = exchange->body + exchange->sent_bytes;
    struct oip_frame out = {0};
    size_t bytes;
    CHECK(grpc_scan_frame(frame, exchange->whole_bytes - exchange->sent_bytes, SIZE_MAX, &bytes) ==
          GRPC_SCAN_WHOLE);
    make_frame(exchange, frame, bytes, &out);
    size_t skipped = exchange->part_bytes;
    const struct oip_piece *piece = out.pieces;
    while (skipped >= piece->bytes)
        skipped -= (piece++)->bytes;
    size_t left = piece->bytes - skipped;
    size_t part = left < PART_BYTES ? left : PART_BYTES;
    exchange->part_bytes += part;
    enum http_flow flow =
        http2_call_send(exchange->stream, (const char *)piece->at + skipped, part);
    if (exchange->part_bytes == out.bytes) {
        exchange->sent_bytes += GRPC_FRAME_BYTES + bytes;
        exchange->part_bytes = 0;
    }
    return flow;
}

void
grpc_forget_sent(struct exchange *exchange)
{
    size_t rest = exchange->body_bytes - exchange->sent_bytes;
    if (rest > exchange->sent_bytes) /* else each part of a message would move all behind it */
        return;
    if (rest == 0)
        exchange_forget_body(exchange);
    else
        memmove(exchange->body, exchange->body + exchange->sent_bytes, rest);
    exchange->body_bytes = rest;
    exchange->whole_bytes -= exchange->sent_bytes;
    exchange->sent_bytes = 0;
}

void
grpc_send_more(struct exchange *exchange)
{
    enum http_flow flow = HTTP_GO_ON;
    while (flow == HTTP_GO_ON && exchange->sent_bytes < exchange->whole_bytes)
        flow = send_part(exchange);
    if (exchange->has_ended && exchange->sent_bytes == exchange->whole_bytes)
        http2_call_send_end(exchange->stream);
    if (exchange->state == EXCHANGE_STARTED)
        grpc_forget_sent(exchange);
    bool waits = flow == HTTP_WAIT && !exchange->has_ended;
    if (exchange->is_paused == waits)
        return;
    exchange->is_paused = waits;
    exchange->proxy->counters[PROXY_PAUSED] += waits;
    (waits ? http_request_pause : http_request_resume)(exchange->request);
}

void
grpc_send_anew(struct exchange *exchange)
{
    exchange->sent_bytes = exchange->part_bytes = 0;
    grpc_send_more(exchange);
}
