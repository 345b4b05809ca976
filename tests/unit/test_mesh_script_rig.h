/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One core on a scripted clock, for tests. The rig is etcd: it holds records, compares, and tells
 * what has changed. It is the runtime, which answers at once while `rig_prompt` is set. What the
 * core does is a list of lines since `begin`:
 *
 *     write m1 self:loading other:loaded     (places in the record's order)
 *     create m1 self:loaded                  (a write where there must be no record)
 *     ensure m1 other advance 2              (who, class, copies wanted)
 *     serve 3 m1      forward 3 m1 other hit      answer 3 overloaded
 *     size m1         load m1         unload m1         drained
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mesh/core/mesh_core.h"

#define MINUTE INT64_C(60000)
#define HOUR (60 * MINUTE)

enum {
    UNIT = 8192,
    WALL = 1000000000,
    LOAD_MS = 3000,
    TEXT = 24,
    RECORDS = 150,
    PLACES = 8,
    LINES = 512,
    CALLS = 100,
};

struct rig_place {
    char instance[TEXT];
    int64_t since_ms;
    enum mesh_place_kind kind;
};

struct rig_record {
    char id[TEXT];
    char type[TEXT];
    char path[TEXT];
    uint64_t create_revision;
    uint64_t revision; /* 0: there is none */
    int64_t used_ms;
    uint32_t count;
    struct rig_place places[PLACES];
};

/* An action, with all that is needed to answer it. */
struct rig_deed {
    enum mesh_action_kind kind;
    uint64_t ticket;
    uint64_t txn;
    uint64_t session;
    uint64_t compare;
    char model[TEXT];
    struct rig_record record;
};

static struct mesh *mesh;
static int64_t now_ms;
static uint64_t revision;
static uint64_t session;
static bool rig_prompt;
static bool rig_writes; /* else transactions are not answered */
static uint64_t size_units;
static uint32_t concurrency;
static struct rig_record records[RECORDS];
static char lines[LINES][120];
static uint32_t line_count;
static uint64_t tickets[RECORDS]; /* the last one of each record's model */
static uint32_t numbers[CALLS];   /* the last try of each call */
static uint64_t rig_txn;          /* the last transaction */
static char answer_text[300];     /* of the last answer */

static void step(struct mesh_event event);

static const char *const KINDS[] = {"loading", "loaded", "failed"};
static const char *const CLASSES[] = {"call", "migration", "copy", "advance"};
static const char *const ENDS[] = {"ok",          "not-here",    "refused",   "load-failed",
                                   "overloaded",  "unreachable", "not-found", "failed",
                                   "unavailable", "deadline",    "full"};

/* ---- etcd ---- */

static struct rig_record *
record_of(const char *id)
{
    uint32_t i = 0;
    while (i < RECORDS && records[i].id[0] != '\0' && strcmp(records[i].id, id) != 0)
        i++;
    assert_true(i < RECORDS);
    snprintf(records[i].id, TEXT, "%s", id);
    return &records[i];
}

static void
tell(const struct rig_record *record)
{
    struct mesh_place places[PLACES];
    for (uint32_t i = 0; i < record->count; i++)
        places[i] = (struct mesh_place){.instance = record->places[i].instance,
                                        .since_ms = record->places[i].since_ms,
                                        .kind = record->places[i].kind};
    const struct rig_record kept = *record;
    step((struct mesh_event){.kind = MESH_MODEL_PUT,
                             .model = {.id = kept.id,
                                       .type = kept.type,
                                       .path = kept.path,
                                       .key = "",
                                       .create_revision = kept.create_revision,
                                       .revision = kept.revision,
                                       .used_ms = kept.used_ms,
                                       .places = places,
                                       .place_count = kept.count}});
}

/* "a:loaded b:failed": the places of a record that is put, as of now. */
static void
put_as(const char *id, const char *type, const char *text, int64_t used_ms)
{
    struct rig_record *record = record_of(id);
    snprintf(record->type, TEXT, "%s", type);
    snprintf(record->path, TEXT, "p-%s", id);
    record->used_ms = used_ms;
    record->revision = ++revision;
    if (record->create_revision == 0)
        record->create_revision = revision;
    record->count = 0;
    for (; *text != '\0'; text += strspn(text, " ")) {
        struct rig_place *place = &record->places[record->count++];
        char kind[TEXT];
        assert_int_equal(sscanf(text, "%23[^:]:%23[^ ]", place->instance, kind), 2);
        place->since_ms = WALL + now_ms;
        place->kind = kind[0] == 'f'                ? MESH_PLACE_FAILED
                      : strcmp(kind, "loaded") == 0 ? MESH_PLACE_LOADED
                                                    : MESH_PLACE_LOADING;
        text += strcspn(text, " ");
    }
    tell(record);
}

static inline void
put(const char *id, const char *text)
{
    put_as(id, "t", text, WALL + now_ms);
}

/* A place more in the record that there is. */
static inline void
add_place(const char *id, const char *instance, enum mesh_place_kind kind)
{
    struct rig_record *record = record_of(id);
    struct rig_place *place = NULL;
    for (uint32_t i = 0; i < record->count; i++)
        if (strcmp(record->places[i].instance, instance) == 0)
            place = &record->places[i];
    if (place == NULL)
        place = &record->places[record->count++];
    snprintf(place->instance, TEXT, "%s", instance);
    place->since_ms = WALL + now_ms;
    place->kind = kind;
    record->revision = ++revision;
    tell(record);
}

static void
answer_txn(const struct rig_deed *deed)
{
    struct rig_record *record = record_of(deed->model);
    bool holds = deed->session == session && deed->compare == record->revision;
    if (holds) {
        uint64_t create_revision = record->create_revision;
        *record = deed->record;
        record->revision = ++revision;
        record->create_revision = deed->compare == 0 ? revision : create_revision;
    }
    if (record->revision != 0)
        tell(record);
    else
        step((struct mesh_event){.kind = MESH_MODEL_GONE, .gone = {deed->model, revision}});
    step((struct mesh_event){.kind = MESH_TXN_ENDED,
                             .txn = {deed->txn, holds ? MESH_TXN_OK : MESH_TXN_LOST}});
}

/* ---- the step ---- */

static void __attribute__((format(printf, 1, 2))) say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    assert_true(line_count < LINES);
    vsnprintf(lines[line_count++], sizeof(lines[0]), format, arguments);
    va_end(arguments);
}

