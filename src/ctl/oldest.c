/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/oldest.h"

#include <inttypes.h>

#include "ctl/figure.h"
#include "ipc/snapshot_json.h"

static void
row(const char *pipeline, const struct oldest_request *request, struct figure_table *table)
{
    table_add(table, "%s", pipeline);
    table_add(table, "%s", request->where);
    table_add(table, "%s", request->stage == NULL ? "-" : request->stage);
    if (request->pid == 0) {
        table_add(table, "-");
        table_add(table, "-");
    } else {
        table_add(table, "%" PRIu64, request->worker);
        table_add(table, "%" PRIu64, request->pid);
    }
    table_add_duration(table, request->age_ns);
    if (!request->has_deadline)
        table_add(table, "-");
    else if (request->left_ns <= 0)
        table_add(table, "passed");
    else
        table_add_duration(table, request->left_ns);
    table_add_count(table, request->deaths);
}

void
oldest_print(const struct snapshot *snapshot, FILE *out)
{
    static const char *const headings[] = {
        "oldest request of", "where",  "stage", "worker", "pid", "age",
        "deadline left",     "deaths", NULL};
    struct figure_table table;
    struct oldest_request request;
    size_t rows = 0;
    table_init(&table, 3, headings);
    for (const struct snapshot_scope *pipeline = NULL;
         (pipeline = snapshot_next(snapshot, SCOPE_PIPELINE, 0, pipeline)) != NULL;)
        for (const struct snapshot_scope *one = NULL;
             (one = snapshot_oldest(snapshot, pipeline, one, &request)) != NULL; rows++)
            row(pipeline->name, &request, &table);
    if (rows > 0) {
        putc('\n', out);
        table_print(&table, out);
    }
    table_free(&table);
}
