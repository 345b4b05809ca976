/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's events, on the loop thread: bytes become records and events of the core. An
 * unreadable record is skipped, counted and logged: what the core knew of it stands, and writes on
 * it are lost until it is rewritten or deleted. Calls and orders that need such a write get this
 * answer (runner_refuse.c).
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "mesh/edge/runner_inside.h"
#include "mesh/record/record.h"

static struct record_source
source_of(const struct store_record *record)
{
    return (struct record_source){.id = record->id,
                                  .value = record->value,
                                  .bytes = record->value_bytes,
                                  .create_revision = record->create_revision,
                                  .revision = record->revision};
}

static void
on_bad_record(struct mesh_runner *runner, const struct store_record *record,
              const struct error *error)
{
    static const char *const tables[] = {[STORE_MODELS] = "models",
                                         [STORE_VMODELS] = "vmodels",
                                         [STORE_INSTANCES] = "instances",
                                         [STORE_CONFIG] = "config"};
    int64_t now_ns = clock_now_ns();
    struct error keyed = *error;
    struct bytes key = {0};
    if (runner->store != NULL)
        store_key_put(runner->store, record->table, record->id, &key);
    bytes_put_char(&key, '\0');
    CHECK(!key.failed);
    error_prefix(&keyed, "%s", key.data);
    bytes_fini(&key);
    runner_lock(runner);
    runner->counts.bad_records++;
    if (record->table == STORE_MODELS || record->table == STORE_VMODELS)
        runner_refuse_record(runner, record->table, record->id, record->revision, keyed.text);
    bool says =
        runner->records.logged_ns == 0 || now_ns - runner->records.logged_ns > RUNNER_QUIET_NS;
    uint64_t unsaid = runner->records.unlogged;
    runner->records.unlogged = says ? 0 : unsaid + 1;
    if (says)
        runner->records.logged_ns = now_ns;
    runner_unlock(runner);
    if (says)
        log_warn("mesh_record_skipped table=%s id=\"%s\" error=\"%s\" others=%" PRIu64,
                 tables[record->table], record->id, keyed.text, unsaid);
}

static void
notify_and_unlock(struct mesh_runner *runner, struct mesh_event event)
{
    if (!runner->closed)
        runner_step(runner, event);
    runner_unlock_and_work(runner);
}

static void
notify(struct mesh_runner *runner, struct mesh_event event)
{
    runner_lock(runner);
    notify_and_unlock(runner, event);
}

static void
put_model(struct mesh_runner *runner, const struct store_record *record)
{
    struct record_model *model;
    struct error error = ERROR_NONE;
    const struct record_source source = source_of(record);
    if (record_model_read(&source, &model, &error) != STATUS_OK) {
        on_bad_record(runner, record, &error);
        return;
    }
    runner_lock(runner);
    unknown_fields_set(&runner->records.unknown_fields, STORE_MODELS, record->id, record->revision,
                       model->unknown_fields);
    runner_refuse_record(runner, STORE_MODELS, record->id, record->revision, "");
    notify_and_unlock(runner, (struct mesh_event){.kind = MESH_MODEL_PUT, .model = model->model});
    free(model);
}

static void
put_vmodel(struct mesh_runner *runner, const struct store_record *record)
{
    struct record_vmodel *vmodel;
    struct error error = ERROR_NONE;
    const struct record_source source = source_of(record);
    if (record_vmodel_read(&source, &vmodel, &error) != STATUS_OK) {
        on_bad_record(runner, record, &error);
        return;
    }
    runner_lock(runner);
    unknown_fields_set(&runner->records.unknown_fields, STORE_VMODELS, record->id, record->revision,
                       vmodel->unknown_fields);
    runner_refuse_record(runner, STORE_VMODELS, record->id, record->revision, "");
    notify_and_unlock(runner,
                      (struct mesh_event){.kind = MESH_VMODEL_PUT, .vmodel = vmodel->vmodel});
    free(vmodel);
}

static bool
is_self(const struct mesh_runner *runner, const char *instance)
{
    return strcmp(instance, runner->options.core.instance) == 0;
}

