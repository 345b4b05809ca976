/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that the runner bears threads: three front threads call and cancel, one is the pipeline
 * that ends what is served, one is the runtime that loads and unloads, one manages, and the loop
 * thread ticks and works. Every call and every order ends once, nothing is unloaded beneath a
 * call, and nothing is left.
 *
 * Its time is its own (clock_now_ns below): each turn of the loop makes it later, but not while a
 * load is under way. So loads take no time, however slow the machine is, and the churn age (E3),
 * which is a multiple of how long they take, is always the same number of turns.
 *
 * ctest: timeout=180 presets=tsan
 */
#include <event2/event.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../random.h"
#include "../test.h"
#include "base/check.h"
#include "base/clock.h"
#include "mesh/core/mesh_core.h"
#include "mesh/edge/runner.h"
#include "mesh/store/store.h"

/* A place is given up at most once per churn age (E3), 20 turns or more: there are many places. */
enum { FRONTS = 3, CALLS = 1500, ORDERS = 200, MODELS = 320, ROOM = 240 };
enum { TURN_MS = 50, WAIT_S = 120 };
#define MODEL_BYTES (UINT64_C(1) << 20)
#define DAY_NS (24 * 3600 * NS_PER_S)

/* A thread's tasks, in order. */
struct job {
    struct job *next;
    void (*run)(struct job *job);
};

struct thread {
    pthread_t id;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct job *first;
    struct job **last;
    bool ends;
};

struct thread_model {
    char id[16];
    pthread_mutex_t lock;
    bool loaded;
    uint32_t in_flight;
};

/* A call at its front, which keeps it until both it is over and everybody has released it. */
struct call {
    struct runner_call call;
    struct job job;
    struct thread_model *model;
    uint32_t number;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over;     /* answered */
    bool left;     /* cancelled: nobody is to be answered */
    bool released; /* the pipeline has released it, and the runner */
    bool served;   /* the pipeline has it */
    enum mesh_end end;
};

struct load {
    struct job job;
    struct runner_load *load;
    struct thread_model *model;
    bool loads;
};

static struct mesh_runner *runner;
static struct thread_model models[MODELS];
static struct thread pipeline;
static struct thread runtime;
static atomic_uint answers, cancels, ends_ok;
static uint64_t seed;

/* ---- time ---- */

static _Atomic int64_t time_ns = NS_PER_S;
static atomic_uint loads_under_way;

/* Instead of the one in base/clock.c. */
int64_t
clock_now_ns(void)
{
    return atomic_load(&time_ns);
}

static void
turn(struct event_base *base)
{
    struct timeval moment = {.tv_usec = 2000};
    event_base_loopexit(base, &moment);
    event_base_loop(base, EVLOOP_ONCE);
    if (atomic_load(&loads_under_way) == 0)
        atomic_fetch_add(&time_ns, TURN_MS * (int64_t)NS_PER_MS);
}

/* ---- threads ---- */

static void *
thread_run(void *context)
{
    struct thread *thread = context;
    pthread_mutex_lock(&thread->lock);
    while (!thread->ends || thread->first != NULL) {
        struct job *job = thread->first;
        if (job == NULL) {
            pthread_cond_wait(&thread->changed, &thread->lock);
            continue;
        }
        thread->first = job->next;
        if (thread->first == NULL)
            thread->last = &thread->first;
        pthread_mutex_unlock(&thread->lock);
        job->run(job);
        pthread_mutex_lock(&thread->lock);
    }
    pthread_mutex_unlock(&thread->lock);
    return NULL;
}

static void
thread_start(struct thread *thread)
{
    *thread = (struct thread){.ends = false};
    thread->last = &thread->first;
    pthread_mutex_init(&thread->lock, NULL);
    pthread_cond_init(&thread->changed, NULL);
    CHECK(pthread_create(&thread->id, NULL, thread_run, thread) == 0);
}

static void
thread_give(struct thread *thread, struct job *job)
{
    pthread_mutex_lock(&thread->lock);
    job->next = NULL;
    *thread->last = job;
    thread->last = &job->next;
    pthread_cond_signal(&thread->changed);
    pthread_mutex_unlock(&thread->lock);
}