static void
read_txn(const struct mesh_txn *txn, struct rig_deed *deed)
{
    assert_int_equal(txn->write_count, 1);
    const struct mesh_model *model = &txn->writes[0].model;
    char text[100] = "";
    size_t used = 0;
    struct rig_record *record = &deed->record;
    snprintf(record->id, TEXT, "%s", model->id);
    snprintf(record->type, TEXT, "%s", model->type);
    snprintf(record->path, TEXT, "%s", model->path);
    record->used_ms = model->used_ms;
    record->count = model->place_count;
    assert_true(record->count <= PLACES);
    for (uint32_t i = 0; i < record->count; i++) {
        struct rig_place *place = &record->places[i];
        snprintf(place->instance, TEXT, "%s", model->places[i].instance);
        place->since_ms = model->places[i].since_ms;
        place->kind = model->places[i].kind;
        used += (size_t)snprintf(text + used, sizeof(text) - used, " %s:%s", place->instance,
                                 KINDS[place->kind]);
    }
    deed->txn = rig_txn = txn->txn;
    deed->session = txn->session;
    deed->compare = txn->writes[0].compare;
    snprintf(deed->model, TEXT, "%s", model->id);
    say("%s %s%s", deed->compare == 0 ? "create" : "write", model->id, text);
}

static void
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

static struct rig_deed
read_action(const struct mesh_action *action)
{
    struct rig_deed deed = {.kind = action->kind};
    switch (action->kind) {
    case MESH_DO_TXN: read_txn(&action->txn, &deed); break;
    case MESH_DO_SERVE:
    case MESH_DO_FORWARD: read_attempt(action); break;
    case MESH_DO_ANSWER:
        say("answer %u %s", action->answer.call, ENDS[action->answer.end]);
        snprintf(answer_text, sizeof(answer_text), "%s",
                 action->answer.text == NULL ? "" : action->answer.text);
        break;
    case MESH_DO_ENSURE:
        say("ensure %s %s %s %u", action->ensure.model, action->ensure.instance,
            CLASSES[action->ensure.class], action->ensure.target);
        break;
    case MESH_DO_SIZE: say("size %s", action->load.model); break;
    case MESH_DO_LOAD: say("load %s", action->load.model); break;
    case MESH_DO_UNLOAD: say("unload %s", action->load.model); break;
    case MESH_DO_DRAINED: say("drained"); break;
    case MESH_DO_REPLY: break;
    }
    if (action->kind == MESH_DO_SIZE || action->kind == MESH_DO_LOAD ||
        action->kind == MESH_DO_UNLOAD) {
        snprintf(deed.model, TEXT, "%s", action->load.model);
        deed.ticket = action->load.ticket;
        tickets[record_of(deed.model) - records] = deed.ticket;
    }
    return deed;
}

