/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One mesh core on a scripted clock. The rig plays everything around it. Its etcd holds records,
 * applies a transaction whose compares hold, and reports the records that it named; `network` says
 * what becomes of transactions. Its runtime answers at once while `prompt` is set. The test plays
 * the other nodes. The core's actions are a list of lines since `begin`:
 *
 *     write m1 self:loading other:loaded     (the copies in the order of the record)
 *     create m1 self:loaded                  (a write that expects no record)
 *     delete m1       set v1 m1 m2           (a vmodel's active and target)       unset v1
 *     compare m1                             (a transaction that writes nothing)
 *     ensure m1 other advance 2              (instance, class, copies wanted)
 *     serve 3 m1      forward 3 m1 other hit      answer 3 overloaded
 *     size m1         load m1         unload m1         open m1         close m1         drained
 *
 * and the answers to orders are in `replies`.
 */
#pragma once

#include <stdlib.h>

#include "mesh_rig_etcd.h"

#define MINUTE INT64_C(60000)
#define HOUR (60 * MINUTE)

enum {
    UNIT = 8192,
    WALL = 1000000000,
    LOAD_MS = 3000,
    LINES = 512,
    CALLS = 100,
    ORDERS = 8,
};

struct rig_reply {
    bool came;
    enum mesh_outcome outcome;
    enum mesh_model_state model;
    uint32_t copies;
    char first[TEXT]; /* the instance of the first copy */
    char error[128];
    enum mesh_vmodel_state vmodel;
    char owner[TEXT], active[TEXT], target[TEXT];
    enum mesh_model_state active_state, target_state;
};

/* An action, with all that is needed to answer it. */
struct rig_deed {
    enum mesh_action_kind kind;
    uint64_t ticket;
    char model[TEXT];
    uint64_t txn; /* 0: it is not answered */
    enum mesh_txn_end end;
    uint32_t named_count; /* the records to report before the answer */
    enum mesh_record named[MESH_WRITES_MAX];
    char names[MESH_WRITES_MAX][TEXT];
};

enum network {
    NETWORK_OK,
    NETWORK_APPLIED_UNKNOWN, /* applied; the answer is "unknown", and the watch is late */
    NETWORK_LOST,            /* not applied; the answer is "unknown" */
    NETWORK_LATE,            /* applied, but not answered */
    NETWORK_DOWN,            /* neither applied nor answered */
};

static struct mesh *mesh;
static int64_t now_ms;
static enum network network;
static uint64_t last_txn;
static uint64_t last_compare; /* the revision that its first record is compared with */
static char last_absent[TEXT];
static uint32_t txns;     /* transactions with writes since `begin` */
static uint32_t compares; /* and those without */

static bool prompt;
static int64_t load_ms;
static bool load_fails;
static bool unloads_wait; /* for the test, though `prompt` is set */
static uint64_t size_units;
static uint32_t concurrency;
static uint64_t tickets[MODELS]; /* the last one of each model */

static char lines[LINES][120];
static uint32_t line_count;
static uint32_t numbers[CALLS]; /* the last try of each call */
static char answer_text[300];   /* of the last answer */
static int64_t ensure_used_ms;  /* of the last "ensure" */
static struct rig_reply replies[ORDERS];

static void step(struct mesh_event event);

/* ---- what etcd says ---- */

/* The watch reports the record as it is now. */
static inline void
notify_model(const char *id)
{
    const struct rig_model model = *model_at(id);
    if (model.revision == 0) {
        step((struct mesh_event){.kind = MESH_MODEL_GONE, .gone = {model.id, revision}});
        return;
    }
    struct mesh_place places[PLACES];
    for (uint32_t i = 0; i < model.place_count; i++)
        places[i] = (struct mesh_place){.instance = model.places[i].instance,
                                        .reason = model.places[i].reason,
                                        .since_ms = model.places[i].since_ms,
                                        .kind = model.places[i].kind};
    step((struct mesh_event){.kind = MESH_MODEL_PUT,
                             .model = {.id = model.id,
                                       .type = model.type,
                                       .path = model.path,
                                       .key = model.key,
                                       .create_revision = model.create_revision,
                                       .revision = model.revision,
                                       .used_ms = model.used_ms,
                                       .references = model.references,
                                       .auto_delete = model.auto_delete,
                                       .bounds = model.bounds,
                                       .places = places,
                                       .place_count = model.place_count}});
}

static inline void
notify_vmodel(const char *id)
{
    const struct rig_vmodel vmodel = *vmodel_at(id);
    if (vmodel.revision == 0) {
        step((struct mesh_event){.kind = MESH_VMODEL_GONE, .gone = {vmodel.id, revision}});
        return;
    }
    step((struct mesh_event){.kind = MESH_VMODEL_PUT,
                             .vmodel = {.id = vmodel.id,
                                        .owner = vmodel.owner,
                                        .active = vmodel.active,
                                        .target = vmodel.target,
                                        .create_revision = vmodel.create_revision,
                                        .revision = vmodel.revision,
                                        .failed = vmodel.failed}});
}

static inline void
answer_txn(const struct rig_deed *deed)
{
    for (uint32_t i = 0; i < deed->named_count; i++)
        if (deed->named[i] == MESH_RECORD_MODEL)
            notify_model(deed->names[i]);
        else
            notify_vmodel(deed->names[i]);
    step((struct mesh_event){.kind = MESH_TXN_ENDED, .txn = {deed->txn, deed->end}});
}

/* ---- the step ---- */

static inline void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    assert_true(line_count < LINES);
    vsnprintf(lines[line_count++], sizeof(lines[0]), format, arguments);
    va_end(arguments);
}

