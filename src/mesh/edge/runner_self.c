/* SPDX-License-Identifier: Apache-2.0 */
/* This node's own record. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "mesh/edge/runner_inside.h"
#include "mesh/record/record.h"

enum { START_LATE_MS = 1000 };

/* The current content of this node's record. */
static struct publish
self_now(struct mesh_runner *runner)
{
    struct publish now = {.figures = mesh_figures(runner->mesh), .draining = runner->draining};
    now.pool_count = runner_pools(runner) > 1 ? runner_pools(runner) : 0;
    for (uint32_t i = 0; i < runner_pools(runner); i++)
        now.loaders += runner->runtimes.capacity[i].loaders;
    for (uint32_t i = 0; i < now.pool_count; i++)
        now.pools[i] = mesh_pool_figures(runner->mesh, i);
    return now;
}

/*
 * A clock that was ahead has announced a start later than mesh time, and a place counts only if its
 * stamp is not before its process's start. So the start goes back with the clock. It never goes
 * forward: places written since the earlier start would count as a predecessor's.
 */
bool
runner_self_correct(struct mesh_runner *runner)
{
    runner_lock(runner);
    int64_t ran_ms = clock_now_ns() / NS_PER_MS - runner->began_ms;
    int64_t start_ms = runner_mesh_ms(runner) - ran_ms;
    bool is_late = runner_skew(runner) != NULL && start_ms < runner->start_ms - START_LATE_MS;
    if (is_late)
        runner->start_ms = start_ms;
    runner_unlock(runner);
    return is_late;
}

static void
write_self(struct mesh_runner *runner, const struct publish *now)
{
    const struct runner_options *options = &runner->options;
    const struct record_instance record = {
        .instance = {.id = options->core.instance,
                     .labels = options->labels,
                     .start_ms = runner->start_ms,
                     .version = options->version,
                     .draining = now->draining,
                     .figures = now->figures,
                     .pool_types = options->core.pool_types,
                     .pool_figures = now->pools,
                     .pool_count = now->pool_count},
        .location = options->location,
        .zone = options->zone,
        .address = options->address,
        .loaders = now->loaders,
        .unknown_fields = "",
    };
    struct bytes value = {0};
    struct error error = ERROR_NONE;
    if (record_instance_write(&record, NULL, 0, &value, &error) != STATUS_OK)
        log_error("mesh_instance_refused instance=%s error=\"%s\"", options->core.instance,
                  error.text);
    else
        store_set_instance(runner->store, value.data, value.used);
    bytes_fini(&value);
}

void
runner_labels(struct mesh_runner *runner, const char *labels)
{
    char *copy = strdup(labels);
    CHECK(copy != NULL);
    free(runner->labels);
    runner->options.labels = runner->labels = copy;
    runner_self_publish(runner, SELF_NOW);
}

void
runner_self_publish(struct mesh_runner *runner, enum self_when when)
{
    runner_lock(runner);
    bool member = runner->runtimes.member && !runner->closed && runner->store != NULL;
    struct publish now = self_now(runner);
    runner_unlock(runner);
    if (!member)
        return;
    int64_t now_ns = clock_now_ns();
    bool due = runner->own_record.published_ns == 0 || when == SELF_NOW ||
               publish_is_due(&runner->own_record.published, &now,
                              (now_ns - runner->own_record.published_ns) / NS_PER_MS);
    if (!due)
        return;
    write_self(runner, &now);
    runner->own_record.published = now;
    runner->own_record.published_ns = now_ns;
    runner_lock(runner);
    runner->counts.published++;
    runner_unlock(runner);
}
