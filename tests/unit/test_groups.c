/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches of several models side by side, on a scripted clock: each rule of worker/groups.h by
 * itself; that a busy model starves no other; that positions are never lent twice; then random
 * arrivals, with items that run alone, against an oracle that keeps nothing but a list of what is
 * held, and judges it anew at every tick, item by item, by the rules as they are written down.
 */
#include <string.h>

#include "../random.h"
#include "../test.h"
#include "base/clock.h"
#include "worker/groups.h"

enum { SIZE = 4, WAIT = 100, POSITIONS_MAX = 128 };

static const struct cost no_cost;

static struct groups_due
due_by(const struct groups *groups, int64_t now_ns, int64_t margin_ns, bool draining)
{
    const struct groups_moment moment = {
        .now_ns = now_ns, .cost = &no_cost, .margin_ns = margin_ns, .draining = draining};
    return groups_due(groups, &moment);
}

static struct groups_due
due(const struct groups *groups, int64_t now_ns)
{
    return due_by(groups, now_ns, 0, false);
}

static uint32_t
take(struct groups *groups, uint64_t model, int64_t enqueued_ns, int64_t now_ns)
{
    uint32_t position = groups_position(groups);
    groups_take(groups,
                (struct batch_item){
                    .model = model, .enqueued_ns = enqueued_ns, .deadline_ns = TIME_NEVER_NS},
                now_ns);
    return position;
}

/* The group that is due is of this model, for this reason. */
static uint32_t
close_due(struct groups *groups, int64_t now_ns, enum batch_state reason, uint64_t model)
{
    uint32_t positions[POSITIONS_MAX];
    uint64_t closed;
    struct groups_due answer = due(groups, now_ns);
    assert_int_equal(answer.state, reason);
    uint32_t count = groups_size(groups, answer.group);
    assert_int_equal(groups_close(groups, answer.group, positions, &closed), count);
    assert_true(closed == model);
    return count;
}

static void
make(struct groups *groups, uint32_t size, enum groups_ahead ahead)
{
    assert_true(groups_init(groups, size, WAIT, ahead));
}

TEST_CASE(test_one_group)
{
    struct groups groups;
    make(&groups, SIZE, GROUPS_ONE);
    assert_int_equal(groups.capacity, SIZE);
    assert_int_equal(due(&groups, 0).state, BATCH_OPEN);
    assert_true(due(&groups, 0).look_again_ns == TIME_NEVER_NS);
    take(&groups, 0, 5, 5);
    assert_int_equal(due(&groups, 5).state, BATCH_OPEN);
    assert_true(due(&groups, 5).look_again_ns == 5 + WAIT);
    for (int i = 0; i < SIZE - 1; i++)
        take(&groups, 0, 6, 6);
    assert_true(groups_full(&groups));
    assert_int_equal(close_due(&groups, 6, BATCH_CLOSED_FULL, 0), SIZE);
    assert_false(groups_full(&groups));
    groups_fini(&groups);
}

/* Each by its own clock. */
TEST_CASE(test_groups_have_clocks)
{
    struct groups groups;
    make(&groups, SIZE, GROUPS_BY_MODEL);
    take(&groups, 1, 10, 10);
    take(&groups, 2, 30, 30);
    take(&groups, 1, 40, 40);
    assert_int_equal(groups.count, 2);
    assert_true(due(&groups, 40).look_again_ns == 10 + WAIT);
    assert_int_equal(close_due(&groups, 10 + WAIT, BATCH_CLOSED_WAIT, 1), 2);
    assert_int_equal(due(&groups, 10 + WAIT).state, BATCH_OPEN);
    assert_true(due(&groups, 10 + WAIT).look_again_ns == 30 + WAIT);
    assert_int_equal(close_due(&groups, 30 + WAIT, BATCH_CLOSED_WAIT, 2), 1);
    groups_fini(&groups);
}

