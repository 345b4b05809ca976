/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One node's steps on a scripted clock: the test is etcd, the runtime and the other nodes, and
 * answers what it is asked at once, unless a test says otherwise. What goes for what, in which
 * order loads begin, what lost and unknown transactions do, failures, second copies, the reaper and
 * drain.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mesh/core/mesh_core.h"

#define MINUTE INT64_C(60000)

enum { UNIT = 8192, KEPT = 64, LOAD_MS = 3000, WALL = 1000000000 };

static struct mesh *mesh;
static int64_t now_ms;
static uint64_t revision;
static enum mesh_txn_end txn_end;     /* how the test ends transactions */
static bool prompt;                   /* loads, unloads and predictions are answered at once */
static uint64_t size_units;           /* of each model */
static struct mesh_action kept[KEPT]; /* of the last step and what followed; texts are copied */
static uint32_t kept_count;
static char texts[KEPT][2][32];
static struct mesh_write written_records[KEPT];
static struct mesh_place written[KEPT][8]; /* by each kept transaction */
static char written_names[KEPT][8][32];
static struct mesh_place last_places[8]; /* by the last one */
static uint32_t last_count;

static void step(struct mesh_event event);

static void
put_used(const char *id, const struct mesh_place *places, uint32_t count, int64_t used_ms)
{
    step((struct mesh_event){.kind = MESH_MODEL_PUT,
                             .model = {.id = id,
                                       .type = "t",
                                       .path = "p",
                                       .key = "",
                                       .create_revision = 1,
                                       .revision = ++revision,
                                       .used_ms = used_ms,
                                       .places = places,
                                       .place_count = count}});
}

static void
put(const char *id, const struct mesh_place *places, uint32_t count)
{
    put_used(id, places, count, WALL + now_ms);
}

static void
instance(const char *id, uint64_t session, uint64_t room)
{
    step(
        (struct mesh_event){.kind = MESH_INSTANCE_PUT,
                            .instance = {.id = id,
                                         .labels = "",
                                         .session = session,
                                         .revision = ++revision,
                                         .figures = {.capacity_units = 1000, .free_units = room}}});
}

static void
end_txn(const struct mesh_txn *txn)
{
    const struct mesh_model *model = &txn->writes[0].model;
    if (txn_end == MESH_TXN_OK && txn->writes[0].verb == MESH_VERB_PUT)
        put_used(model->id, model->places, model->place_count, model->used_ms);
    step((struct mesh_event){.kind = MESH_TXN_ENDED, .txn = {txn->txn, txn_end}});
}

static void
follow(struct mesh_action action)
{
    struct mesh_event event = {.loaded = {.ticket = action.load.ticket, .freed = true}};
    if (action.kind == MESH_DO_TXN)
        end_txn(&action.txn);
    if (!prompt)
        return;
    if (action.kind == MESH_DO_SIZE)
        event.kind = MESH_SIZE_PREDICTED;
    else if (action.kind == MESH_DO_LOAD)
        event.kind = MESH_LOAD_ENDED;
    else if (action.kind == MESH_DO_UNLOAD)
        event.kind = MESH_UNLOAD_ENDED;
    else
        return;
    event.loaded.size_bytes = size_units * UNIT;
    if (action.kind == MESH_DO_LOAD)
        now_ms += LOAD_MS;
    step(event);
}

static const char *
keep_text(uint32_t at, int which, const char *text)
{
    snprintf(texts[at][which], sizeof(texts[at][which]), "%s", text != NULL ? text : "");
    return texts[at][which];
}