static void
thread_end(struct thread *thread)
{
    pthread_mutex_lock(&thread->lock);
    thread->ends = true;
    pthread_cond_signal(&thread->changed);
    pthread_mutex_unlock(&thread->lock);
    CHECK(pthread_join(thread->id, NULL) == 0);
    pthread_mutex_destroy(&thread->lock);
    pthread_cond_destroy(&thread->changed);
}

/* ---- the runtime ---- */

static struct thread_model *
model_of(const char *id)
{
    for (int i = 0; i < MODELS; i++)
        if (strcmp(models[i].id, id) == 0)
            return &models[i];
    UNREACHABLE();
}

static void
load_run(struct job *job)
{
    struct load *load = (struct load *)job;
    pthread_mutex_lock(&load->model->lock);
    CHECK(load->model->in_flight == 0);
    CHECK(load->model->loaded != load->loads);
    load->model->loaded = load->loads;
    pthread_mutex_unlock(&load->model->lock);
    runner_load_ended(runner, load->load, &(struct runner_load_end){.size_bytes = MODEL_BYTES});
    free(load);
    atomic_fetch_sub(&loads_under_way, 1);
}

static void
load_give(struct runner_load *what, const struct runner_model *model, bool loads)
{
    struct load *load = calloc(1, sizeof(*load));
    CHECK(load != NULL);
    load->job.run = load_run;
    load->load = what;
    load->model = model_of(model->id);
    load->loads = loads;
    atomic_fetch_add(&loads_under_way, 1);
    thread_give(&runtime, &load->job);
}

static void
on_size(void *context, struct runner_load *load, const struct runner_model *model)
{
    (void)context;
    (void)model;
    runner_load_ended(runner, load, &(struct runner_load_end){.size_bytes = MODEL_BYTES});
}

static void
on_load(void *context, struct runner_load *load, const struct runner_model *model)
{
    (void)context;
    load_give(load, model, true);
}

static void
on_unload(void *context, struct runner_load *load, const struct runner_model *model)
{
    (void)context;
    load_give(load, model, false);
}

/* ---- calls ---- */

static struct call *
call_of(struct runner_call *call)
{
    return (struct call *)((char *)call - offsetof(struct call, call));
}

static void
say_over(struct call *call, enum mesh_end end)
{
    pthread_mutex_lock(&call->lock);
    CHECK(!call->over); /* once */
    CHECK(!call->left);
    call->over = true;
    call->end = end;
    pthread_cond_signal(&call->changed);
    pthread_mutex_unlock(&call->lock);
}

static void
served(struct job *job)
{
    struct call *call = (struct call *)((char *)job - offsetof(struct call, job));
    pthread_mutex_lock(&call->model->lock);
    CHECK(call->model->loaded && call->model->in_flight > 0);
    call->model->in_flight--;
    pthread_mutex_unlock(&call->model->lock);
    pthread_mutex_lock(&call->lock);
    call->served = false;
    bool left = call->left;
    pthread_mutex_unlock(&call->lock);
    bool fails = !left && call->number % 64 == 7;
    const struct runner_end end = {.end = fails ? MESH_END_UNREACHABLE : MESH_END_OK};
    if (!fails && !left)
        say_over(call, MESH_END_OK);
    runner_try_ended(runner, &call->call, call->number, &end);
    if (fails)
        return; /* it goes on; or was answered, and may be gone */
    pthread_mutex_lock(&call->lock);
    call->released = true;
    pthread_cond_signal(&call->changed);
    pthread_mutex_unlock(&call->lock);
}

static enum runner_begun
serve(struct runner_call *made, const struct runner_attempt *attempt, struct runner_end *end)
{
    struct call *call = call_of(made);
    if (attempt->number % 128 == 9) {
        end->end = MESH_END_OVERLOADED;
        return RUNNER_ENDED;
    }
    call->number = attempt->number;
    call->model = model_of(attempt->model);
    pthread_mutex_lock(&call->model->lock);
    CHECK(call->model->loaded);
    call->model->in_flight++;
    pthread_mutex_unlock(&call->model->lock);
    pthread_mutex_lock(&call->lock);
    call->served = true;
    pthread_mutex_unlock(&call->lock);
    call->job.run = served;
    thread_give(&pipeline, &call->job);
    return RUNNER_UNDER_WAY;
}

