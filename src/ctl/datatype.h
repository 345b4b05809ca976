/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Open Inference Protocol's element types: their names, and elements as text and as the
 * little-endian bytes of the protocol.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/json.h"

/* The kind of an element; also the member of InferTensorContents that holds it. */
enum element_kind {
    KIND_BOOL,
    KIND_INT,
    KIND_UINT,
    KIND_FP16,
    KIND_BF16,
    KIND_FP32,
    KIND_FP64,
    KIND_BYTES
};

struct datatype {
    const char *name;
    enum element_kind kind;
    uint32_t bytes; /* of an element; 0: BYTES, each with 4 bytes of length before the bytes */
};

enum { ELEMENT_BYTES_MAX = 8 };

/* NULL if there is no such name. */
const struct datatype *datatype_find(const char *name, size_t name_bytes);

/* Reads one number or truth value; `text` is terminated. INVALID_ARGUMENT: it is neither, or out of
 * range. */
enum status element_read(const struct datatype *type, const char *text,
                         unsigned char element[ELEMENT_BYTES_MAX], struct error *error) WARN_UNUSED;

/* Print an element for people, and as a JSON value. `bytes` matters for BYTES only. */
void element_print(const struct datatype *type, const unsigned char *element, size_t bytes,
                   FILE *out);
void element_json(const struct datatype *type, const unsigned char *element, size_t bytes,
                  struct json *json);

/* The number in an integer or BOOL element. */
int64_t element_int(const struct datatype *type, const unsigned char *element);
uint64_t element_uint(const struct datatype *type, const unsigned char *element);

/* Prints the text quoted, with bytes escaped that a terminal could take for a command. */
void text_print(const char *text, size_t bytes, FILE *out);