static void
step(struct mesh_event event)
{
    event.now_ms = now_ms;
    event.wall_ms = WALL + now_ms;
    struct mesh_actions actions = mesh_step(mesh, &event);
    mesh_check(mesh);
    uint32_t first = kept_count;
    for (uint32_t i = 0; i < actions.count; i++) {
        struct mesh_action action = actions.at[i];
        uint32_t at = kept_count++;
        assert_true(at < KEPT);
        if (action.kind == MESH_DO_TXN) {
            struct mesh_write *write = &written_records[at];
            assert_int_equal(action.txn.write_count, 1);
            *write = action.txn.writes[0];
            last_count = write->model.place_count;
            for (uint32_t p = 0; p < last_count; p++) {
                struct mesh_place *place = &written[at][p];
                *place = write->model.places[p];
                snprintf(written_names[at][p], 32, "%s", place->instance);
                place->instance = written_names[at][p];
                place->reason = place->reason != NULL ? "why" : NULL;
                last_places[p] = *place;
            }
            write->model.places = written[at];
            write->model.id = keep_text(at, 0, write->model.id);
            action.txn.writes = write;
            action.txn.absent = keep_text(at, 1, action.txn.absent);
        } else if (action.kind == MESH_DO_FORWARD || action.kind == MESH_DO_SERVE) {
            action.attempt.model = keep_text(at, 0, action.attempt.model);
            action.attempt.instance = keep_text(at, 1, action.attempt.instance);
        } else if (action.kind == MESH_DO_ENSURE) {
            action.ensure.model = keep_text(at, 0, action.ensure.model);
            action.ensure.instance = keep_text(at, 1, action.ensure.instance);
        } else if (action.kind != MESH_DO_ANSWER && action.kind != MESH_DO_DRAINED) {
            action.load.model = keep_text(at, 0, action.load.model);
        }
        kept[at] = action;
    }
    uint32_t last = kept_count;
    for (uint32_t i = first; i < last; i++)
        follow(kept[i]);
}

/* The first such action since `begin`; NULL: none. */
static const struct mesh_action *
seen(enum mesh_action_kind kind)
{
    for (uint32_t i = 0; i < kept_count; i++)
        if (kept[i].kind == kind)
            return &kept[i];
    return NULL;
}

static void
begin(void)
{
    kept_count = 0;
}

static void
tick(int64_t after_ms)
{
    now_ms += after_ms;
    begin();
    step((struct mesh_event){.kind = MESH_TICK});
}

static void
call_as(uint32_t number, const char *model, enum mesh_hop hop)
{
    begin();
    step((struct mesh_event){.kind = MESH_CALL,
                             .call = {.call = number,
                                      .model = model,
                                      .hop = hop,
                                      .balance = MESH_BALANCE_CALLER,
                                      .deadline_ms = now_ms + 60000}});
}

static void
served(uint32_t number)
{
    const struct mesh_action *action = seen(MESH_DO_SERVE);
    assert_non_null(action);
    assert_int_equal(action->attempt.call, number);
    step((struct mesh_event){
        .kind = MESH_TRY_ENDED,
        .tried = {.call = number, .number = action->attempt.number, .end = MESH_END_OK}});
}

/* It is used, and loaded if it was not. */
static void
use(const char *model)
{
    now_ms++;
    call_as(0, model, MESH_HOP_ENTRY);
    served(0);
}

/* Ten models' worth of memory, one of them kept back; one loader. */
static int
fresh(void **state)
{
    (void)state;
    now_ms = 1000;
    revision = 10;
    txn_end = MESH_TXN_OK;
    prompt = true;
    size_units = 100;
    kept_count = 0;
    mesh = mesh_create(&(struct mesh_config){
        .instance = "self", .models_max = 100, .instances_max = 10, .calls_max = 100});
    step((struct mesh_event){.kind = MESH_RUNTIME,
                             .runtime = {.capacity_bytes = UINT64_C(1000) * UNIT,
                                         .default_bytes = UINT64_C(100) * UNIT,
                                         .loaders = 1,
                                         .load_timeout_ms = 9000}});
    step((struct mesh_event){.kind = MESH_SESSION, .session = {5}});
    instance("self", 5, 900);
    for (int i = 0; i < 20; i++) {
        char id[16];
        snprintf(id, sizeof(id), "m%d", i);
        put(id, NULL, 0);
    }
    step((struct mesh_event){.kind = MESH_WHOLE, .whole = {revision}});
    return 0;
}