TEST_CASE(test_oldest_of_those_due_goes_first)
{
    struct groups groups;
    make(&groups, SIZE, GROUPS_BY_MODEL);
    take(&groups, 7, 50, 150);
    take(&groups, 8, 20, 150); /* it was pushed later, but has waited longer */
    take(&groups, 9, 60, 150);
    assert_int_equal(close_due(&groups, 160, BATCH_CLOSED_WAIT, 8), 1);
    assert_int_equal(close_due(&groups, 160, BATCH_CLOSED_WAIT, 7), 1);
    assert_int_equal(close_due(&groups, 160, BATCH_CLOSED_WAIT, 9), 1);
    /* one that is full does not go before one that has waited longer and is due */
    take(&groups, 1, 200, 200);
    for (int i = 0; i < SIZE; i++)
        take(&groups, 2, 250, 250);
    assert_int_equal(close_due(&groups, 250, BATCH_CLOSED_FULL, 2), SIZE);
    for (int i = 0; i < SIZE; i++)
        take(&groups, 2, 290, 290);
    assert_true(groups_full(&groups));
    assert_int_equal(close_due(&groups, 300, BATCH_CLOSED_WAIT, 1), 1);
    assert_true(groups_full(&groups)); /* it still is */
    assert_int_equal(close_due(&groups, 300, BATCH_CLOSED_FULL, 2), SIZE);
    groups_fini(&groups);
}

TEST_CASE(test_crowded)
{
    struct groups groups;
    make(&groups, SIZE, GROUPS_BY_MODEL);
    for (uint64_t i = 0; i < 2 * SIZE; i++) {
        assert_false(groups_full(&groups));
        assert_int_equal(due(&groups, 50).state, BATCH_OPEN);
        take(&groups, 1 + i, i == 5 ? 1 : 40, 50);
    }
    assert_true(groups_full(&groups));
    assert_int_equal(close_due(&groups, 50, BATCH_CLOSED_CROWDED, 6), 1);
    assert_false(groups_full(&groups));
    assert_int_equal(due(&groups, 50).state, BATCH_OPEN);
    groups_fini(&groups);
}

TEST_CASE(test_singletons_are_not_held_ahead)
{
    struct groups groups;
    make(&groups, 1, GROUPS_BY_MODEL);
    assert_int_equal(groups.capacity, 1);
    take(&groups, 1, 5, 5);
    assert_true(groups_full(&groups));
    assert_int_equal(close_due(&groups, 5, BATCH_CLOSED_SINGLE, 1), 1);
    groups_fini(&groups);
}

TEST_CASE(test_alone)
{
    struct groups groups;
    make(&groups, SIZE, GROUPS_BY_MODEL);
    take(&groups, 1, 20, 20);
    take(&groups, 2, 10, 20);
    groups_refuse(&groups);
    assert_true(groups_full(&groups));
    assert_int_equal(close_due(&groups, 20, BATCH_CLOSED_FULL, 2), 1);
    assert_false(groups_full(&groups));
    assert_int_equal(due(&groups, 20).state, BATCH_OPEN);
    groups_refuse(&groups);
    assert_int_equal(close_due(&groups, 20, BATCH_CLOSED_FULL, 1), 1);
    groups_take(&groups, (struct batch_item){.model = 3, .alone = true, .deadline_ns = 90}, 20);
    assert_true(groups_full(&groups));
    assert_int_equal(close_due(&groups, 20, BATCH_CLOSED_SINGLE, 3), 1);
    groups_fini(&groups);
}

TEST_CASE(test_draining_and_deadlines)
{
    struct groups groups;
    make(&groups, SIZE, GROUPS_BY_MODEL);
    take(&groups, 1, 10, 10);
    groups_take(&groups, (struct batch_item){.model = 2, .enqueued_ns = 12, .deadline_ns = 60}, 12);
    assert_true(due_by(&groups, 12, 20, false).look_again_ns == 40);
    struct groups_due answer = due_by(&groups, 40, 20, false);
    assert_int_equal(answer.state, BATCH_CLOSED_DEADLINE);
    assert_int_equal(answer.group, 1);
    answer = due_by(&groups, 12, 20, true);
    assert_int_equal(answer.state, BATCH_CLOSED_DRAINING);
    assert_int_equal(answer.group, 0);
    groups_fini(&groups);
}

struct gone {
    uint32_t positions[POSITIONS_MAX];
    uint32_t count;
    uint32_t asked;
};

static bool
is_gone(void *context, uint32_t position)
{
    struct gone *gone = context;
    gone->asked++;
    for (uint32_t i = 0; i < gone->count; i++)
        if (gone->positions[i] == position)
            return true;
    return false;
}