static void
answer(struct runner_call *made, const struct runner_answer *said)
{
    struct call *call = call_of(made);
    pthread_mutex_lock(&call->lock);
    call->released = true;
    pthread_mutex_unlock(&call->lock);
    say_over(call, said->end);
}

static const struct runner_call_type type = {serve, answer};

/* Until the flag is set; it fails the test if it is not in time. */
static void
wait_for(struct call *call, const bool *flag)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    pthread_mutex_lock(&call->lock);
    while (!*flag)
        CHECK(pthread_cond_timedwait(&call->changed, &call->lock, &until) == 0);
    pthread_mutex_unlock(&call->lock);
}

/* The pipeline says under the call's lock whether it will answer: the caller leaves before that, or
 * has its answer. */
static void
cancel(struct call *call)
{
    pthread_mutex_lock(&call->lock);
    call->left = call->served;
    pthread_mutex_unlock(&call->lock);
    if (!call->left)
        return;
    atomic_fetch_add(&cancels, 1);
    (void)runner_call_cancelled(runner, &call->call);
    wait_for(call, &call->released);
}

static void
one_call(uint64_t *random)
{
    struct call *call = calloc(1, sizeof(*call));
    CHECK(call != NULL);
    pthread_mutex_init(&call->lock, NULL);
    pthread_cond_init(&call->changed, NULL);
    call->call.type = &type;
    call->call.model = models[random_draw(random) % MODELS].id;
    call->call.deadline_ns = clock_now_ns() + DAY_NS;
    runner_call(runner, &call->call);
    if (random_draw(random) % 8 == 0)
        cancel(call);
    if (!call->left) {
        wait_for(call, &call->over);
        wait_for(call, &call->released);
        atomic_fetch_add(&answers, 1);
        atomic_fetch_add(&ends_ok, call->end == MESH_END_OK);
    }
    pthread_mutex_destroy(&call->lock);
    pthread_cond_destroy(&call->changed);
    free(call);
}

static void *
front(void *context)
{
    uint64_t random = seed ^ (uint64_t)(uintptr_t)context;
    for (int i = 0; i < CALLS; i++)
        one_call(&random);
    return NULL;
}

/* ---- orders ---- */

struct order {
    struct runner_order order;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over;
    enum mesh_outcome outcome;
};

static void
order_end(struct runner_order *made, const struct runner_reply *reply)
{
    struct order *order = (struct order *)made;
    pthread_mutex_lock(&order->lock);
    CHECK(!order->over);
    order->over = true;
    order->outcome = reply->outcome;
    pthread_cond_signal(&order->changed);
    pthread_mutex_unlock(&order->lock);
}

static enum mesh_outcome
order_wait(struct mesh_order what)
{
    struct order order = {
        .order = {.order = what, .deadline_ns = clock_now_ns() + DAY_NS, .on_end = order_end},
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER};
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    runner_order(runner, &order.order);
    pthread_mutex_lock(&order.lock);
    while (!order.over)
        CHECK(pthread_cond_timedwait(&order.changed, &order.lock, &until) == 0);
    pthread_mutex_unlock(&order.lock);
    return order.outcome;
}

static void
do_register(const char *id)
{
    CHECK(order_wait((struct mesh_order){
              .kind = MESH_REGISTER, .model = id, .type = "t", .path = "p"}) == MESH_OUTCOME_OK);
}