static int
drop(void **state)
{
    (void)state;
    mesh_destroy(mesh);
    return 0;
}

static void
test_a_call_loads_and_is_served(void **state)
{
    (void)state;
    call_as(3, "m1", MESH_HOP_ENTRY);
    assert_non_null(seen(MESH_DO_LOAD));
    served(3);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADED);
    assert_int_equal(last_places[0].kind, MESH_PLACE_LOADED); /* the record says so */
    call_as(3, "m1", MESH_HOP_HIT);
    assert_null(seen(MESH_DO_LOAD));
    served(3);
    call_as(3, "m2", MESH_HOP_HIT);
    assert_int_equal(seen(MESH_DO_ANSWER)->answer.end, MESH_END_NOT_HERE);
    call_as(3, "nobody", MESH_HOP_ENTRY);
    assert_int_equal(seen(MESH_DO_ANSWER)->answer.end, MESH_END_NOT_FOUND);
}

static void
test_the_oldest_goes(void **state)
{
    (void)state;
    char id[16];
    for (int i = 0; i < 9; i++) {
        snprintf(id, sizeof(id), "m%d", i);
        use(id);
    }
    use("m0");
    call_as(1, "m10", MESH_HOP_ENTRY); /* all are too young to go (E3) */
    assert_int_equal(kept_count, 0);   /* it waits (R14) */
    step((struct mesh_event){.kind = MESH_CALL_CANCELLED, .call = {.call = 1}});
    now_ms += 31000;
    use("m10");
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_NONE);
    assert_int_equal(mesh_state(mesh, "m0"), MESH_STATE_LOADED);
    assert_int_equal(mesh_state(mesh, "m2"), MESH_STATE_LOADED); /* one for one */
    assert_int_equal(mesh_figures(mesh).copies, 9);
    begin();
    step((struct mesh_event){.kind = MESH_ENSURE, /* older than all that are here (E4) */
                             .ensure = {.model = "m12", .used_ms = 1, .where = MESH_HERE}});
    assert_int_equal(mesh_state(mesh, "m12"), MESH_STATE_NONE);
    assert_null(seen(MESH_DO_UNLOAD));
}

/* K3: memory that is not free yet is waited for, without another eviction. */
static void
test_no_cascade(void **state)
{
    (void)state;
    char id[16];
    for (int i = 0; i < 9; i++) {
        snprintf(id, sizeof(id), "m%d", i);
        use(id);
    }
    now_ms += 31000;
    prompt = false;
    call_as(1, "m10", MESH_HOP_ENTRY); /* m0 goes; the reserve lets m10 load at once */
    step((struct mesh_event){.kind = MESH_SIZE_PREDICTED,
                             .loaded = {.ticket = seen(MESH_DO_SIZE)->load.ticket}});
    assert_int_equal(mesh_state(mesh, "m0"), MESH_STATE_UNLOADING);
    assert_int_equal(mesh_state(mesh, "m10"), MESH_STATE_LOADING);
    uint64_t unload = seen(MESH_DO_UNLOAD)->load.ticket;
    now_ms += LOAD_MS;
    step((struct mesh_event){.kind = MESH_LOAD_ENDED,
                             .loaded = {.ticket = seen(MESH_DO_LOAD)->load.ticket}});
    call_as(2, "m11", MESH_HOP_ENTRY); /* m1 goes; there is no memory yet for m11 */
    step((struct mesh_event){.kind = MESH_SIZE_PREDICTED,
                             .loaded = {.ticket = seen(MESH_DO_SIZE)->load.ticket}});
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_UNLOADING);
    assert_int_equal(mesh_state(mesh, "m2"), MESH_STATE_LOADED);
    assert_int_equal(mesh_state(mesh, "m11"), MESH_STATE_QUEUED);
    step((struct mesh_event){.kind = MESH_UNLOAD_ENDED,
                             .loaded = {.ticket = unload, .freed = true}});
    assert_int_equal(mesh_state(mesh, "m11"), MESH_STATE_LOADING);
}