/* An item that is sieved out keeps its time of arrival, and its position is free again. */
TEST_CASE(test_sieve)
{
    struct groups groups;
    uint32_t positions[POSITIONS_MAX];
    uint64_t model;
    make(&groups, SIZE, GROUPS_BY_MODEL);
    struct gone gone = {.count = 2};
    gone.positions[0] = take(&groups, 1, 10, 10);
    take(&groups, 2, 20, 20);
    uint32_t stays = take(&groups, 1, 30, 30);
    gone.positions[1] = take(&groups, 3, 40, 40);
    groups_sieve(&groups, 50, is_gone, &gone);
    assert_int_equal(gone.asked, 4);
    assert_int_equal(groups.held, 2);
    assert_int_equal(groups.count, 2);
    assert_int_equal(close_due(&groups, 20 + WAIT, BATCH_CLOSED_WAIT, 2), 1);
    assert_true(due(&groups, 20 + WAIT).look_again_ns == 30 + WAIT);
    assert_int_equal(groups_close(&groups, 0, positions, &model), 1);
    assert_int_equal(positions[0], stays);
    bool lent[POSITIONS_MAX] = {false};
    for (uint32_t i = 0; i < 2 * SIZE; i++) {
        uint32_t position = take(&groups, i, 0, 0);
        assert_false(lent[position]);
        lent[position] = true;
    }
    groups_fini(&groups);
}

TEST_CASE(test_clear)
{
    struct groups groups;
    uint32_t positions[POSITIONS_MAX];
    uint32_t taken[5];
    make(&groups, SIZE, GROUPS_BY_MODEL);
    for (uint32_t i = 0; i < 5; i++)
        taken[i] = take(&groups, i % 3, i, i);
    assert_int_equal(groups_clear(&groups, positions), 5);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(positions[i], taken[i]); /* in the order in which they came */
    assert_int_equal(groups.held, 0);
    assert_int_equal(due(&groups, 1000).state, BATCH_OPEN);
    groups_fini(&groups);
}

/* ---- random arrivals against an oracle ---- */

enum { ITEMS = 60, CASES = 6000, MODELS_MAX = 12 };

struct script {
    uint32_t size;
    int64_t wait_ns;
    int64_t run_ns;
    int64_t margin_ns;
    int64_t drain_ns;
    struct batch_item items[ITEMS]; /* by time of arrival */
};

struct closing {
    int64_t at_ns;
    enum batch_state reason;
    uint64_t model;
    uint32_t count;
    uint32_t items[ITEMS];
};

struct closings {
    uint32_t count;
    struct closing list[ITEMS];
};

static uint64_t random_state;

static int64_t
random_below(int64_t limit)
{
    return (int64_t)(random_draw(&random_state) % (uint64_t)limit);
}

static void
script_draw(struct script *script)
{
    script->size = 1 + (uint32_t)random_below(6);
    script->wait_ns = random_below(4) == 0 ? 0 : random_below(80);
    script->run_ns = random_below(40);
    script->margin_ns = random_below(20);
    script->drain_ns = random_below(4) == 0 ? random_below(500) : TIME_NEVER_NS;
    int64_t models = 1 + random_below(MODELS_MAX);
    int64_t gap = 1 + random_below(20);
    int64_t at_ns = 0;
    for (int i = 0; i < ITEMS; i++) {
        at_ns += random_below(3) == 0 ? 0 : random_below(gap);
        bool hurried = random_below(4) == 0;
        bool busy = random_below(2) == 0;
        script->items[i] = (struct batch_item){
            .model = busy ? 1 : 1 + (uint64_t)random_below(models),
            .alone = random_below(16) == 0,
            .enqueued_ns = at_ns,
            .deadline_ns = hurried ? at_ns + random_below(80) : TIME_NEVER_NS,
        };
    }
}

/* ---- the oracle ---- */

struct oracle {
    const struct script *script;
    uint32_t held[ITEMS]; /* items, in the order in which they came */
    uint32_t count;
    uint32_t next; /* in the ring */
    bool refused;
};

static uint32_t
oracle_of_model(const struct oracle *oracle, uint64_t model)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < oracle->count; i++)
        count += oracle->script->items[oracle->held[i]].model == model;
    return count;
}

/* Why the items of a model would go now. */
static enum batch_state
oracle_judge(const struct oracle *oracle, uint64_t model, int64_t now_ns)
{
    const struct script *script = oracle->script;
    bool waited = false;
    bool hurried = false;
    bool alone = false;
    for (uint32_t i = 0; i < oracle->count; i++) {
        const struct batch_item *item = &script->items[oracle->held[i]];
        if (item->model != model)
            continue;
        waited |= now_ns - item->enqueued_ns >= script->wait_ns;
        hurried |=
            item->deadline_ns != TIME_NEVER_NS && item->deadline_ns - now_ns <= script->margin_ns;
        alone |= item->alone && oracle->count == 1;
    }
    uint32_t count = oracle_of_model(oracle, model);
    if (script->size == 1 || (alone && count == 1))
        return BATCH_CLOSED_SINGLE;
    bool eldest = script->items[oracle->held[0]].model == model; /* they come in the order of age */
    if (count == script->size || (oracle->refused && eldest))
        return BATCH_CLOSED_FULL;
    if (now_ns >= script->drain_ns)
        return BATCH_CLOSED_DRAINING;
    if (waited)
        return BATCH_CLOSED_WAIT;
    return hurried ? BATCH_CLOSED_DEADLINE : BATCH_OPEN;
}

