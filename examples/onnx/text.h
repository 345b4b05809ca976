/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts: a BYTES tensor of Shoal has each element's length before it, ONNX Runtime keeps strings in
 * objects of its own, so each element is copied. Its bytes may be any, zeros too. On the thread of
 * `run`.
 */
#pragma once

#include "engine.h"

/* Fills elements of a string tensor, from `first` on, with those of a BYTES tensor. Its lengths
 * were checked when the request came, and are again: a local client may have changed them. */
int text_put(const struct engine *engine, const struct shoal_tensor *tensor, OrtValue *value,
             size_t first, struct shoal_error *error);

/* What is in a string tensor. */
struct text {
    char *bytes;     /* of all elements */
    size_t *offsets; /* in it; one more than elements */
    size_t count;
};

/* After a failure there is nothing to free. */
int text_read(const struct engine *engine, const OrtValue *value, size_t count, struct text *text,
              struct shoal_error *error);
void text_free(struct text *text);
/* Bytes of a BYTES tensor of these elements; and writes it. */
size_t text_framed_bytes(const struct text *text, size_t first, size_t count);
void text_frame(const struct text *text, size_t first, size_t count, void *room);