static void
put_instance(struct mesh_runner *runner, const struct store_record *record)
{
    struct record_instance *instance;
    struct error error = ERROR_NONE;
    const struct runner_peers *peers = &runner->options.peers;
    const struct record_source source = source_of(record);
    runner_lock(runner);
    uint64_t full_below_units = runner->runtimes.full_below_units;
    runner_unlock(runner);
    if (record_instance_read(&source, full_below_units, &instance, &error) != STATUS_OK) {
        on_bad_record(runner, record, &error);
        return;
    }
    const struct runner_peer peer = {.instance = record->id,
                                     .address = instance->address,
                                     .start_ms = instance->instance.start_ms};
    book_put(&runner->book, &(struct book_entry){.instance = record->id,
                                                 .location = instance->location,
                                                 .zone = instance->zone,
                                                 .address = instance->address,
                                                 .loaders = instance->loaders});
    /* before the step: its actions may forward calls there */
    if (peers->on_peer != NULL && !is_self(runner, record->id))
        peers->on_peer(peers->context, &peer);
    notify(runner, (struct mesh_event){.kind = MESH_INSTANCE_PUT, .instance = instance->instance});
    free(instance);
}

static void
set(struct mesh_runner *runner, enum record_setting_kind kind, const struct record_setting *setting)
{
    if (kind == RECORD_RATE_FOR_MORE) {
        uint32_t calls = setting != NULL ? setting->number : runner->options.core.rate_for_more;
        notify(runner, (struct mesh_event){.kind = MESH_RATE, .rate = {.for_more = calls}});
    } else if (runner->options.on_setting != NULL)
        runner->options.on_setting(runner->options.context, kind, setting);
}

/* A setting of another program, or a misspelt one: it is ignored and logged once. */
static void
on_stranger(struct mesh_runner *runner, const char *name)
{
    for (uint32_t i = 0; i < runner->unknown_settings.count; i++)
        if (strcmp(runner->unknown_settings.names[i], name) == 0)
            return;
    if (runner->unknown_settings.count == RUNNER_UNKNOWN_SETTINGS_MAX)
        return;
    char *copy = strdup(name);
    CHECK(copy != NULL);
    runner->unknown_settings.names[runner->unknown_settings.count++] = copy;
    log_warn("mesh_setting_unknown name=\"%.200s\"", name);
}

static void
put_setting(struct mesh_runner *runner, const struct store_record *record)
{
    struct record_setting setting;
    struct error error = ERROR_NONE;
    enum record_setting_kind kind = record_setting_kind(record->id);
    if (kind == RECORD_SETTING_NONE) {
        on_stranger(runner, record->id);
        return;
    }
    if (record_setting_read(kind, record->value, record->value_bytes, &setting, &error) !=
        STATUS_OK)
        on_bad_record(runner, record, &error);
    else
        set(runner, kind, &setting);
}

/* The store has reported something, with that many records. */
static void
note_report(struct mesh_runner *runner, uint32_t records)
{
    int64_t now_ms = runner_wall_ms();
    runner_lock(runner);
    runner->counts.store_records += records;
    runner->reported.reported_ms = now_ms;
    runner_unlock(runner);
}

static void
on_put(void *context, const struct store_record *record)
{
    struct mesh_runner *runner = context;
    note_report(runner, 1);
    switch (record->table) {
    case STORE_MODELS: put_model(runner, record); break;
    case STORE_VMODELS: put_vmodel(runner, record); break;
    case STORE_INSTANCES: put_instance(runner, record); break;
    case STORE_CONFIG: put_setting(runner, record); break;
    case STORE_MANIFESTS:
    case STORE_TABLES: break;
    }
}

static void
on_gone(void *context, enum store_table table, const char *id, uint64_t revision)
{
    static const enum mesh_event_kind kinds[] = {[STORE_MODELS] = MESH_MODEL_GONE,
                                                 [STORE_VMODELS] = MESH_VMODEL_GONE,
                                                 [STORE_INSTANCES] = MESH_INSTANCE_GONE};
    struct mesh_runner *runner = context;
    const struct runner_peers *peers = &runner->options.peers;
    note_report(runner, 1);
    if (table == STORE_CONFIG) {
        enum record_setting_kind kind = record_setting_kind(id);
        if (kind != RECORD_SETTING_NONE)
            set(runner, kind, NULL);
        return;
    }
    if (table >= STORE_CONFIG)
        return;
    runner_lock(runner);
    unknown_fields_drop(&runner->records.unknown_fields, table, id, revision);
    runner_refuse_record(runner, table, id, revision, "");
    notify_and_unlock(runner, (struct mesh_event){.kind = kinds[table], .gone = {id, revision}});
    if (table == STORE_INSTANCES)
        book_drop(&runner->book, id);
    if (table == STORE_INSTANCES && peers->on_peer_gone != NULL && !is_self(runner, id))
        peers->on_peer_gone(peers->context, id);
}

