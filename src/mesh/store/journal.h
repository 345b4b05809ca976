/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of a file store: a journal of what was put and deleted, that is read once, at the start,
 * and written anew when most of it is outdated. DESIGN.md has its layout, and why it survives what.
 *
 * A frame is what happens as a whole. It is written with one write and then made durable; there is
 * never more than one on its way. So only the last one can be in pieces after a crash, and it is
 * cut off: nobody was told that it happened. A frame that is damaged in front of one that is whole
 * was not torn, but ruined; then nothing is guessed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "mesh/store/store.h"

struct journal;
struct table;

/* Callbacks of reading, in order. */
struct journal_reader {
    void (*on_put)(void *context, const struct store_record *record);
    void (*on_delete)(void *context, enum store_table table, const char *id, uint64_t revision);
    /* The store had come this far. */
    void (*on_revision)(void *context, uint64_t revision);
    void *context;
};

/* Makes the file if there is none. `cut`: so many bytes of a last write were not whole, and are
 * gone. UNAVAILABLE: another process has it open. DATA_LOSS: it is damaged. Other: of the system.
 */
enum status journal_open(const char *path, const struct journal_reader *reader,
                         struct journal **journal, size_t *cut, struct error *error) WARN_UNUSED;
/* NULL is left alone. */
void journal_close(struct journal *journal);

/* Into the frame that is committed next. */
void journal_put(struct journal *journal, const struct store_record *record);
void journal_delete(struct journal *journal, enum store_table table, const char *id,
                    uint64_t revision);

enum journal_end {
    JOURNAL_DONE,     /* it is durable */
    JOURNAL_NOT_DONE, /* it is not in the file, and never will be */
    JOURNAL_UNKNOWN   /* it may be there after a crash. Write the file anew before anything else */
};

/* The frame is empty after it. An empty one is done. */
enum journal_end journal_commit(struct journal *journal, struct error *error) WARN_UNUSED;

/* It cannot be appended to any more, or it is several times as long as what it says. */
bool journal_is_broken(const struct journal *journal);
bool journal_is_long(const struct journal *journal, const struct table *table);

/* Another file takes its place, with these records and this revision. Fails: what is durable stays
 * so, and what was broken is. */
enum status journal_rewrite(struct journal *journal, const struct table *table, uint64_t revision,
                            struct error *error) WARN_UNUSED;
