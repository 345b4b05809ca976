/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The elements of a tensor, in the two forms in which they travel: raw bytes, and lists typed by
 * the datatype. Both are read where they lie in the message, once to be checked and once to be
 * written.
 */
#pragma once

#include "rpc/wire.h"

/* "FP32"; "unknown" for what is no datatype: the number may be a worker's. */
const char *oip_datatype_name(uint32_t datatype);

/* 0: none of the protocol's. Exactly as the protocol spells it. */
uint32_t oip_datatype_from_name(const char *name);

/*
 * Checks the raw contents of a tensor of `elements` elements (what its shape says). `fixed_bytes`
 * is elements times size, of no meaning for BYTES. INVALID_ARGUMENT with the rule; the caller adds
 * the name.
 */
enum status oip_raw_check(struct wire_cursor cursor, uint32_t datatype, uint64_t elements,
                          uint64_t fixed_bytes, struct error *error) WARN_UNUSED;

/* Checks an InferTensorContents in the same way, and says how many bytes it is when written raw. */
enum status oip_typed_check(struct wire_cursor cursor, uint32_t datatype, uint64_t elements,
                            uint64_t *bytes, struct error *error) WARN_UNUSED;

/* Writes checked typed contents as raw ones to `to`, which has room for exactly `bytes`. */
void oip_typed_write(struct wire_cursor cursor, uint32_t datatype, void *to, uint64_t bytes);
