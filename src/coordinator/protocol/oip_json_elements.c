/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fills a decoded request, for every JSON form: texts, and the elements of inputs.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/check.h"
#include "coordinator/protocol/oip_json_request.h"
#include "shm/payload.h"

/* Reports the mistake like the decoder of messages, which has the same limits. */
enum status
oip_json_invalid(struct json_reading *reading)
{
    return error_prefix(reading->error, "request is not a valid ModelInferRequest");
}

enum status
oip_json_keep(struct json_reading *reading, const char *field, const char *text, size_t bytes,
              char **kept)
{
    struct wire_span span = {text, bytes};
    struct wire_cursor cursor = {.spans = &span, .left = bytes};
    enum status status = oip_keep_text(reading->request, field, cursor, kept, reading->error);
    return status == STATUS_OK ? status : oip_json_invalid(reading);
}

/* Returns whether oip_validate takes datatype and shape; if not, it reports that for any
 * contents. */
static bool
is_sound(const struct oip_json_tensor *tensor)
{
    uint64_t bytes;
    if (tensor->datatype == 0 || tensor->rank > SHOAL_RANK_MAX)
        return false;
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] < 0)
            return false;
    return tensor_bytes_for(tensor->datatype, tensor->rank, tensor->shape, &bytes);
}

void
oip_json_put_raw(struct json_reading *reading, const void *data, size_t bytes, void *owned)
{
    struct oip_json *json = reading->json;
    struct oip_request *request = reading->request;
    uint32_t index = request->raw_count++;
    request->raw[index] = (struct oip_range){.span = index, .bytes = bytes};
    json->spans[index] = (struct wire_span){data, bytes};
    json->owned[index] = owned;
    json->elements = (struct wire_message){json->spans, index + 1, json->elements.bytes + bytes};
}

static enum status
too_large(struct json_reading *reading, uint64_t bytes)
{
    return error_set(reading->error, STATUS_OUT_OF_RANGE,
                     "the inputs take more than %" PRIu64 " bytes (message_mib): %" PRIu64
                     " with this one",
                     reading->ask->message_bytes_max, bytes);
}

enum status
oip_json_put_run(struct json_reading *reading, const struct json_run *run,
                 struct oip_json_tensor *tensor)
{
    if (!is_sound(tensor)) {
        oip_json_put_raw(reading, "", 0, NULL);
        return STATUS_OK;
    }
    CHECK(tensor_bytes_for(SHOAL_BYTES, tensor->rank, tensor->shape, &tensor->elements));
    uint64_t room;
    uint64_t bytes = 0;
    enum status status = oip_json_data_room(run, tensor, &room, reading->error);
    if (status != STATUS_OK)
        return status;
    /* not known yet for strings */
    uint64_t least = tensor->datatype == SHOAL_BYTES ? 0 : room;
    uint64_t before = reading->json->elements.bytes;
    if (before + least > reading->ask->message_bytes_max)
        return too_large(reading, before + least);
    unsigned char *to = malloc(room > 0 ? room : 1);
    if (to == NULL)
        return error_set(reading->error, STATUS_RESOURCE_EXHAUSTED,
                         "no memory to decode the request");
    status = oip_json_data_read(run, tensor, to, &bytes, reading->error);
    if (status == STATUS_OK && before + bytes > reading->ask->message_bytes_max)
        status = too_large(reading, before + bytes);
    if (status == STATUS_OK)
        oip_json_put_raw(reading, to, bytes, to);
    else
        free(to);
    return status;
}