static void
ensure(const char *model, int64_t used_ms, enum mesh_class class)
{
    step((struct mesh_event){.kind = MESH_ENSURE,
                             .ensure = {.model = model,
                                        .used_ms = used_ms,
                                        .class = class,
                                        .size_bytes = UNIT,
                                        .where = MESH_HERE}});
}

static void
load_ends(const char *expected)
{
    const struct mesh_action *last = &kept[0];
    for (uint32_t i = 0; i < kept_count; i++)
        last = kept[i].kind == MESH_DO_LOAD ? &kept[i] : last;
    assert_int_equal(last->kind, MESH_DO_LOAD);
    assert_string_equal(last->load.model, expected);
    step((struct mesh_event){.kind = MESH_LOAD_ENDED, .loaded = {.ticket = last->load.ticket}});
}

/* Q1 to Q3, Q5. */
static void
test_who_is_loaded_first(void **state)
{
    (void)state;
    prompt = false;
    begin();
    ensure("m0", 5, MESH_CLASS_ADVANCE); /* begins at once */
    ensure("m1", 7, MESH_CLASS_ADVANCE);
    ensure("m2", 8, MESH_CLASS_ADVANCE);
    ensure("m3", 6, MESH_CLASS_COPY);
    ensure("m4", 1, MESH_CLASS_MIGRATION);
    ensure("m5", 1, MESH_CLASS_ADVANCE);
    uint32_t before = kept_count;
    step((struct mesh_event){.kind = MESH_CALL, /* lifts m5 over all */
                             .call = {.call = 1, .model = "m5", .deadline_ms = now_ms + 1000}});
    assert_int_equal(kept_count, before);
    load_ends("m0");
    load_ends("m5");
    load_ends("m4");
    load_ends("m3");
    load_ends("m2");
    load_ends("m1");
}

/* T5, A4: somebody was quicker. */
static void
test_a_lost_claim(void **state)
{
    (void)state;
    instance("other", 7, 0);
    txn_end = MESH_TXN_LOST;
    begin();
    call_as(1, "m1", MESH_HOP_ENTRY);
    const struct mesh_action *txn = seen(MESH_DO_TXN);
    assert_non_null(txn);
    assert_int_equal(txn->txn.session, 5);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_CLAIMING);
    begin();
    step((struct mesh_event){.kind = MESH_TICK});
    assert_null(seen(MESH_DO_TXN)); /* nothing is known that was not before */
    begin();
    const struct mesh_place taken[] = {
        {.instance = "other", .since_ms = WALL, .kind = MESH_PLACE_LOADING}};
    put("m1", taken, 1);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_NONE);
    assert_string_equal(seen(MESH_DO_FORWARD)->attempt.instance, "other");
    assert_int_equal(seen(MESH_DO_FORWARD)->attempt.hop, MESH_HOP_HIT);
    assert_null(seen(MESH_DO_LOAD));
}

/* T4: the same compare, after a while; what the record shows counts, not the answer. */
static void
test_an_unknown_claim(void **state)
{
    (void)state;
    txn_end = MESH_TXN_UNKNOWN;
    call_as(1, "m1", MESH_HOP_ENTRY);
    uint64_t compare = seen(MESH_DO_TXN)->txn.writes[0].compare;
    tick(500);
    assert_null(seen(MESH_DO_TXN));
    tick(500);
    assert_int_equal(seen(MESH_DO_TXN)->txn.writes[0].compare, compare);
    begin();
    put("m1", last_places, 1); /* it was applied after all */
    assert_non_null(seen(MESH_DO_LOAD));
}

