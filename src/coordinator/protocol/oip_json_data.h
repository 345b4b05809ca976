/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts the elements of a tensor between JSON and raw contents: `data`, an array, flat in
 * row-major order or nested like the shape. Integers are exact over their type's whole range, and
 * may be written 3.0; floats are rounded to the nearest and refused beyond the range; BOOL is true
 * and false, or 1 and 0; BYTES are
 * strings, optionally base64. NaN and infinities are the strings "NaN", "Infinity" and "-Infinity".
 * FP16 and BF16 have no JSON form.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/protocol/oip_json_skim.h"
#include "wire/wire.h"

struct oip_json_tensor {
    uint32_t datatype;
    uint32_t rank;
    const int64_t *shape;
    uint64_t elements; /* of the shape */
    bool base64;       /* of BYTES */
};

/*
 * The most room that the raw contents of a run can take, never more than four times its size.
 * INVALID_ARGUMENT: the datatype has no JSON form, or the run is too short for so many elements.
 */
enum status oip_json_data_room(const struct json_run *run, const struct oip_json_tensor *tensor,
                               uint64_t *room, struct error *error) WARN_UNUSED;

/* Reads the run into memory with that room. INVALID_ARGUMENT names the element and the mistake. */
enum status oip_json_data_read(const struct json_run *run, const struct oip_json_tensor *tensor,
                               unsigned char *to, uint64_t *bytes, struct error *error) WARN_UNUSED;

/* Writes raw contents as a flat array. Reads each byte once, since a worker may write to them.
 * INVALID_ARGUMENT: no JSON form. */
enum status oip_json_data_write(struct bytes *out, struct wire_cursor contents,
                                const struct oip_json_tensor *tensor,
                                struct error *error) WARN_UNUSED;
