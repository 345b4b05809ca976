/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of work for the loop thread, in order. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "mesh/edge/driver_inside.h"

void
driver_work_add(struct driver *driver, struct work *work)
{
    if (driver->closed) {
        if (work->drop != NULL)
            work->drop(work);
        return;
    }
    work->next = NULL;
    *driver->work_last = work;
    driver->work_last = &work->next;
}

static struct work *
take_all(struct driver *driver)
{
    struct work *first = driver->work_first;
    driver->work_first = NULL;
    driver->work_last = &driver->work_first;
    return first;
}

void
driver_work_run(struct driver *driver)
{
    if (driver->works)
        return; /* what is running has added to it, and sees to it */
    driver->works = true;
    for (;;) {
        driver_lock(driver);
        struct work *work = take_all(driver);
        driver->called = work != NULL;
        CHECK(pthread_mutex_unlock(&driver->lock) == 0);
        if (work == NULL)
            break;
        while (work != NULL) {
            struct work *next = work->next;
            work->run(driver, work);
            work = next;
        }
    }
    driver->works = false;
}

void
driver_work_drop(struct driver *driver)
{
    for (struct work *work = take_all(driver); work != NULL;) {
        struct work *next = work->next;
        if (work->drop != NULL)
            work->drop(work);
        work = next;
    }
}

/* ---- ensures ---- */

struct ensure_work {
    struct work work;
    struct driver_ensure ensure;
    char texts[]; /* instance, NUL, model, NUL */
};

static void
drop(struct work *work)
{
    free(work);
}

static void
run_ensure(struct driver *driver, struct work *work)
{
    struct ensure_work *ensure = (struct ensure_work *)work;
    const struct driver_peers *peers = &driver->options.peers;
    if (peers->ensure != NULL && !peers->ensure(peers->context, &ensure->ensure)) {
        driver_lock(driver);
        if (!driver->closed)
            driver_step(driver,
                        (struct mesh_event){.kind = MESH_UNREACHABLE,
                                            .unreachable = {.instance = ensure->ensure.instance}});
        driver_unlock(driver);
    }
    free(ensure);
}

void
driver_work_on_ensure(struct driver *driver, const struct mesh_action *action)
{
    size_t instance_bytes = strlen(action->ensure.instance) + 1;
    size_t model_bytes = strlen(action->ensure.model) + 1;
    struct ensure_work *ensure = malloc(sizeof(*ensure) + instance_bytes + model_bytes);
    CHECK(ensure != NULL);
    memcpy(ensure->texts, action->ensure.instance, instance_bytes);
    memcpy(ensure->texts + instance_bytes, action->ensure.model, model_bytes);
    ensure->work = (struct work){.run = run_ensure, .drop = drop};
    ensure->ensure = (struct driver_ensure){
        .instance = ensure->texts,
        .model = ensure->texts + instance_bytes,
        .used_ms = action->ensure.used_ms,
        .class = action->ensure.class,
        .target = action->ensure.target,
        .size_bytes = action->ensure.size_bytes,
    };
    driver_work_add(driver, &ensure->work);
}

/* ---- without anything of their own ---- */

static void
add_plain(struct driver *driver, void (*run)(struct driver *driver, struct work *work))
{
    struct work *work = malloc(sizeof(*work));
    CHECK(work != NULL);
    *work = (struct work){.run = run, .drop = drop};
    driver_work_add(driver, work);
}

static void
run_drained(struct driver *driver, struct work *work)
{
    free(work);
    if (driver->options.on_drained != NULL)
        driver->options.on_drained(driver->options.context);
}

void
driver_work_on_drained(struct driver *driver)
{
    driver->drained = true;
    add_plain(driver, run_drained);
}

static void
run_publish(struct driver *driver, struct work *work)
{
    free(work);
    driver_self_publish(driver, SELF_NOW);
}

void
driver_work_publish(struct driver *driver)
{
    add_plain(driver, run_publish);
}
