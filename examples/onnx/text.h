/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts. A BYTES tensor of Shoal has a length before each element; ONNX Runtime keeps strings in
 * objects of its own; so each element is copied. Elements may contain any bytes, including zeros.
 * On the thread of `run`.
 */
#pragma once

#include "engine.h"

/* Fills elements of a string tensor, from `first` on, from a BYTES tensor. The lengths were checked
 * when the request came and are checked again, because a local client may have changed them. */
int text_put(const struct engine *engine, const struct shoal_tensor *tensor, OrtValue *value,
             size_t first, struct shoal_error *error);

/* The content of a string tensor. */
struct text {
    char *bytes;     /* of all elements */
    size_t *offsets; /* into `bytes`; count + 1 of them */
    size_t count;
};

/* After a failure there is nothing to free. */
int text_read(const struct engine *engine, const OrtValue *value, size_t count, struct text *text,
              struct shoal_error *error);
void text_free(struct text *text);
/* Return the size of these elements as a BYTES tensor, and write it. */
size_t text_framed_bytes(const struct text *text, size_t first, size_t count);
void text_frame(const struct text *text, size_t first, size_t count, void *room);
