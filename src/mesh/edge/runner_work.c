/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of work for the loop thread, in order. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "mesh/edge/runner_inside.h"

void
runner_work_add(struct mesh_runner *runner, struct runner_work *work)
{
    if (runner->closed) {
        if (work->drop != NULL)
            work->drop(work);
        return;
    }
    CHECK(*runner->work.last == NULL);
    work->next = NULL;
    *runner->work.last = work;
    runner->work.last = &work->next;
}

static struct runner_work *
take_all(struct mesh_runner *runner)
{
    struct runner_work *first = runner->work.first;
    runner->work.first = NULL;
    runner->work.last = &runner->work.first;
    return first;
}

void
runner_work_run(struct mesh_runner *runner)
{
    if (runner->works)
        return; /* added by running work, which handles it */
    runner->works = true;
    for (;;) {
        runner_lock(runner);
        struct runner_work *work = take_all(runner);
        runner->work.called = work != NULL;
        CHECK(pthread_mutex_unlock(&runner->lock) == 0);
        if (work == NULL)
            break;
        while (work != NULL) {
            struct runner_work *next = work->next;
            work->run(runner, work);
            work = next;
        }
    }
    runner->works = false;
}

void
runner_work_drop(struct mesh_runner *runner)
{
    for (struct runner_work *work = take_all(runner); work != NULL;) {
        struct runner_work *next = work->next;
        if (work->drop != NULL)
            work->drop(work);
        work = next;
    }
}

/* ---- ensures ---- */

struct ensure_work {
    struct runner_work work;
    struct mesh_ensure ensure;
    char texts[]; /* instance, NUL, model, NUL */
};

static void
drop(struct runner_work *work)
{
    free(work);
}

static void
run_ensure(struct mesh_runner *runner, struct runner_work *work)
{
    struct ensure_work *ensure = (struct ensure_work *)work;
    const struct runner_peers *peers = &runner->options.peers;
    if (peers->ensure != NULL && !peers->ensure(peers->context, &ensure->ensure)) {
        runner_lock(runner);
        if (!runner->closed)
            runner_step(runner,
                        (struct mesh_event){.kind = MESH_UNREACHABLE,
                                            .unreachable = {.instance = ensure->ensure.instance}});
        runner_unlock(runner);
    }
    free(ensure);
}

void
runner_work_on_ensure(struct mesh_runner *runner, const struct mesh_action *action)
{
    size_t instance_bytes = strlen(action->ensure.instance) + 1;
    size_t model_bytes = strlen(action->ensure.model) + 1;
    struct ensure_work *ensure = malloc(sizeof(*ensure) + instance_bytes + model_bytes);
    CHECK(ensure != NULL);
    memcpy(ensure->texts, action->ensure.instance, instance_bytes);
    memcpy(ensure->texts + instance_bytes, action->ensure.model, model_bytes);
    ensure->work = (struct runner_work){.run = run_ensure, .drop = drop};
    ensure->ensure = action->ensure;
    ensure->ensure.instance = ensure->texts;
    ensure->ensure.model = ensure->texts + instance_bytes;
    runner_work_add(runner, &ensure->work);
}

/* ---- without anything of their own ---- */

static void
add_plain(struct mesh_runner *runner,
          void (*run)(struct mesh_runner *runner, struct runner_work *work))
{
    struct runner_work *work = malloc(sizeof(*work));
    CHECK(work != NULL);
    *work = (struct runner_work){.run = run, .drop = drop};
    runner_work_add(runner, work);
}

static void
run_drained(struct mesh_runner *runner, struct runner_work *work)
{
    free(work);
    if (runner->options.on_drained != NULL)
        runner->options.on_drained(runner->options.context);
}

void
runner_work_on_drained(struct mesh_runner *runner)
{
    runner->drained = true;
    add_plain(runner, run_drained);
}

static void
run_publish(struct mesh_runner *runner, struct runner_work *work)
{
    free(work);
    runner_self_publish(runner, SELF_NOW);
}

void
runner_work_publish(struct mesh_runner *runner)
{
    add_plain(runner, run_publish);
}