static bool
oracle_takes(struct oracle *oracle, int64_t now_ns)
{
    const struct script *script = oracle->script;
    uint32_t most = script->size == 1 ? 1 : 2 * script->size;
    if (oracle->next == ITEMS || script->items[oracle->next].enqueued_ns > now_ns ||
        oracle->count == most)
        return false;
    for (uint32_t i = 0; i < oracle->count; i++)
        if (oracle_of_model(oracle, script->items[oracle->held[i]].model) == script->size ||
            (oracle->count == 1 && script->items[oracle->held[0]].alone))
            return false;
    oracle->refused = script->items[oracle->next].alone && oracle->count > 0;
    if (oracle->refused)
        return false;
    oracle->held[oracle->count++] = oracle->next++;
    return true;
}

static void
oracle_close(struct oracle *oracle, uint64_t model, int64_t now_ns, enum batch_state reason,
             struct closings *closings)
{
    struct closing *closing = &closings->list[closings->count++];
    *closing = (struct closing){.at_ns = now_ns, .reason = reason, .model = model};
    uint32_t left = 0;
    for (uint32_t i = 0; i < oracle->count; i++) {
        if (oracle->script->items[oracle->held[i]].model == model)
            closing->items[closing->count++] = oracle->held[i];
        else
            oracle->held[left++] = oracle->held[i];
    }
    oracle->count = left;
    oracle->refused = false;
}

static bool
oracle_step(struct oracle *oracle, int64_t now_ns, struct closings *closings)
{
    const struct script *script = oracle->script;
    while (oracle_takes(oracle, now_ns))
        continue;
    for (uint32_t i = 0; i < oracle->count; i++) { /* the oldest whose model's items go */
        uint64_t model = script->items[oracle->held[i]].model;
        enum batch_state reason = oracle_judge(oracle, model, now_ns);
        if (reason == BATCH_OPEN)
            continue;
        oracle_close(oracle, model, now_ns, reason, closings);
        return true;
    }
    if (oracle->count < 2 * script->size)
        return false;
    oracle_close(oracle, script->items[oracle->held[0]].model, now_ns, BATCH_CLOSED_CROWDED,
                 closings);
    return true;
}

static void
oracle_run(const struct script *script, struct closings *closings)
{
    struct oracle oracle = {.script = script};
    int64_t free_ns = 0;
    for (int64_t now_ns = 0; oracle.next < ITEMS || oracle.count > 0; now_ns++)
        while (now_ns >= free_ns && oracle_step(&oracle, now_ns, closings))
            free_ns = now_ns + script->run_ns;
}

/* ---- a worker ---- */

struct runner {
    const struct script *script;
    struct groups groups;
    uint32_t at[POSITIONS_MAX]; /* which item is at a position */
    uint32_t next;
};

static void
runner_gather(struct runner *runner, int64_t now_ns)
{
    const struct script *script = runner->script;
    struct groups *groups = &runner->groups;
    while (runner->next < ITEMS && !groups_full(groups)) {
        struct batch_item item = script->items[runner->next];
        if (item.enqueued_ns > now_ns)
            return;
        if (item.alone && groups->held > 0) {
            groups_refuse(groups);
            return;
        }
        runner->at[groups_position(groups)] = runner->next++;
        groups_take(groups, item, now_ns);
    }
}

static void
runner_close(struct runner *runner, struct groups_due answer, int64_t now_ns,
             struct closings *closings)
{
    uint32_t positions[POSITIONS_MAX];
    struct closing *closing = &closings->list[closings->count++];
    *closing = (struct closing){.at_ns = now_ns, .reason = answer.state};
    closing->count = groups_close(&runner->groups, answer.group, positions, &closing->model);
    for (uint32_t i = 0; i < closing->count; i++)
        closing->items[i] = runner->at[positions[i]];
}