static inline void
say_write(const struct mesh_write *write)
{
    static const char *const KINDS[] = {"loading", "loaded", "failed"};
    const struct mesh_model *model = &write->model;
    char places[100] = "";
    size_t used = 0;
    if (write->record == MESH_RECORD_VMODEL) {
        if (write->verb == MESH_VERB_DELETE)
            say("unset %s", write->vmodel.id);
        else
            say("set %s %s %s", write->vmodel.id, write->vmodel.active, write->vmodel.target);
        return;
    }
    if (write->verb == MESH_VERB_DELETE) {
        say("delete %s", model->id);
        return;
    }
    for (uint32_t i = 0; i < model->place_count; i++)
        used += (size_t)snprintf(places + used, sizeof(places) - used, " %s:%s",
                                 model->places[i].instance, KINDS[model->places[i].kind]);
    say("%s %s%s", write->compare == 0 ? "create" : "write", model->id, places);
}

static inline void
read_txn(const struct mesh_txn *txn, struct rig_deed *deed)
{
    bool writes = false;
    for (uint32_t i = 0; i < txn->write_count; i++) {
        const struct mesh_write *write = &txn->writes[i];
        deed->named[i] = write->record;
        set_text(deed->names[i], id_of(write));
        if (write->verb != MESH_VERB_COMPARE) {
            writes = true;
            say_write(write);
        }
    }
    if (!writes)
        say("compare %s", id_of(&txn->writes[0]));
    txns += writes;
    compares += !writes;
    last_txn = txn->txn;
    last_compare = txn->writes[0].compare;
    set_text(last_absent, txn->absent);
    bool hold = compares_hold(txn);
    if (hold && network != NETWORK_LOST && network != NETWORK_DOWN)
        apply(txn);
    if (network == NETWORK_OK || network == NETWORK_APPLIED_UNKNOWN || network == NETWORK_LOST)
        deed->txn = txn->txn;
    deed->end = hold ? MESH_TXN_OK : MESH_TXN_LOST;
    deed->named_count = txn->write_count;
    if (network != NETWORK_OK) {
        deed->end = MESH_TXN_UNKNOWN;
        deed->named_count = 0;
    }
}

static inline void
read_attempt(const struct mesh_action *action)
{
    static const char *const HOPS[] = {"entry", "load", "hit"};
    assert_true(action->attempt.call < CALLS);
    numbers[action->attempt.call] = action->attempt.number;
    if (action->kind == MESH_DO_SERVE)
        say("serve %u %s", action->attempt.call, action->attempt.model);
    else
        say("forward %u %s %s %s", action->attempt.call, action->attempt.model,
            action->attempt.instance, HOPS[action->attempt.hop]);
}

static inline void
read_answer(const struct mesh_action *action)
{
    static const char *const ENDS[] = {"ok",          "not-here",    "refused",   "load-failed",
                                       "overloaded",  "unreachable", "not-found", "failed",
                                       "unavailable", "deadline",    "full"};
    const char *text = action->answer.text;
    say("answer %u %s", action->answer.call, ENDS[action->answer.end]);
    snprintf(answer_text, sizeof(answer_text), "%s", text == NULL ? "" : text);
}

