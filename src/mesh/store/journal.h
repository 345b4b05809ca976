/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of a file store: a journal of puts and deletes that is read once, at the start, and
 * rewritten when most of it is obsolete. DESIGN.md has its guarantees, frame.h its layout.
 *
 * A frame is atomic. It is written with one write and then made durable, and never more than one is
 * in flight. So only the last one can be incomplete after a crash, and it is cut off: it was never
 * confirmed. A damaged frame before a complete one was not torn but corrupted; then the file is
 * refused.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "mesh/store/store.h"

struct journal;
struct record_table;

/* Callbacks of reading, in order. */
struct journal_reader {
    void (*on_put)(void *context, const struct store_record *record);
    void (*on_delete)(void *context, enum store_table table, const char *id, uint64_t revision);
    /* The store had reached this revision. */
    void (*on_revision)(void *context, uint64_t revision);
    void *context;
};

/* Creates the file if there is none. `cut`: bytes of an incomplete last write that were removed.
 * UNAVAILABLE: another process has it open. DATA_LOSS: it is damaged. Other: errors of the system.
 */
enum status journal_open(const char *path, const struct journal_reader *reader,
                         struct journal **journal, size_t *cut, struct error *error) WARN_UNUSED;
/* NULL is ignored. */
void journal_close(struct journal *journal);

/* Adds to the next frame. */
void journal_put(struct journal *journal, const struct store_record *record);
void journal_delete(struct journal *journal, enum store_table table, const char *id,
                    uint64_t revision);

enum journal_end {
    JOURNAL_DONE,     /* durable */
    JOURNAL_NOT_DONE, /* not in the file, and never will be */
    JOURNAL_UNKNOWN   /* may be there after a crash; rewrite the file before anything else */
};

/* Writes the frame, which is empty afterwards. An empty frame is done. */
enum journal_end journal_commit(struct journal *journal, struct error *error) WARN_UNUSED;

/* Returns whether nothing can be appended any more; whether the file is several times as long as
 * its content. */
bool journal_is_broken(const struct journal *journal);
bool journal_is_long(const struct journal *journal, const struct record_table *table);

/* Replaces the file by one with these records and this revision. On failure durable content stays
 * so, and a broken journal stays broken. */
enum status journal_rewrite(struct journal *journal, const struct record_table *table,
                            uint64_t revision, struct error *error) WARN_UNUSED;
