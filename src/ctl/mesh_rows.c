/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/mesh_rows.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "ctl/ctl.h"

static enum status
cannot_be_read(struct error *error)
{
    return error_set(error, STATUS_UNAVAILABLE,
                     "the node's list cannot be read: use the shoalctl that came with it");
}

/* Reads the whole file. */
static enum status
read_page(int fd, struct mesh_rows *rows, size_t *bytes, struct error *error)
{
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat) != 0)
        return error_set(error, STATUS_UNAVAILABLE, "the node's answer came without its list");
    *bytes = (size_t)stat.st_size;
    char *page = ctl_allocate(*bytes + 1, 1);
    rows->pages = reallocarray(rows->pages, rows->page_count + 1, sizeof(*rows->pages));
    CHECK(rows->pages != NULL);
    rows->pages[rows->page_count++] = page;
    for (size_t at = 0; at < *bytes;) {
        ssize_t count = pread(fd, page + at, *bytes - at, (off_t)at);
        if (count <= 0)
            return cannot_be_read(error);
        at += (size_t)count;
    }
    return STATUS_OK;
}

static void
add_row(struct mesh_rows *rows, const struct mesh_row *row)
{
    enum { ROWS_FIRST = 64 };
    if (rows->count == rows->capacity) {
        rows->capacity = rows->capacity > 0 ? 2 * rows->capacity : ROWS_FIRST;
        rows->at = reallocarray(rows->at, rows->capacity, sizeof(*rows->at));
        CHECK(rows->at != NULL);
    }
    rows->at[rows->count++] = *row;
}

/* Adds the page's rows; its last row tells where the next page begins. */
static enum status
take_page(struct mesh_rows *rows, size_t bytes, uint64_t *next, struct error *error)
{
    const char *page = rows->pages[rows->page_count - 1];
    for (size_t at = 0; at < bytes;) {
        struct mesh_row row = {.row = (const struct control_row *)(const void *)(page + at)};
        if (!control_row_read(row.row, bytes - at, row.texts))
            return cannot_be_read(error);
        at += row.row->bytes;
        if (row.row->kind != CONTROL_ROW_PAGE) {
            add_row(rows, &row);
            continue;
        }
        *next = row.row->numbers[CONTROL_PAGE_NEXT];
        return at == bytes ? STATUS_OK : cannot_be_read(error);
    }
    return cannot_be_read(error);
}

static enum status
ask_page(const struct mesh_fetch *fetch, struct control_answer *answer, int *fd,
         struct error *error)
{
    struct ctl_ask ask;
    if (ask_send(&ask, fetch->counters, &fetch->request, error) != STATUS_OK)
        return error->status;
    enum status status = ask_receive(&ask, fetch->deadline_ns - clock_now_ns(), answer, fd, error);
    ask_close(&ask);
    return status;
}

enum status
mesh_rows_fetch(struct mesh_fetch *fetch, struct mesh_rows *rows, struct control_answer *answer,
                struct error *error)
{
    uint64_t next = 0;
    *rows = (struct mesh_rows){0};
    do {
        size_t left = fetch->limit - rows->count;
        size_t bytes = 0;
        int fd = -1;
        fetch->request.version = CONTROL_VERSION;
        fetch->request.from = next;
        fetch->request.limit = (uint32_t)(left < CONTROL_ROWS_MAX ? left : CONTROL_ROWS_MAX);
        enum status status = ask_page(fetch, answer, &fd, error);
        if (status == STATUS_OK && answer->status == STATUS_OK)
            status = read_page(fd, rows, &bytes, error);
        if (fd >= 0)
            close(fd);
        if (status != STATUS_OK || answer->status != STATUS_OK)
            return status;
        if (take_page(rows, bytes, &next, error) != STATUS_OK)
            return error->status;
    } while (next != 0 && rows->count < fetch->limit);
    rows->more = next != 0;
    return STATUS_OK;
}

void
mesh_rows_free(struct mesh_rows *rows)
{
    for (size_t i = 0; i < rows->page_count; i++)
        free(rows->pages[i]);
    free(rows->pages);
    free(rows->at);
    *rows = (struct mesh_rows){0};
}

static int
by_id(const void *a, const void *b)
{
    return strcmp(((const struct mesh_row *)a)->texts[0], ((const struct mesh_row *)b)->texts[0]);
}

void
mesh_rows_sort(struct mesh_rows *rows)
{
    if (rows->count > 0)
        qsort(rows->at, rows->count, sizeof(*rows->at), by_id);
}
