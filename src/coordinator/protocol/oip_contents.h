/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The elements of a tensor, in the two forms in which they travel: raw bytes, and lists typed by
 * the datatype. Both are read where they lie in the message, once to be checked and once to be
 * written.
 */
#pragma once

#include "wire/wire.h"

/* "FP32"; "unknown" for an impossible number, which may come from a worker. */
const char *oip_datatype_name(uint32_t datatype);

/* 0: not one of the protocol's names, in exactly its spelling. */
uint32_t oip_datatype_from_name(const char *name);

/*
 * Checks the raw contents of a tensor whose shape has `elements` elements. `fixed_bytes` is
 * elements times size, unused for BYTES. INVALID_ARGUMENT with the rule; the calling code adds the
 * name.
 */
enum status oip_raw_check(struct wire_cursor cursor, uint32_t datatype, uint64_t elements,
                          uint64_t fixed_bytes, struct error *error) WARN_UNUSED;

/* Checks an InferTensorContents in the same way and computes its size as raw contents. */
enum status oip_typed_check(struct wire_cursor cursor, uint32_t datatype, uint64_t elements,
                            uint64_t *bytes, struct error *error) WARN_UNUSED;

/* Writes checked typed contents as raw ones to `to`, which has room for exactly `bytes`. */
void oip_typed_write(struct wire_cursor cursor, uint32_t datatype, void *to, uint64_t bytes);
