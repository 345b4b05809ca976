/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal's bytes. All numbers are little-endian.
 *
 *   file    "shoalreg", version u32, checksum u32 of the twelve bytes before
 *   frame   mark u32, bytes of the body u32, checksum of the body u32, checksum u32 of these three
 *   body    entries, each: kind u8, table u8, 0 u16, bytes of the id u32, of the value u32, 0 u32,
 *           creation revision u64, revision u64, id, value
 *
 * Checksums are CRC-32C. Pure: nothing here touches a file.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/error.h"
#include "mesh/store/journal.h"

enum {
    FRAME_FILE_BYTES = 16,
    FRAME_HEAD_BYTES = 16,
    FRAME_ENTRY_BYTES = 32,
    FRAME_BODY_BYTES_MAX = 1 << 30,
};

enum frame_kind { FRAME_PUT = 1, FRAME_DELETE = 2, FRAME_REVISION = 3 };

/* ---- writing ---- */

void frame_file_put(struct bytes *to);
/* Leaves room for the head; entries follow, then frame_close. */
void frame_open(struct bytes *to);
void frame_entry_put(struct bytes *to, enum frame_kind kind, const struct store_record *record);
/* `at`: where it was opened. */
void frame_close(struct bytes *to, size_t at);

/* ---- reading ---- */

/* Returns whether the data begins with a complete frame. */
bool frame_is_whole(const char *data, size_t bytes, size_t *frame_bytes);
/* Reads its entries. DATA_LOSS: complete, but nothing that was ever written. */
enum status frame_read(const char *frame, size_t frame_bytes, const struct journal_reader *reader,
                       struct error *error) WARN_UNUSED;