static void
on_whole(void *context, uint64_t revision)
{
    struct mesh_runner *runner = context;
    note_report(runner, 0);
    runner_lock(runner);
    bool first = !runner->reported.whole;
    runner->reported.whole = true;
    runner->reported.revision = revision;
    notify_and_unlock(runner,
                      (struct mesh_event){.kind = MESH_WHOLE, .whole = {.revision = revision}});
    if (first)
        log_info("mesh_registry_read instance=%s revision=%" PRIu64, runner->options.core.instance,
                 revision);
}

static void
on_session(void *context, uint64_t session)
{
    struct mesh_runner *runner = context;
    runner_lock(runner);
    runner->reported.session = session;
    runner->counts.sessions += session != 0;
    if (session != 0)
        runner->reported.full_ns = 0;
    bool closed = runner->closed;
    runner_unlock(runner);
    if (session != 0)
        log_info("mesh_session_begun instance=%s session=%" PRIu64, runner->options.core.instance,
                 session);
    else if (!closed)
        log_warn("mesh_session_lost instance=%s", runner->options.core.instance);
    notify(runner, (struct mesh_event){.kind = MESH_SESSION, .session = {.revision = session}});
}

static void
on_leader(void *context, enum store_leadership leadership)
{
    struct mesh_runner *runner = context;
    bool leads = leadership == STORE_LEADS;
    runner_lock(runner);
    bool changed = runner->reported.leads != leads;
    runner->reported.leads = leads;
    runner_unlock(runner);
    if (changed)
        log_info("mesh_leader instance=%s leads=%s", runner->options.core.instance,
                 leads ? "yes" : "no");
    notify(runner, (struct mesh_event){.kind = MESH_LEADER, .leader = {.is_leader = leads}});
}

static void
on_emptied(void *context)
{
    struct mesh_runner *runner = context;
    runner_lock(runner);
    runner->counts.emptied++;
    runner->reported.session = runner->reported.revision = 0;
    unknown_fields_restart(&runner->records.unknown_fields);
    unknown_fields_fini(&runner->records.unreadable);
    runner_unlock(runner);
    log_warn("mesh_registry_emptied instance=%s", runner->options.core.instance);
    notify(runner, (struct mesh_event){.kind = MESH_EMPTIED});
}

static void
on_trouble(void *context, const struct error *error)
{
    struct mesh_runner *runner = context;
    int64_t now_ns = clock_now_ns();
    if (runner->store_log.trouble_ns != 0 &&
        now_ns - runner->store_log.trouble_ns < RUNNER_QUIET_NS)
        return;
    runner->store_log.trouble_ns = now_ns;
    log_warn("mesh_store_trouble error=\"%s\"", error->text);
}

/* Ignored with a session: each transaction then has its own answer. */
static void
on_full(void *context, const struct error *error)
{
    struct mesh_runner *runner = context;
    runner_lock(runner);
    if (!runner->closed && runner->reported.session == 0)
        runner_refuse_writes(runner, error->text);
    runner_unlock_and_work(runner);
}

static void
on_batch_limit(void *context, size_t operations, const struct error *error)
{
    struct mesh_runner *runner = context;
    int64_t now_ns = clock_now_ns();
    if (runner->store_log.batches_ns != 0 &&
        now_ns - runner->store_log.batches_ns < RUNNER_QUIET_NS)
        return;
    runner->store_log.batches_ns = now_ns;
    log_warn("mesh_store_batches operations=%zu error=\"%s\"", operations, error->text);
}

struct store_events
runner_events(struct mesh_runner *runner)
{
    return (struct store_events){.on_put = on_put,
                                 .on_gone = on_gone,
                                 .on_whole = on_whole,
                                 .on_session = on_session,
                                 .on_leader = on_leader,
                                 .on_emptied = on_emptied,
                                 .on_trouble = on_trouble,
                                 .on_full = on_full,
                                 .on_batch_limit = on_batch_limit,
                                 .context = runner};
}
