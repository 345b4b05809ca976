/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int
text_put(const struct engine *engine, const struct shoal_tensor *tensor, OrtValue *value,
         size_t first, struct shoal_error *error)
{
    const char *at = tensor->data;
    size_t left = tensor->bytes;
    size_t count = shoal_tensor_elements(tensor);
    for (size_t i = 0; i < count; i++) {
        uint32_t length;
        char *room;
        if (left < sizeof length)
            goto changed;
        memcpy(&length, at, sizeof length);
        at += sizeof length;
        left -= sizeof length;
        if (length > left)
            goto changed;
        OrtStatus *status =
            engine->api->GetResizedStringTensorElementBuffer(value, first + i, length, &room);
        if (status != NULL)
            return engine_status(engine, status, error);
        memcpy(room, at, length);
        at += length;
        left -= length;
    }
    return SHOAL_OK;
changed:
    snprintf(error->text, sizeof error->text, "tensor \"%s\": its elements overrun it",
             tensor->name);
    return SHOAL_INVALID_ARGUMENT;
}

int
text_read(const struct engine *engine, const OrtValue *value, size_t count, struct text *text,
          struct shoal_error *error)
{
    size_t bytes;
    OrtStatus *status = engine->api->GetStringTensorDataLength(value, &bytes);
    if (status != NULL)
        return engine_status(engine, status, error);
    *text = (struct text){malloc(bytes + 1), calloc(count + 1, sizeof(size_t)), count};
    if (text->bytes == NULL || text->offsets == NULL) {
        text_free(text);
        snprintf(error->text, sizeof error->text, "out of memory for texts of %zu bytes", bytes);
        return SHOAL_RESOURCE_EXHAUSTED;
    }
    text->offsets[count] = bytes;
    status = engine->api->GetStringTensorContent(value, text->bytes, bytes, text->offsets, count);
    if (status == NULL)
        return SHOAL_OK;
    text_free(text);
    return engine_status(engine, status, error);
}

void
text_free(struct text *text)
{
    free(text->bytes);
    free(text->offsets);
    *text = (struct text){NULL, NULL, 0};
}

size_t
text_framed_bytes(const struct text *text, size_t first, size_t count)
{
    return text->offsets[first + count] - text->offsets[first] + count * sizeof(uint32_t);
}

void
text_frame(const struct text *text, size_t first, size_t count, void *room)
{
    char *at = room;
    for (size_t i = first; i < first + count; i++) {
        uint32_t length = (uint32_t)(text->offsets[i + 1] - text->offsets[i]);
        memcpy(at, &length, sizeof length);
        memcpy(at + sizeof length, text->bytes + text->offsets[i], length);
        at += sizeof length + length;
    }
}