static inline void
read_reply(const struct mesh_action *action)
{
    struct rig_reply *reply = &replies[action->reply.order];
    const struct mesh_status *status = &action->reply.model;
    const struct mesh_vmodel_status *vmodel = &action->reply.vmodel;
    assert_false(reply->came);
    *reply = (struct rig_reply){.came = true,
                                .outcome = action->reply.outcome,
                                .model = status->state,
                                .copies = status->place_count,
                                .vmodel = vmodel->state,
                                .active_state = vmodel->active_status.state,
                                .target_state = vmodel->target_status.state};
    if (status->place_count > 0)
        set_text(reply->first, status->places[0].instance);
    snprintf(reply->error, sizeof(reply->error), "%s", status->error == NULL ? "" : status->error);
    set_text(reply->owner, vmodel->owner);
    set_text(reply->active, vmodel->active);
    set_text(reply->target, vmodel->target);
}

static inline void
read_ensure(const struct mesh_action *action)
{
    static const char *const CLASSES[] = {"call", "migration", "copy", "advance"};
    say("ensure %s %s %s %u", action->ensure.model, action->ensure.instance,
        CLASSES[action->ensure.class], action->ensure.target);
    ensure_used_ms = action->ensure.used_ms;
}

static inline void
read_load(const char *verb, const struct mesh_action *action, struct rig_deed *deed)
{
    say("%s %s", verb, action->load.model);
    set_text(deed->model, action->load.model);
    deed->ticket = action->load.ticket;
    tickets[model_at(deed->model) - models] = deed->ticket;
}

static inline struct rig_deed
read_action(const struct mesh_action *action)
{
    struct rig_deed deed = {.kind = action->kind};
    switch (action->kind) {
    case MESH_DO_TXN: read_txn(&action->txn, &deed); break;
    case MESH_DO_SERVE:
    case MESH_DO_FORWARD: read_attempt(action); break;
    case MESH_DO_ANSWER: read_answer(action); break;
    case MESH_DO_REPLY: read_reply(action); break;
    case MESH_DO_ENSURE: read_ensure(action); break;
    case MESH_DO_SIZE: read_load("size", action, &deed); break;
    case MESH_DO_LOAD: read_load("load", action, &deed); break;
    case MESH_DO_UNLOAD: read_load("unload", action, &deed); break;
    case MESH_DO_OPEN: say("open %s", action->load.model); break;
    case MESH_DO_CLOSE: say("close %s", action->load.model); break;
    case MESH_DO_DRAINED: say("drained"); break;
    }
    return deed;
}

static inline void
runtime_answers(enum mesh_event_kind kind, uint64_t ticket)
{
    bool failed = kind == MESH_LOAD_ENDED && load_fails;
    step((struct mesh_event){.kind = kind,
                             .loaded = {.ticket = ticket,
                                        .size_bytes = size_units * UNIT,
                                        .end = failed ? MESH_LOAD_NOT_ATTEMPTED : MESH_LOAD_OK,
                                        .reason = failed ? "broken" : NULL,
                                        .max_concurrency = concurrency,
                                        .freed = true}});
}

static inline void
answer_deed(const struct rig_deed *deed)
{
    if (deed->txn != 0)
        answer_txn(deed);
    if (!prompt)
        return;
    if (deed->kind == MESH_DO_SIZE)
        runtime_answers(MESH_SIZE_PREDICTED, deed->ticket);
    if (deed->kind == MESH_DO_UNLOAD && !unloads_wait)
        runtime_answers(MESH_UNLOAD_ENDED, deed->ticket);
    if (deed->kind == MESH_DO_LOAD) {
        now_ms += load_ms;
        runtime_answers(MESH_LOAD_ENDED, deed->ticket);
    }
}

static void
step(struct mesh_event event)
{
    event.now_ms = now_ms;
    event.wall_ms = WALL + now_ms;
    struct mesh_actions actions = mesh_step(mesh, &event);
    mesh_check(mesh);
    uint32_t count = actions.count;
    struct rig_deed *deeds = calloc(count + 1, sizeof(*deeds));
    assert_non_null(deeds);
    for (uint32_t i = 0; i < count; i++)
        deeds[i] = read_action(&actions.at[i]);
    for (uint32_t i = 0; i < count; i++)
        answer_deed(&deeds[i]);
    free(deeds);
}

/* ---- what a test does ---- */

static inline void
begin(void)
{
    line_count = 0;
    txns = 0;
    compares = 0;
    memset(replies, 0, sizeof(replies));
}

static inline void
pass(int64_t ms)
{
    now_ms += ms;
    step((struct mesh_event){.kind = MESH_TICK});
}

static inline void
tick(int64_t after_ms)
{
    begin();
    pass(after_ms);
}