/* The runtime is done with what it was last asked to do with the model. */
static inline void
runtime_ends(enum mesh_event_kind kind, const char *model)
{
    step((struct mesh_event){.kind = kind,
                             .loaded = {.ticket = tickets[record_of(model) - records],
                                        .size_bytes = size_units * UNIT,
                                        .max_concurrency = concurrency,
                                        .freed = true}});
}

static void
answer_deed(const struct rig_deed *deed)
{
    if (deed->kind == MESH_DO_TXN && rig_writes)
        answer_txn(deed);
    if (!rig_prompt)
        return;
    if (deed->kind == MESH_DO_LOAD)
        now_ms += LOAD_MS;
    if (deed->kind == MESH_DO_SIZE)
        runtime_ends(MESH_SIZE_PREDICTED, deed->model);
    else if (deed->kind == MESH_DO_LOAD)
        runtime_ends(MESH_LOAD_ENDED, deed->model);
    else if (deed->kind == MESH_DO_UNLOAD)
        runtime_ends(MESH_UNLOAD_ENDED, deed->model);
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
}

static inline void
tick(int64_t after_ms)
{
    now_ms += after_ms;
    begin();
    step((struct mesh_event){.kind = MESH_TICK});
}

static inline void
call_as(uint32_t call, const char *model, enum mesh_hop hop)
{
    step((struct mesh_event){.kind = MESH_CALL,
                             .call = {.call = call,
                                      .model = model,
                                      .hop = hop,
                                      .balance = MESH_BALANCE_CALLER,
                                      .deadline_ms = now_ms + 60000}});
}

static inline void
end_call(uint32_t call, enum mesh_end end, uint64_t took_us)
{
    step((struct mesh_event){
        .kind = MESH_TRY_ENDED,
        .tried = {.call = call, .number = numbers[call], .end = end, .took_us = took_us}});
}

/* It is loaded here, and was just used. */
static inline void
use(const char *model)
{
    now_ms++;
    call_as(0, model, MESH_HOP_ENTRY);
    end_call(0, MESH_END_OK, 0);
    assert_int_equal(mesh_state(mesh, model), MESH_STATE_LOADED);
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

/* So many of 1,000 units are free; what it holds was used just now. */
static inline void
instance(const char *id, uint64_t free_units)
{
    instance_with((struct mesh_instance){
        .id = id,
        .session = strcmp(id, "self") == 0 ? session : 7,
        .figures = {.capacity_units = 1000, .free_units = free_units, .oldest_ms = WALL + now_ms}});
}

/* ---- what a test sees ---- */

static inline uint32_t
seen(const char *line)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < line_count; i++)
        count += strncmp(lines[i], line, strlen(line)) == 0 &&
                 (lines[i][strlen(line)] == '\0' || lines[i][strlen(line)] == ' ');
    return count;
}

/* For whoever looks why a test fails. */
static inline void
print_lines(void)
{
    for (uint32_t i = 0; i < line_count; i++)
        printf("  %s\n", lines[i]);
}

#define assert_seen(line, times)                                                                   \
    do {                                                                                           \
        if (seen(line) != (times))                                                                 \
            print_lines();                                                                         \
        assert_int_equal(seen(line), times);                                                       \
    } while (0)

/* A node with room for nine models of 100 units, one loader, alone. */
static int
fresh_with(uint32_t busy_percent, uint32_t waiting_max)
{
    memset(records, 0, sizeof(records));
    now_ms = 100000;
    revision = 10;
    session = 5;
    rig_prompt = true;
    rig_writes = true;
    size_units = 100;
    concurrency = 0;
    begin();
    mesh = mesh_create(&(struct mesh_config){.instance = "self",
                                             .models_max = RECORDS,
                                             .instances_max = 40,
                                             .calls_max = CALLS,
                                             .vmodels_max = 4,
                                             .busy_percent = busy_percent,
                                             .waiting_max = waiting_max});
    step((struct mesh_event){.kind = MESH_RUNTIME,
                             .runtime = {.capacity_bytes = UINT64_C(1000) * UNIT,
                                         .default_bytes = UINT64_C(100) * UNIT,
                                         .loaders = 1,
                                         .load_timeout_ms = 9000}});
    step((struct mesh_event){.kind = MESH_SESSION, .session = {session}});
    instance("self", 900);
    step((struct mesh_event){.kind = MESH_WHOLE, .whole = {revision}});
    return 0;
}

static int
fresh(void **state)
{
    (void)state;
    return fresh_with(0, 0);
}

static int
drop(void **state)
{
    (void)state;
    mesh_destroy(mesh);
    return 0;
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, fresh, drop)