/* J1: what a process of the same name before this one had loaded. */
static void
test_a_former_life(void **state)
{
    (void)state;
    const struct mesh_place former[] = {
        {.instance = "self", .since_ms = 4, .kind = MESH_PLACE_LOADED}};
    begin();
    put("m1", former, 1);
    assert_int_equal(seen(MESH_DO_TXN)->txn.writes[0].model.place_count, 0);
}

/* T7, and that a model that has gone is unloaded, but not under a call. */
static void
test_another_model_of_that_name(void **state)
{
    (void)state;
    use("m1");
    call_as(1, "m1", MESH_HOP_ENTRY);
    uint32_t number = seen(MESH_DO_SERVE)->attempt.number;
    begin();
    step((struct mesh_event){.kind = MESH_MODEL_PUT,
                             .model = {.id = "m1",
                                       .type = "t",
                                       .path = "q",
                                       .key = "",
                                       .create_revision = 99,
                                       .revision = ++revision}});
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_EMPTYING);
    assert_null(seen(MESH_DO_UNLOAD));
    step((struct mesh_event){.kind = MESH_TRY_ENDED,
                             .tried = {.call = 1, .number = number, .end = MESH_END_OK}});
    assert_non_null(seen(MESH_DO_UNLOAD));
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_NONE);
}

/* Ids of models that come and go are used up by nobody: there is room for a hundred. */
static void
test_models_that_go_leave_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) {
        char id[16];
        snprintf(id, sizeof(id), "x%d", i);
        put(id, NULL, 0);
        call_as(1, id, MESH_HOP_ENTRY);
        uint32_t number = seen(MESH_DO_SERVE)->attempt.number;
        revision++;
        step((struct mesh_event){.kind = MESH_MODEL_GONE, .gone = {id, revision}});
        step((struct mesh_event){.kind = MESH_WHOLE, .whole = {revision}});
        assert_int_equal(mesh_state(mesh, id), MESH_STATE_EMPTYING);
        step((struct mesh_event){.kind = MESH_TRY_ENDED,
                                 .tried = {.call = 1, .number = number, .end = MESH_END_OK}});
        assert_int_equal(mesh_state(mesh, id), MESH_STATE_NONE);
    }
}

/* F1, F2, A5, and that the third failure ends it. */
static void
test_failures(void **state)
{
    (void)state;
    prompt = false;
    instance("other", 7, 1);
    call_as(1, "m1", MESH_HOP_ENTRY);
    step((struct mesh_event){.kind = MESH_SIZE_PREDICTED,
                             .loaded = {.ticket = seen(MESH_DO_SIZE)->load.ticket}});
    uint64_t ticket = seen(MESH_DO_LOAD)->load.ticket;
    begin();
    step((struct mesh_event){
        .kind = MESH_LOAD_ENDED,
        .loaded = {.ticket = ticket, .end = MESH_LOAD_NOT_ATTEMPTED, .reason = "no such file"}});
    assert_int_equal(last_places[0].kind, MESH_PLACE_FAILED);
    assert_null(seen(MESH_DO_UNLOAD));
    assert_string_equal(seen(MESH_DO_FORWARD)->attempt.instance, "other"); /* the call goes on */
    assert_int_equal(seen(MESH_DO_FORWARD)->attempt.hop, MESH_HOP_LOAD);
    const int64_t wall_ms = WALL + now_ms;
    const struct mesh_place three[] = {
        {.instance = "a", .since_ms = wall_ms - 3, .kind = MESH_PLACE_FAILED, .reason = "x"},
        {.instance = "b", .since_ms = wall_ms - 1, .kind = MESH_PLACE_FAILED, .reason = "last"},
        {.instance = "c", .since_ms = wall_ms - 2, .kind = MESH_PLACE_FAILED, .reason = "y"},
    };
    put("m2", three, 3);
    call_as(2, "m2", MESH_HOP_ENTRY);
    assert_int_equal(seen(MESH_DO_ANSWER)->answer.end, MESH_END_LOAD_FAILED);
    prompt = true;
    now_ms += 15 * MINUTE;
    call_as(2, "m2", MESH_HOP_ENTRY);
    served(2); /* F3: they count no more, without anybody removing them */
    assert_int_equal(last_count, 1);
}