static void *
manager(void *context)
{
    (void)context;
    uint64_t random = seed ^ 99;
    for (int i = 0; i < ORDERS; i++) {
        const char *id = models[random_draw(&random) % MODELS].id;
        uint64_t what = random_draw(&random) % 3;
        const struct mesh_order order = {.kind = what == 0   ? MESH_MODEL_STATUS
                                                 : what == 1 ? MESH_ENSURE_LOADED
                                                             : MESH_UNREGISTER,
                                         .model = id};
        CHECK(order_wait(order) == MESH_OUTCOME_OK);
        if (order.kind == MESH_UNREGISTER)
            do_register(id);
    }
    return NULL;
}

/* ---- the loop ---- */

static atomic_bool loop_ends;

static void *
loop(void *context)
{
    while (!atomic_load(&loop_ends))
        turn(context);
    return NULL;
}

static void
wait_ready(struct event_base *base)
{
    time_t end_s = time(NULL) + WAIT_S;
    struct runner_view view = {0};
    while (!runner_is_ready(runner) || view.session == 0 || view.instances == 0) {
        assert_true(time(NULL) < end_s);
        turn(base);
        runner_look(runner, &view);
    }
}

static void
register_all(void)
{
    for (int i = 0; i < MODELS; i++) {
        snprintf(models[i].id, sizeof(models[i].id), "m%d", i);
        pthread_mutex_init(&models[i].lock, NULL);
        do_register(models[i].id);
    }
}

static struct store *
open_runner(struct event_base *base)
{
    const struct runner_options options = {
        .base = base,
        .core = {.instance = "one", .seed = seed},
        .tick_ms = 5,
        .runtime = {.size = on_size, .load = on_load, .unload = on_unload},
    };
    struct error error = ERROR_NONE;
    struct store *store;
    runner = runner_create(&options);
    const struct store_events events = runner_events(runner);
    assert_int_equal(
        store_open_memory(base, &(struct store_options){.instance = "one", .events = &events},
                          &store, &error),
        STATUS_OK);
    runner_start(runner, store);
    runner_runtime_ready(runner, &(struct mesh_capacity){.capacity_bytes = ROOM * MODEL_BYTES,
                                                         .default_bytes = MODEL_BYTES / 4,
                                                         .loaders = 2,
                                                         .load_timeout_ms = 100000});
    wait_ready(base);
    return store;
}

TEST_CASE(threads_meet_in_the_runner)
{
    struct event_base *base = event_base_new();
    pthread_t looper, fronts[FRONTS], orderer;
    thread_start(&pipeline);
    thread_start(&runtime);
    struct store *store = open_runner(base);
    atomic_store(&loop_ends, false);
    CHECK(pthread_create(&looper, NULL, loop, base) == 0);
    register_all();
    for (uintptr_t i = 0; i < FRONTS; i++)
        CHECK(pthread_create(&fronts[i], NULL, front, (void *)(i + 1)) == 0);
    CHECK(pthread_create(&orderer, NULL, manager, NULL) == 0);
    for (int i = 0; i < FRONTS; i++)
        CHECK(pthread_join(fronts[i], NULL) == 0);
    CHECK(pthread_join(orderer, NULL) == 0);
    atomic_store(&loop_ends, true);
    CHECK(pthread_join(looper, NULL) == 0);
    struct runner_view view;
    runner_look(runner, &view);
    printf("answers=%u ok=%u cancels=%u loads=%llu unloads=%llu\n", atomic_load(&answers),
           atomic_load(&ends_ok), atomic_load(&cancels), (unsigned long long)view.counts.loads,
           (unsigned long long)view.counts.unloads);
    assert_int_equal(view.calls, 0);
    assert_int_equal(view.orders, 0);
    assert_int_equal(view.counts.calls, FRONTS * CALLS);
    assert_int_equal(atomic_load(&answers) + atomic_load(&cancels), FRONTS * CALLS);
    assert_true(atomic_load(&ends_ok) > 0 && view.counts.unloads > 0);
    runner_close(runner);
    store_close(store);
    thread_end(&runtime);
    thread_end(&pipeline);
    runner_destroy(runner);
    for (int i = 0; i < MODELS; i++)
        pthread_mutex_destroy(&models[i].lock);
    event_base_free(base);
}

int
main(void)
{
    seed = random_seed((uint64_t)time(NULL));
    return TEST_RUN();
}
