/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"

/* Adds the page's rows. False: it has none. */
static bool
take_page(struct rows *rows, json_t *answer, uint32_t *next)
{
    json_t *list = json_object_get(answer, "list");
    json_t *page = json_object_get(list, "rows");
    json_int_t from = json_integer_value(json_object_get(list, "next"));
    json_decref(rows->last);
    rows->last = answer;
    rows->model = json_object_get(list, "model");
    bool good = json_is_array(page) && from >= 0 && from <= UINT32_MAX;
    for (size_t i = 0; i < json_array_size(page); i++)
        good = good && json_is_object(json_array_get(page, i));
    *next = (uint32_t)from;
    return good && json_array_extend(rows->all, page) == 0;
}

static enum ctl_exit
ask_page(const struct rows_fetch *fetch, json_t **answer, struct error *error)
{
    struct ctl_ask ask;
    if (ask_send(&ask, fetch->counters, &fetch->request, error) != STATUS_OK)
        return CTL_UNREACHABLE;
    enum ctl_exit code = ask_receive(&ask, fetch->deadline_ns - clock_now_ns(), answer, error);
    ask_close(&ask);
    return code;
}

enum ctl_exit
rows_fetch(struct rows_fetch *fetch, struct rows *rows, struct error *error)
{
    uint32_t next = 0;
    *rows = (struct rows){.all = json_array()};
    CHECK(rows->all != NULL);
    do {
        size_t left = fetch->limit - json_array_size(rows->all);
        json_t *answer = NULL;
        fetch->request.from = next;
        fetch->request.limit = (uint32_t)(left < CONTROL_ROWS_MAX ? left : CONTROL_ROWS_MAX);
        enum ctl_exit code = ask_page(fetch, &answer, error);
        if (code != CTL_OK)
            return code;
        if (!take_page(rows, answer, &next)) {
            error_set(error, STATUS_UNAVAILABLE,
                      "the node's list cannot be read: use the shoalctl that came with it");
            return CTL_UNREACHABLE;
        }
    } while (next != 0 && json_array_size(rows->all) < fetch->limit);
    rows->more = next != 0;
    rows->count = json_array_size(rows->all);
    rows->at = ctl_allocate(rows->count, sizeof(json_t *));
    for (size_t i = 0; i < rows->count; i++)
        rows->at[i] = json_array_get(rows->all, i);
    return CTL_OK;
}

void
rows_free(struct rows *rows)
{
    json_decref(rows->all);
    json_decref(rows->last);
    free(rows->at);
    *rows = (struct rows){0};
}

static int
by_id(const void *a, const void *b)
{
    return strcmp(ask_text(*(json_t *const *)a, "id"), ask_text(*(json_t *const *)b, "id"));
}

void
rows_sort_by_id(struct rows *rows)
{
    if (rows->count > 0)
        qsort(rows->at, rows->count, sizeof(json_t *), by_id);
}