/* Writes a copy into the record; the node does not see that yet. */
static inline void
place(const char *id, const char *instance, enum mesh_place_kind kind, int64_t since_ms)
{
    struct rig_model *model = model_at(id);
    struct rig_place *place = NULL;
    for (uint32_t i = 0; i < model->place_count; i++)
        if (strcmp(model->places[i].instance, instance) == 0)
            place = &model->places[i];
    if (place == NULL) {
        assert_true(model->place_count < PLACES);
        place = &model->places[model->place_count++];
    }
    set_text(place->instance, instance);
    set_text(place->reason, kind == MESH_PLACE_FAILED ? "broken" : "");
    place->since_ms = WALL + since_ms;
    place->kind = kind;
    model->revision = ++revision;
}

static inline void
add_place(const char *id, const char *instance, enum mesh_place_kind kind)
{
    place(id, instance, kind, now_ms);
    notify_model(id);
}

/* Writes a record, its copies given as "a:loaded b:failed", as of now. */
static inline void
put_as(const char *id, const char *type, const char *copies, int64_t used_ms)
{
    struct rig_model *model = model_at(id);
    set_text(model->type, type);
    snprintf(model->path, TEXT, "p-%.20s", id);
    model->used_ms = used_ms;
    model->revision = ++revision;
    if (model->create_revision == 0)
        model->create_revision = revision;
    model->place_count = 0;
    for (; *copies != '\0'; copies += strspn(copies, " ")) {
        struct rig_place *place = &model->places[model->place_count++];
        char kind[TEXT];
        assert_int_equal(sscanf(copies, "%23[^:]:%23[^ ]", place->instance, kind), 2);
        place->since_ms = WALL + now_ms;
        place->kind = kind[0] == 'f'                ? MESH_PLACE_FAILED
                      : strcmp(kind, "loaded") == 0 ? MESH_PLACE_LOADED
                                                    : MESH_PLACE_LOADING;
        copies += strcspn(copies, " ");
    }
    notify_model(id);
}

static inline void
put(const char *id, const char *copies)
{
    put_as(id, "t", copies, WALL + now_ms);
}

static inline void
model_gone(const char *id)
{
    step((struct mesh_event){.kind = MESH_MODEL_GONE, .gone = {id, ++revision}});
}

static inline void
instance_with(struct mesh_instance instance)
{
    instance.revision = ++revision;
    if (instance.labels == NULL)
        instance.labels = "";
    if (instance.session == 0)
        instance.session = revision;
    step((struct mesh_event){.kind = MESH_INSTANCE_PUT, .instance = instance});
}

/* `free_units` of 1,000 are free; the oldest model there was used just now. */
static inline void
instance(const char *id, uint64_t free_units)
{
    instance_with((struct mesh_instance){
        .id = id,
        .session = strcmp(id, "self") == 0 ? session : 7,
        .figures = {.capacity_units = 1000, .free_units = free_units, .oldest_ms = WALL + now_ms}});
}

static inline void
instance_gone(const char *id)
{
    step((struct mesh_event){.kind = MESH_INSTANCE_GONE, .gone = {id, ++revision}});
}

static inline void
runtime(uint64_t capacity_units)
{
    step((struct mesh_event){.kind = MESH_RUNTIME,
                             .runtime = {.capacity_bytes = capacity_units * UNIT,
                                         .default_bytes = UINT64_C(100) * UNIT,
                                         .loaders = 1,
                                         .load_timeout_ms = 9000}});
}

/* The runtime finishes what it was last asked to do with the model. */
static inline void
runtime_ends(enum mesh_event_kind kind, const char *model)
{
    runtime_answers(kind, tickets[model_at(model) - models]);
}

static inline void
set_session(uint64_t given)
{
    step((struct mesh_event){.kind = MESH_SESSION, .session = {given}});
}

static inline void
mirror_is_whole(void)
{
    step((struct mesh_event){.kind = MESH_WHOLE, .whole = {revision}});
}

static inline void
lead(bool is_leader)
{
    step((struct mesh_event){.kind = MESH_LEADER, .leader = {is_leader}});
}

static inline void
drain(void)
{
    step((struct mesh_event){.kind = MESH_DRAIN});
}

static inline void
call_as(uint32_t call, const char *model, enum mesh_hop hop)
{
    step((struct mesh_event){.kind = MESH_CALL,
                             .call = {.call = call,
                                      .model = model,
                                      .hop = hop,
                                      .balance = MESH_BALANCE_CALLER,
                                      .deadline_ms = now_ms + MINUTE}});
}