/* R12: the only node waits for its own unload, and loads again. */
static void
test_a_runtime_that_forgets(void **state)
{
    (void)state;
    use("m1");
    txn_end = MESH_TXN_UNKNOWN; /* the withdrawal takes a while */
    call_as(1, "m1", MESH_HOP_ENTRY);
    uint32_t number = seen(MESH_DO_SERVE)->attempt.number;
    begin();
    step((struct mesh_event){
        .kind = MESH_TRY_ENDED,
        .tried = {.call = 1, .number = number, .end = MESH_END_NOT_HERE, .vanished = true}});
    assert_null(seen(MESH_DO_ANSWER));
    assert_null(seen(MESH_DO_SERVE)); /* it is not there, whatever the entry's state */
    txn_end = MESH_TXN_OK;
    tick(1000);
    assert_null(seen(MESH_DO_UNLOAD)); /* of what it does not have */
    assert_non_null(seen(MESH_DO_LOAD));
    served(1);
}

/* F2: a copy that was asked for, and fails here, is asked for elsewhere. */
static void
test_a_copy_that_fails(void **state)
{
    (void)state;
    prompt = false;
    instance("other", 7, 1);
    begin();
    ensure("m1", 0, MESH_CLASS_COPY);
    const struct mesh_event broken = {
        .kind = MESH_LOAD_ENDED,
        .loaded = {.ticket = seen(MESH_DO_LOAD)->load.ticket, .end = MESH_LOAD_BROKE}};
    step(broken);
    assert_null(seen(MESH_DO_ENSURE)); /* the memory first */
    step((struct mesh_event){
        .kind = MESH_UNLOAD_ENDED,
        .loaded = {.ticket = seen(MESH_DO_UNLOAD)->load.ticket, .freed = true}});
    assert_string_equal(seen(MESH_DO_ENSURE)->ensure.instance, "other");
    step(broken); /* what comes twice finds nothing */
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_NONE);
}

/* S2: steady use is enough; S3: so is a high rate. */
static void
test_second_copies(void **state)
{
    (void)state;
    instance("other", 7, 900);
    use("m1");
    for (int second = 0; second < 9 * 60; second += 10) {
        tick(10000);
        if (seen(MESH_DO_ENSURE) != NULL)
            break;
        use("m1");
    }
    assert_true(now_ms >= 7 * MINUTE);
    assert_string_equal(seen(MESH_DO_ENSURE)->ensure.instance, "other");
    assert_int_equal(seen(MESH_DO_ENSURE)->ensure.target, 2);
    use("m2");
    step((struct mesh_event){.kind = MESH_USED,
                             .used = {.model = "m2", .count = 300, .used_ms = WALL + now_ms}});
    tick(10000); /* 1,800 a minute */
    assert_null(seen(MESH_DO_ENSURE));
    step((struct mesh_event){.kind = MESH_USED,
                             .used = {.model = "m2", .count = 400, .used_ms = WALL + now_ms}});
    tick(10000);
    assert_string_equal(seen(MESH_DO_ENSURE)->ensure.model, "m2");
}

/* G1 */
static void
test_the_reaper(void **state)
{
    (void)state;
    instance("other", 7, 900);
    const struct mesh_place place[] = {
        {.instance = "other", .since_ms = WALL, .kind = MESH_PLACE_LOADED}};
    put("m1", place, 1);
    step((struct mesh_event){.kind = MESH_INSTANCE_GONE, .gone = {"other", ++revision}});
    tick(11 * MINUTE);
    assert_null(seen(MESH_DO_TXN)); /* not the leader */
    step((struct mesh_event){.kind = MESH_LEADER, .leader = {true}});
    now_ms -= 11 * MINUTE;
    tick(11 * MINUTE);
    assert_string_equal(seen(MESH_DO_TXN)->txn.absent, "other");
    assert_int_equal(last_count, 0);
}

