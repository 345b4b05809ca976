/* SPDX-License-Identifier: Apache-2.0 */
/* The lock, and the step under it. */
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "mesh/edge/driver_inside.h"
#include "mesh/edge/skew.h"
#include "mesh/edge/wake.h"

/* Far enough, and the core may still subtract from it and add to it. */
#define NEVER_MS (TIME_NEVER_NS / NS_PER_MS)

void
driver_lock(struct driver *driver)
{
    CHECK(pthread_mutex_lock(&driver->lock) == 0);
}

void
driver_unlock(struct driver *driver)
{
    /* One wake for each time that work is found: who adds to work that waits need not call. It
     * costs a system call, on misses only. */
    bool calls = driver->work_first != NULL && !driver->called;
    driver->called = driver->called || calls;
    CHECK(pthread_mutex_unlock(&driver->lock) == 0);
    if (calls)
        wake_up(driver->wake);
}

void
driver_unlock_and_work(struct driver *driver)
{
    CHECK(pthread_mutex_unlock(&driver->lock) == 0);
    driver_work_run(driver);
}

int64_t
driver_wall_ms(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / NS_PER_MS;
}

int64_t
driver_mesh_ms(const struct driver *driver)
{
    struct skew *skew = driver->options.peers.skew;
    return skew != NULL ? skew_mesh_ms(skew) : driver_wall_ms();
}

struct skew *
driver_skew(const struct driver *driver)
{
    return driver->options.peers.skew;
}

int64_t
driver_deadline_ms(int64_t deadline_ns)
{
    return deadline_ns == TIME_NEVER_NS ? NEVER_MS : deadline_ns / NS_PER_MS;
}

void
driver_measure(struct driver *driver, enum driver_measure measure, uint64_t value)
{
    if (driver->options.on_measure != NULL)
        driver->options.on_measure(driver->options.context, measure, value);
}

static void
carry_out(struct driver *driver, const struct mesh_action *action)
{
    switch (action->kind) {
    case MESH_DO_TXN: driver_txn_do(driver, &action->txn); break;
    case MESH_DO_SERVE: driver_call_do_serve(driver, action); break;
    case MESH_DO_FORWARD: driver_call_do_forward(driver, action); break;
    case MESH_DO_ANSWER: driver_call_do_answer(driver, action); break;
    case MESH_DO_REPLY: driver_order_do_reply(driver, action); break;
    case MESH_DO_ENSURE: driver_work_on_ensure(driver, action); break;
    case MESH_DO_SIZE: driver_load_do(driver, action, LOAD_SIZE); break;
    case MESH_DO_LOAD: driver_load_do(driver, action, LOAD_LOAD); break;
    case MESH_DO_UNLOAD: driver_load_do(driver, action, LOAD_UNLOAD); break;
    case MESH_DO_DRAINED: driver_work_on_drained(driver); break;
    }
}

static void
step(struct driver *driver, struct mesh_event *event)
{
    event->now_ms = clock_now_ns() / NS_PER_MS;
    event->wall_ms = driver_mesh_ms(driver);
    driver->steps++;
    struct mesh_actions actions = mesh_step(driver->mesh, event);
    for (uint32_t i = 0; i < actions.count; i++)
        carry_out(driver, &actions.at[i]);
}

void
driver_step(struct driver *driver, struct mesh_event event)
{
    step(driver, &event);
    while (driver->ended_count > 0) {
        event = driver_call_end(driver, &driver->ended[--driver->ended_count]);
        step(driver, &event);
    }
}
