/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetches the local node's view of its mesh, page by page; ipc/control.h defines the rows.
 */
#pragma once

#include "ctl/ask.h"

struct mesh_row {
    const struct control_row *row;
    const char *texts[CONTROL_TEXTS];
};

struct mesh_fetch {
    const char *counters;
    struct control_request request; /* version, `from` and `limit` are filled in */
    size_t limit;                   /* of all rows */
    int64_t deadline_ns;
};

struct mesh_rows {
    struct mesh_row *at; /* in the pages */
    size_t count;
    size_t capacity;
    void **pages;
    size_t page_count;
    bool more; /* there may be rows beyond the limit */
};

/* As ask_receive, for each page. `answer` is the last page's: an error in it is the node's, and the
 * list is incomplete. Free `rows` after any result. */
enum status mesh_rows_fetch(struct mesh_fetch *fetch, struct mesh_rows *rows,
                            struct control_answer *answer, struct error *error) WARN_UNUSED;
void mesh_rows_free(struct mesh_rows *rows);

/* Sorts by the first text, an id. */
void mesh_rows_sort(struct mesh_rows *rows);