/* D: the copy serves until the record shows another one. */
static void
test_drain(void **state)
{
    (void)state;
    instance("other", 7, 900);
    use("m1");
    begin();
    step((struct mesh_event){.kind = MESH_DRAIN});
    assert_string_equal(seen(MESH_DO_ENSURE)->ensure.instance, "other");
    assert_int_equal(seen(MESH_DO_ENSURE)->ensure.class, MESH_CLASS_MIGRATION);
    use("m1"); /* still here */
    call_as(1, "m2", MESH_HOP_LOAD);
    assert_int_equal(seen(MESH_DO_ANSWER)->answer.end, MESH_END_REFUSED);
    tick(1000);
    assert_null(seen(MESH_DO_DRAINED));
    struct mesh_place both[] = {
        {.instance = "self", .since_ms = last_places[0].since_ms, .kind = MESH_PLACE_LOADED},
        {.instance = "other", .since_ms = WALL + now_ms, .kind = MESH_PLACE_LOADING},
    };
    put("m1", both, 2);
    tick(1000);
    use("m1");
    assert_null(seen(MESH_DO_UNLOAD));
    both[1].kind = MESH_PLACE_LOADED;
    put("m1", both, 2);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_NONE);
    tick(1000);
    assert_non_null(seen(MESH_DO_DRAINED));
    tick(1000);
    assert_null(seen(MESH_DO_DRAINED)); /* once */
}

/* J4, J5: of two copies that nobody uses, the younger goes, if room is short; never the last. */
static void
test_the_janitor(void **state)
{
    (void)state;
    instance("other", 7, 1);
    size_units = 105; /* nine of them in 950 */
    char id[16];
    for (int i = 0; i < 9; i++) {
        snprintf(id, sizeof(id), "m%d", i);
        use(id);
    }
    const int64_t own_ms = last_places[0].since_ms; /* of m8 */
    struct mesh_place both[] = {
        {.instance = "self", .since_ms = own_ms, .kind = MESH_PLACE_LOADED},
        {.instance = "other", .since_ms = own_ms + 1, .kind = MESH_PLACE_LOADED},
    };
    put("m8", both, 2);
    tick(60 * MINUTE);
    assert_int_equal(mesh_state(mesh, "m8"), MESH_STATE_LOADED); /* the other goes */
    both[1].since_ms = own_ms - 1;
    put("m8", both, 2);
    tick(2 * MINUTE);
    assert_int_equal(mesh_state(mesh, "m8"), MESH_STATE_LOADED); /* it rests */
    tick(5 * MINUTE);
    assert_int_equal(mesh_state(mesh, "m8"), MESH_STATE_NONE);
    assert_int_equal(mesh_state(mesh, "m7"), MESH_STATE_LOADED);
    tick(6 * MINUTE);
    assert_null(seen(MESH_DO_UNLOAD)); /* there is room */
    now_ms += MINUTE * 60 * 8;
    use("m7");
    tick(6 * MINUTE);
    assert_string_equal(seen(MESH_DO_TXN)->txn.writes[0].model.id, "m7");
}

