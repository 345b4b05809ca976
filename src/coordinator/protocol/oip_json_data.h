/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The elements of a tensor as JSON has them, to raw contents and back: `data`, an array that is
 * flat in row-major order or nested as the shape says. Integers are exact over all of their type's
 * range; floats are the nearest there is, and beyond the range refused; BOOL is true and false;
 * BYTES are strings, or base64 in strings if that is said. JSON knows neither NaN nor infinities:
 * they are the strings "NaN", "Infinity" and "-Infinity". FP16 and BF16 have no JSON form.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/protocol/oip_json_skim.h"
#include "rpc/wire.h"

struct oip_json_tensor {
    uint32_t datatype;
    uint32_t rank;
    const int64_t *shape;
    uint64_t elements; /* what the shape says */
    bool base64;       /* of BYTES */
};

/*
 * How much room raw contents may take that are made from a run, at most: never more than four times
 * its size. INVALID_ARGUMENT: the datatype has no JSON form, or the run is too short for so many
 * elements.
 */
enum status oip_json_data_room(const struct json_run *run, const struct oip_json_tensor *tensor,
                               uint64_t *room, struct error *error) WARN_UNUSED;

/* Reads the run into memory with that room. INVALID_ARGUMENT: what is wrong with which element. */
enum status oip_json_data_read(const struct json_run *run, const struct oip_json_tensor *tensor,
                               unsigned char *to, uint64_t *bytes, struct error *error) WARN_UNUSED;

/* Writes raw contents as a flat array. Each byte of them is read once: they may lie where a worker
 * writes. INVALID_ARGUMENT: no JSON form. */
enum status oip_json_data_write(struct bytes *out, struct wire_cursor contents,
                                const struct oip_json_tensor *tensor,
                                struct error *error) WARN_UNUSED;

/* Writes a string with its quotes; `text` is UTF-8, zero bytes allowed. */
void oip_json_put_string(struct bytes *out, const char *text, size_t bytes);
