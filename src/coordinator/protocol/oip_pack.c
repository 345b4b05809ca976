/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that were filled from JSON: what there is to them beside a decoded message.
 */
#include "base/check.h"
#include "coordinator/protocol/oip_request.h"

enum { FIELD_RAW_INPUT_CONTENTS = 7 };

const struct oip_head *
oip_request_head(const struct oip_request *request)
{
    return &request->head;
}

size_t
oip_small_bytes(const struct oip_request *request)
{
    return request->gather.used;
}

void
oip_elements_moved(struct oip_request *request)
{
    struct oip_gather *gather = &request->gather;
    size_t offset = 0;
    for (uint32_t i = 0; i < gather->raw_count; i++) {
        gather->raw[i].span = 0;
        gather->raw[i].offset = offset;
        offset += (size_t)gather->raw[i].bytes;
    }
}

/* Small fields, then each input's elements behind a tag and a length. */
const struct wire_message *
oip_pack(struct oip_request *request, const struct wire_message *elements)
{
    const struct oip_gather *gather = &request->gather;
    struct wire_message *packed = &request->packed;
    if (packed->bytes > 0)
        return packed;
    size_t room = inference__model_infer_request__get_packed_size(request->message) +
                  gather->raw_count * (size_t)WIRE_HEAD_BYTES_MAX;
    unsigned char *bytes = bump_take(&request->scratch, room);
    struct wire_span *spans =
        bump_take(&request->scratch, (2 * gather->raw_count + 1) * sizeof(*spans));
    size_t used = inference__model_infer_request__pack(request->message, bytes);
    size_t sent = 0;
    *packed = (struct wire_message){.spans = spans};
    for (uint32_t i = 0; i < gather->raw_count; i++) {
        const struct oip_range *raw = &gather->raw[i];
        used += wire_put_head(bytes + used, FIELD_RAW_INPUT_CONTENTS, raw->bytes);
        spans[packed->span_count++] = (struct wire_span){bytes + sent, used - sent};
        spans[packed->span_count++] = elements->spans[raw->span];
        sent = used;
    }
    if (used > sent)
        spans[packed->span_count++] = (struct wire_span){bytes + sent, used - sent};
    packed->bytes = used + elements->bytes;
    return packed;
}