/* I6: what comes late finds nothing. */
static void
test_late_answers(void **state)
{
    (void)state;
    instance("other", 7, 0);
    const struct mesh_place place[] = {
        {.instance = "other", .since_ms = WALL, .kind = MESH_PLACE_LOADED}};
    put("m1", place, 1);
    call_as(1, "m1", MESH_HOP_ENTRY);
    uint32_t number = seen(MESH_DO_FORWARD)->attempt.number;
    step((struct mesh_event){.kind = MESH_CALL_CANCELLED, .call = {.call = 1}});
    call_as(1, "m1", MESH_HOP_ENTRY);
    begin();
    const struct mesh_event late = {
        .kind = MESH_TRY_ENDED,
        .tried = {.call = 1, .number = number, .end = MESH_END_UNREACHABLE}};
    step(late);
    assert_int_equal(kept_count, 0);
    step((struct mesh_event){.kind = MESH_CALL_CANCELLED, .call = {.call = 1}});
    step(late);
    assert_int_equal(kept_count, 0);
}

/* K4: a load that is claimed and not admitted may turn out larger than there is room for. Nobody
 * goes for it, as long as it may not come. */
static void
test_a_claim_evicts_nobody(void **state)
{
    (void)state;
    char id[16];
    for (int i = 0; i < 8; i++) {
        snprintf(id, sizeof(id), "m%d", i);
        use(id);
    }
    size_units = 300;
    txn_end = MESH_TXN_UNKNOWN;
    call_as(1, "m10", MESH_HOP_ENTRY);
    assert_int_equal(mesh_state(mesh, "m10"), MESH_STATE_CLAIMING);
    tick(2000);
    for (int i = 0; i < 8; i++) {
        snprintf(id, sizeof(id), "m%d", i);
        assert_int_equal(mesh_state(mesh, id), MESH_STATE_LOADED);
    }
}

/* T6: a record that comes with a late answer does not bring back what has gone since. */
static void
test_a_late_record(void **state)
{
    (void)state;
    put("gone", NULL, 0);
    uint64_t then = revision++;
    step((struct mesh_event){.kind = MESH_MODEL_GONE, .gone = {"gone", revision}});
    step((struct mesh_event){.kind = MESH_WHOLE, .whole = {revision}});
    uint64_t now = revision;
    revision = then - 1;
    put("gone", NULL, 0);
    revision = now;
    call_as(1, "gone", MESH_HOP_ENTRY);
    assert_int_equal(seen(MESH_DO_ANSWER)->answer.end, MESH_END_NOT_FOUND);
    put("gone", NULL, 0); /* a newer one is another */
    call_as(1, "gone", MESH_HOP_ENTRY);
    assert_non_null(seen(MESH_DO_LOAD));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_call_loads_and_is_served, fresh, drop),
        cmocka_unit_test_setup_teardown(test_the_oldest_goes, fresh, drop),
        cmocka_unit_test_setup_teardown(test_no_cascade, fresh, drop),
        cmocka_unit_test_setup_teardown(test_who_is_loaded_first, fresh, drop),
        cmocka_unit_test_setup_teardown(test_a_lost_claim, fresh, drop),
        cmocka_unit_test_setup_teardown(test_an_unknown_claim, fresh, drop),
        cmocka_unit_test_setup_teardown(test_a_former_life, fresh, drop),
        cmocka_unit_test_setup_teardown(test_another_model_of_that_name, fresh, drop),
        cmocka_unit_test_setup_teardown(test_models_that_go_leave_nothing, fresh, drop),
        cmocka_unit_test_setup_teardown(test_failures, fresh, drop),
        cmocka_unit_test_setup_teardown(test_a_runtime_that_forgets, fresh, drop),
        cmocka_unit_test_setup_teardown(test_a_copy_that_fails, fresh, drop),
        cmocka_unit_test_setup_teardown(test_second_copies, fresh, drop),
        cmocka_unit_test_setup_teardown(test_the_reaper, fresh, drop),
        cmocka_unit_test_setup_teardown(test_drain, fresh, drop),
        cmocka_unit_test_setup_teardown(test_the_janitor, fresh, drop),
        cmocka_unit_test_setup_teardown(test_late_answers, fresh, drop),
        cmocka_unit_test_setup_teardown(test_a_claim_evicts_nobody, fresh, drop),
        cmocka_unit_test_setup_teardown(test_a_late_record, fresh, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