static inline void
cancel(uint32_t call)
{
    step((struct mesh_event){.kind = MESH_CALL_CANCELLED, .call = {.call = call}});
}

static inline void
end_call(uint32_t call, enum mesh_end end, uint64_t took_us)
{
    step((struct mesh_event){
        .kind = MESH_TRY_ENDED,
        .tried = {.call = call, .number = numbers[call], .end = end, .took_us = took_us}});
}

/* The runtime does not know the model of the call that it was to serve. */
static inline void
vanish(uint32_t call)
{
    step((struct mesh_event){
        .kind = MESH_TRY_ENDED,
        .tried = {
            .call = call, .number = numbers[call], .end = MESH_END_NOT_HERE, .vanished = true}});
}

static inline void
load_here(const char *model)
{
    call_as(0, model, MESH_HOP_LOAD);
    end_call(0, MESH_END_OK, 0);
}

/* Calls a model, which this node loads if it has to. */
static inline void
use(const char *model)
{
    now_ms++;
    call_as(0, model, MESH_HOP_ENTRY);
    end_call(0, MESH_END_OK, 0);
    assert_int_equal(mesh_state(mesh, model), MESH_STATE_LOADED);
}

static inline void
order_more(struct mesh_order order)
{
    order.deadline_ms = now_ms + MINUTE;
    step((struct mesh_event){.kind = MESH_ORDER, .order = order});
}

/* Its reply has not come if it waits for something. */
static inline const struct rig_reply *
order(struct mesh_order given)
{
    begin();
    order_more(given);
    return &replies[given.order];
}

static inline enum mesh_outcome
outcome(struct mesh_order given)
{
    const struct rig_reply *reply = order(given);
    assert_true(reply->came);
    return reply->outcome;
}

/* The type, or the target, comes after the id; then fields by name. */
#define REGISTER(id, ...)                                                                          \
    ((struct mesh_order){.kind = MESH_REGISTER, .model = (id), .type = __VA_ARGS__})
#define SET(id, ...)                                                                               \
    ((struct mesh_order){.kind = MESH_SET_VMODEL, .vmodel = (id), .model = __VA_ARGS__})

/* ---- what a test sees ---- */

/* How many lines begin with these words. */
static inline uint32_t
seen(const char *words)
{
    size_t length = strlen(words);
    uint32_t count = 0;
    for (uint32_t i = 0; i < line_count; i++)
        count += strncmp(lines[i], words, length) == 0 &&
                 (lines[i][length] == '\0' || lines[i][length] == ' ');
    return count;
}

static inline void
print_lines(void)
{
    for (uint32_t i = 0; i < line_count; i++)
        printf("  %s\n", lines[i]);
}

#define assert_seen(words, times)                                                                  \
    do {                                                                                           \
        if (seen(words) != (times))                                                                \
            print_lines();                                                                         \
        assert_int_equal(seen(words), times);                                                      \
    } while (0)

/* ---- setup and teardown ---- */

/* Starts a node that has a session, and sees an etcd with nothing in it. */
static inline int
start(struct mesh_config config)
{
    memset(models, 0, sizeof(models));
    memset(vmodels, 0, sizeof(vmodels));
    now_ms = 100000;
    revision = 10;
    session = 5;
    network = NETWORK_OK;
    prompt = true;
    load_ms = LOAD_MS;
    load_fails = false;
    unloads_wait = false;
    size_units = 100;
    concurrency = 0;
    config.instance = "self";
    config.models_max = config.models_max == 0 ? MODELS : config.models_max;
    config.instances_max = config.instances_max == 0 ? 40 : config.instances_max;
    config.calls_max = CALLS;
    config.vmodels_max = VMODELS;
    config.orders_max = ORDERS;
    mesh = mesh_create(&config);
    runtime(1000);
    set_session(session);
    instance("self", 900);
    mirror_is_whole();
    begin();
    return 0;
}

/* A node with room for nine models of 100 units, one loader, alone. */
static inline int
fresh(void **state)
{
    (void)state;
    return start((struct mesh_config){0});
}

/* The same with three models, a, b and c, none of them loaded, which take no time to load. */
static inline int
fresh_with_models(void **state)
{
    fresh(state);
    load_ms = 0;
    size_units = 1;
    assert_int_equal(outcome(REGISTER("a", "t", .path = "p")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(REGISTER("b", "t", .path = "p")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(REGISTER("c", "t", .path = "p")), MESH_OUTCOME_OK);
    begin();
    return 0;
}

static inline int
drop(void **state)
{
    (void)state;
    check_references();
    mesh_destroy(mesh);
    return 0;
}
