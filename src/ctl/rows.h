/* SPDX-License-Identifier: Apache-2.0 */
/* Fetches a list of the local node, page by page; ipc/control.h names the rows' members. */
#pragma once

#include "ctl/ask.h"

struct rows_fetch {
    const char *counters;
    struct control_request request; /* `from` and `limit` are filled in */
    size_t limit;                   /* of all rows */
    int64_t deadline_ns;
};

struct rows {
    json_t **at; /* objects; in `all` */
    size_t count;
    bool more;     /* there may be rows beyond the limit */
    json_t *model; /* of mesh copies: the model; in `last` */
    json_t *all, *last;
};

/* Like ask_receive(), for each page. Free `rows` after any result. */
enum ctl_exit rows_fetch(struct rows_fetch *fetch, struct rows *rows, struct error *error);
void rows_free(struct rows *rows);

void rows_sort_by_id(struct rows *rows);
