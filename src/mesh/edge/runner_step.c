/* SPDX-License-Identifier: Apache-2.0 */
/* The lock and the step under it. */
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "loop/wake.h"
#include "mesh/edge/runner_inside.h"
#include "mesh/edge/skew.h"

/* Far away, with room for the core's additions and subtractions. */
#define NEVER_MS (TIME_NEVER_NS / NS_PER_MS)

void
runner_lock(struct mesh_runner *runner)
{
    CHECK(pthread_mutex_lock(&runner->lock) == 0);
}

void
runner_unlock(struct mesh_runner *runner)
{
    /* One wake-up per batch of work: later additions need none. It costs a system call, on misses
     * only. */
    bool calls = runner->work.first != NULL && !runner->work.called;
    runner->work.called = runner->work.called || calls;
    CHECK(pthread_mutex_unlock(&runner->lock) == 0);
    if (calls)
        wake_up(runner->wake);
}

void
runner_unlock_and_work(struct mesh_runner *runner)
{
    CHECK(pthread_mutex_unlock(&runner->lock) == 0);
    runner_work_run(runner);
}

int64_t
runner_wall_ms(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / NS_PER_MS;
}

int64_t
runner_mesh_ms(const struct mesh_runner *runner)
{
    struct skew *skew = runner->options.peers.skew;
    return skew != NULL ? skew_mesh_ms(skew) : runner_wall_ms();
}

struct skew *
runner_skew(const struct mesh_runner *runner)
{
    return runner->options.peers.skew;
}

int64_t
runner_deadline_ms(int64_t deadline_ns)
{
    return deadline_ns == TIME_NEVER_NS ? NEVER_MS : deadline_ns / NS_PER_MS;
}

void
runner_measure(struct mesh_runner *runner, enum runner_measure measure, uint64_t value)
{
    if (runner->options.on_measure != NULL)
        runner->options.on_measure(runner->options.context, measure, value);
}

static void
carry_out(struct mesh_runner *runner, const struct mesh_action *action)
{
    switch (action->kind) {
    case MESH_DO_TXN: runner_txn_do(runner, &action->txn); break;
    case MESH_DO_SERVE: runner_call_do_serve(runner, action); break;
    case MESH_DO_FORWARD: runner_call_do_forward(runner, action); break;
    case MESH_DO_ANSWER: runner_call_do_answer(runner, action); break;
    case MESH_DO_REPLY: runner_order_do_reply(runner, action); break;
    case MESH_DO_ENSURE: runner_work_on_ensure(runner, action); break;
    case MESH_DO_SIZE: runner_load_do(runner, action, LOAD_SIZE); break;
    case MESH_DO_LOAD: runner_load_do(runner, action, LOAD_LOAD); break;
    case MESH_DO_UNLOAD: runner_load_do(runner, action, LOAD_UNLOAD); break;
    case MESH_DO_OPEN: runner_load_do_admit(runner, action, RUNNER_OPEN); break;
    case MESH_DO_CLOSE: runner_load_do_admit(runner, action, RUNNER_CLOSED); break;
    case MESH_DO_DRAINED: runner_work_on_drained(runner); break;
    }
}

static void
step(struct mesh_runner *runner, struct mesh_event *event)
{
    event->now_ms = clock_now_ns() / NS_PER_MS;
    event->wall_ms = runner_mesh_ms(runner);
    runner->steps++;
    CHECK(!runner->in_step);
    runner->in_step = true;
    struct mesh_actions actions = mesh_step(runner->mesh, event);
    for (uint32_t i = 0; i < actions.count; i++)
        carry_out(runner, &actions.at[i]);
    runner->in_step = false;
}

void
runner_step(struct mesh_runner *runner, struct mesh_event event)
{
    CHECK(runner->ended.count == 0);
    step(runner, &event);
    while (runner->ended.count > 0) {
        event = runner_call_end(runner, &runner->ended.items[--runner->ended.count]);
        step(runner, &event);
    }
}