/* Looks again only when it was told to, or when something comes. */
static void
runner_run(const struct script *script, struct closings *closings)
{
    static struct runner runner;
    runner = (struct runner){.script = script};
    assert_true(groups_init(&runner.groups, script->size, script->wait_ns, GROUPS_BY_MODEL));
    int64_t now_ns = 0;
    while (runner.next < ITEMS || runner.groups.held > 0) {
        runner_gather(&runner, now_ns);
        struct groups_due answer =
            due_by(&runner.groups, now_ns, script->margin_ns, now_ns >= script->drain_ns);
        if (answer.state != BATCH_OPEN) {
            runner_close(&runner, answer, now_ns, closings);
            now_ns += script->run_ns;
            continue;
        }
        int64_t again_ns = answer.look_again_ns;
        if (runner.next < ITEMS && script->items[runner.next].enqueued_ns < again_ns)
            again_ns = script->items[runner.next].enqueued_ns;
        if (script->drain_ns > now_ns && script->drain_ns < again_ns && runner.groups.held > 0)
            again_ns = script->drain_ns; /* a drain rings */
        assert_true(again_ns > now_ns && again_ns < TIME_NEVER_NS);
        now_ns = again_ns;
    }
    groups_fini(&runner.groups);
}

static void
assert_same(const struct closings *expected, const struct closings *found, int number)
{
    for (uint32_t i = 0; i < expected->count && i < found->count; i++) {
        const struct closing *a = &expected->list[i];
        const struct closing *b = &found->list[i];
        if (a->at_ns == b->at_ns && a->reason == b->reason && a->model == b->model &&
            a->count == b->count && memcmp(a->items, b->items, a->count * sizeof(uint32_t)) == 0)
            continue;
        fail_msg("case %d, closing %u: at %lld for %d, %u of model %llu, instead of at %lld for "
                 "%d, %u of model %llu",
                 number, i, (long long)b->at_ns, b->reason, b->count, (unsigned long long)b->model,
                 (long long)a->at_ns, a->reason, a->count, (unsigned long long)a->model);
    }
    assert_int_equal(expected->count, found->count);
}

TEST_CASE(test_random_against_oracle)
{
    static struct script script;
    static struct closings expected;
    static struct closings found;
    uint32_t seen[BATCH_CLOSED_CROWDED + 1] = {0};
    random_state = random_seed(20261121);
    for (int i = 0; i < CASES; i++) {
        script_draw(&script);
        expected.count = 0;
        found.count = 0;
        oracle_run(&script, &expected);
        runner_run(&script, &found);
        assert_same(&expected, &found, i);
        for (uint32_t k = 0; k < found.count; k++)
            seen[found.list[k].reason]++;
    }
    for (int reason = BATCH_CLOSED_SINGLE; reason <= BATCH_CLOSED_CROWDED; reason++)
        if (reason != BATCH_CLOSED_ADAPTIVE)
            assert_true(seen[reason] > 100); /* or the cases show little */
}

/* ---- starvation ---- */

/* One model has a full batch at any time, the others an item now and then. None of these waits
 * longer than for its own wait, the run that is under way, and one for each group that is older. */
TEST_CASE(test_busy_model_starves_nobody)
{
    enum { RUN = 30, RARE = 5, TURNS = 3000 };
    struct groups groups;
    uint32_t positions[POSITIONS_MAX];
    int64_t since[RARE + 2] = {0};
    uint32_t runs[RARE + 2] = {0};
    int64_t longest_ns = 0;
    make(&groups, SIZE, GROUPS_BY_MODEL);
    int64_t now_ns = 1;
    for (int turn = 0; turn < TURNS; turn++) {
        uint64_t rare = 2 + (uint64_t)turn % RARE;
        if (since[rare] == 0 && !groups_full(&groups)) {
            since[rare] = now_ns;
            take(&groups, rare, now_ns, now_ns);
        }
        while (!groups_full(&groups))
            take(&groups, 1, now_ns, now_ns); /* its ring is never empty */
        struct groups_due answer = due(&groups, now_ns);
        assert_int_not_equal(answer.state, BATCH_OPEN);
        uint64_t model;
        groups_close(&groups, answer.group, positions, &model);
        runs[model]++;
        if (model != 1 && now_ns - since[model] > longest_ns)
            longest_ns = now_ns - since[model];
        since[model] = 0;
        now_ns += RUN;
    }
    for (int i = 1; i < RARE + 2; i++)
        assert_true(runs[i] > 100);
    assert_true(longest_ns <= WAIT + RUN * (1 + RARE));
    groups_fini(&groups);
}

TEST_MAIN()
