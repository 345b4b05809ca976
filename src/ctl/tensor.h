/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tensor in memory: name, type, shape and raw bytes. A tensor from a CSV file records where each
 * row ends, so that it can be sent in parts.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/json.h"
#include "ctl/datatype.h"

enum { TENSOR_RANK_MAX = 8, DIMENSION_ANY = -1 };

struct ctl_tensor {
    char *name;
    const struct datatype *type;
    uint32_t rank;
    int64_t shape[TENSOR_RANK_MAX]; /* of an input; shape[0] may still be DIMENSION_ANY for rows */
    unsigned char *data;
    size_t bytes;
    size_t room;
    size_t row_count; /* 0: sent whole with every request */
    size_t *row_ends; /* row_count of them, as offsets into data */
};

void tensor_free(struct ctl_tensor *tensor);

/* Appends an element of `bytes` bytes; BYTES gets its length in front. */
void tensor_append(struct ctl_tensor *tensor, const void *element, size_t bytes);

/* The number of elements of the shape, without DIMENSION_ANY. False: it overflows. */
bool shape_elements(const int64_t *shape, uint32_t rank, uint64_t *elements);
/* Writes the shape as "[2,64]". */
void shape_text(char *room, size_t room_bytes, const int64_t *shape, uint32_t rank);

/* Checks that received bytes match type and shape. DATA_LOSS naming the tensor. */
enum status tensor_validate(const struct ctl_tensor *tensor, struct error *error) WARN_UNUSED;

enum tensor_detail { TENSOR_EXCERPT, TENSOR_FULL };

/* Both after tensor_validate. Prints name, type, shape and values, or some of the values. */
void tensor_print(const struct ctl_tensor *tensor, enum tensor_detail detail, FILE *out);
/* The values, as a flat array. */
void tensor_json(const struct ctl_tensor *tensor, struct json *json);
