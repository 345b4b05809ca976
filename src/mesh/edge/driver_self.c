/* SPDX-License-Identifier: Apache-2.0 */
/* This node's own record. */
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "mesh/edge/driver_inside.h"
#include "mesh/record/record.h"

enum { START_LATE_MS = 1000 };

/* The content of the own record as of now. */
static struct publish
self_now(struct driver *driver)
{
    struct publish now = {.figures = mesh_figures(driver->mesh), .draining = driver->draining};
    for (uint32_t i = 0; i < driver_pools(driver); i++)
        now.loaders += driver->capacity[i].loaders;
    return now;
}

/*
 * A clock that is ahead has said a start that mesh time has not reached, and a place counts only if
 * its stamp is not before its process's start. So the start goes back with the clock. It never goes
 * forward: places that were written since the earlier one would count as a predecessor's.
 */
bool
driver_self_correct(struct driver *driver)
{
    driver_lock(driver);
    int64_t ran_ms = clock_now_ns() / NS_PER_MS - driver->began_ms;
    int64_t start_ms = driver_mesh_ms(driver) - ran_ms;
    bool is_late = driver_skew(driver) != NULL && start_ms < driver->start_ms - START_LATE_MS;
    if (is_late)
        driver->start_ms = start_ms;
    driver_unlock(driver);
    return is_late;
}

static void
write_self(struct driver *driver, const struct publish *now)
{
    const struct driver_options *options = &driver->options;
    const struct record_instance record = {
        .instance = {.id = options->instance,
                     .labels = options->labels,
                     .start_ms = driver->start_ms,
                     .version = options->version,
                     .draining = now->draining,
                     .figures = now->figures},
        .location = options->location,
        .zone = options->zone,
        .address = options->address,
        .loaders = now->loaders,
        .extras = "",
    };
    struct bytes value = {0};
    struct error error = ERROR_NONE;
    if (record_instance_write(&record, NULL, 0, &value, &error) != STATUS_OK)
        log_error("mesh_instance_refused instance=%s error=\"%s\"", options->instance, error.text);
    else
        store_set_instance(driver->store, value.data, value.used);
    bytes_fini(&value);
}

void
driver_self_publish(struct driver *driver, enum self_when when)
{
    driver_lock(driver);
    bool member = driver->member && !driver->closed && driver->store != NULL;
    struct publish now = self_now(driver);
    driver_unlock(driver);
    if (!member)
        return;
    int64_t now_ns = clock_now_ns();
    bool due = driver->said_ns == 0 || when == SELF_NOW ||
               publish_is_due(&driver->said, &now, (now_ns - driver->said_ns) / NS_PER_MS);
    if (!due)
        return;
    write_self(driver, &now);
    driver->said = now;
    driver->said_ns = now_ns;
    driver_lock(driver);
    driver->counts.published++;
    driver_unlock(driver);
}
