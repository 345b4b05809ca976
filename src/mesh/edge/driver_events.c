/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's events, on the loop thread: bytes become records, and events of the core. A record
 * that cannot be read is skipped, counted and logged: what the core knew of it stands, and its
 * writes on it are lost, until somebody writes it well or it goes. Until then whoever needs such a
 * write is told so (driver_refuse.c).
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "mesh/edge/driver_inside.h"
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
on_bad_record(struct driver *driver, const struct store_record *record, const struct error *error)
{
    static const char *const tables[] = {[STORE_MODELS] = "models",
                                         [STORE_VMODELS] = "vmodels",
                                         [STORE_INSTANCES] = "instances",
                                         [STORE_CONFIG] = "config"};
    int64_t now_ns = clock_now_ns();
    struct error keyed = *error;
    struct bytes key = {0};
    if (driver->store != NULL)
        store_key_put(driver->store, record->table, record->id, &key);
    bytes_put_char(&key, '\0');
    CHECK(!key.failed);
    error_prefix(&keyed, "%s", key.data);
    bytes_fini(&key);
    driver_lock(driver);
    driver->counts.bad_records++;
    if (record->table == STORE_MODELS || record->table == STORE_VMODELS)
        driver_refuse_record(driver, record->table, record->id, record->revision, keyed.text);
    bool says = driver->bad_ns == 0 || now_ns - driver->bad_ns > DRIVER_QUIET_NS;
    uint64_t unsaid = driver->bad_unsaid;
    driver->bad_unsaid = says ? 0 : unsaid + 1;
    if (says)
        driver->bad_ns = now_ns;
    driver_unlock(driver);
    if (says)
        log_warn("mesh_record_skipped table=%s id=\"%s\" error=\"%s\" others=%" PRIu64,
                 tables[record->table], record->id, keyed.text, unsaid);
}

static void
tell_and_unlock(struct driver *driver, struct mesh_event event)
{
    if (!driver->closed)
        driver_step(driver, event);
    driver_unlock_and_work(driver);
}

static void
tell(struct driver *driver, struct mesh_event event)
{
    driver_lock(driver);
    tell_and_unlock(driver, event);
}

static void
put_model(struct driver *driver, const struct store_record *record)
{
    struct record_model *model;
    struct error error = ERROR_NONE;
    const struct record_source source = source_of(record);
    if (record_model_read(&source, &model, &error) != STATUS_OK) {
        on_bad_record(driver, record, &error);
        return;
    }
    driver_lock(driver);
    extras_set(&driver->extras, STORE_MODELS, record->id, record->revision, model->extras);
    driver_refuse_record(driver, STORE_MODELS, record->id, record->revision, "");
    tell_and_unlock(driver, (struct mesh_event){.kind = MESH_MODEL_PUT, .model = model->model});
    free(model);
}

static void
put_vmodel(struct driver *driver, const struct store_record *record)
{
    struct record_vmodel *vmodel;
    struct error error = ERROR_NONE;
    const struct record_source source = source_of(record);
    if (record_vmodel_read(&source, &vmodel, &error) != STATUS_OK) {
        on_bad_record(driver, record, &error);
        return;
    }
    driver_lock(driver);
    extras_set(&driver->extras, STORE_VMODELS, record->id, record->revision, vmodel->extras);
    driver_refuse_record(driver, STORE_VMODELS, record->id, record->revision, "");
    tell_and_unlock(driver, (struct mesh_event){.kind = MESH_VMODEL_PUT, .vmodel = vmodel->vmodel});
    free(vmodel);
}

static bool
is_self(const struct driver *driver, const char *instance)
{
    return strcmp(instance, driver->options.instance) == 0;
}

static void
put_instance(struct driver *driver, const struct store_record *record)
{
    struct record_instance *instance;
    struct error error = ERROR_NONE;
    const struct driver_peers *peers = &driver->options.peers;
    const struct record_source source = source_of(record);
    driver_lock(driver);
    uint64_t full_below_units = driver->full_below_units;
    driver_unlock(driver);
    if (record_instance_read(&source, full_below_units, &instance, &error) != STATUS_OK) {
        on_bad_record(driver, record, &error);
        return;
    }
    const struct driver_peer peer = {.instance = record->id,
                                     .address = instance->address,
                                     .start_ms = instance->instance.start_ms};
    book_put(&driver->book, &(struct book_entry){.instance = record->id,
                                                 .location = instance->location,
                                                 .zone = instance->zone,
                                                 .address = instance->address,
                                                 .loaders = instance->loaders});
    /* Before the step: from then on calls may go there. */
    if (peers->on_peer != NULL && !is_self(driver, record->id))
        peers->on_peer(peers->context, &peer);
    tell(driver, (struct mesh_event){.kind = MESH_INSTANCE_PUT, .instance = instance->instance});
    free(instance);
}

static void
set(struct driver *driver, enum record_setting_kind kind, const struct record_setting *setting)
{
    if (kind == RECORD_RATE_FOR_MORE) {
        uint32_t calls = setting != NULL ? setting->number : driver->options.rate_for_more;
        tell(driver, (struct mesh_event){.kind = MESH_RATE, .rate = {.for_more = calls}});
    } else if (driver->options.on_setting != NULL)
        driver->options.on_setting(driver->options.context, kind, setting);
}

/* Somebody else's, or misspelt: nothing can be known of it, so nothing is done, and it is said
 * once.
 */
static void
on_stranger(struct driver *driver, const char *name)
{
    for (uint32_t i = 0; i < driver->stranger_count; i++)
        if (strcmp(driver->strangers[i], name) == 0)
            return;
    if (driver->stranger_count == DRIVER_STRANGERS_MAX)
        return;
    char *copy = strdup(name);
    CHECK(copy != NULL);
    driver->strangers[driver->stranger_count++] = copy;
    log_warn("mesh_setting_unknown name=\"%.200s\"", name);
}

static void
put_setting(struct driver *driver, const struct store_record *record)
{
    struct record_setting setting;
    struct error error = ERROR_NONE;
    enum record_setting_kind kind = record_setting_kind(record->id);
    if (kind == RECORD_SETTING_NONE) {
        on_stranger(driver, record->id);
        return;
    }
    if (record_setting_read(kind, record->value, record->value_bytes, &setting, &error) !=
        STATUS_OK)
        on_bad_record(driver, record, &error);
    else
        set(driver, kind, &setting);
}

/* The store has said something; of records, how many. */
static void
hear(struct driver *driver, uint32_t records)
{
    int64_t now_ms = driver_wall_ms();
    driver_lock(driver);
    driver->counts.heard += records;
    driver->heard_ms = now_ms;
    driver_unlock(driver);
}

static void
on_put(void *context, const struct store_record *record)
{
    struct driver *driver = context;
    hear(driver, 1);
    switch (record->table) {
    case STORE_MODELS: put_model(driver, record); break;
    case STORE_VMODELS: put_vmodel(driver, record); break;
    case STORE_INSTANCES: put_instance(driver, record); break;
    case STORE_CONFIG: put_setting(driver, record); break;
    case STORE_TABLES: break;
    }
}

static void
on_gone(void *context, enum store_table table, const char *id, uint64_t revision)
{
    static const enum mesh_event_kind kinds[] = {[STORE_MODELS] = MESH_MODEL_GONE,
                                                 [STORE_VMODELS] = MESH_VMODEL_GONE,
                                                 [STORE_INSTANCES] = MESH_INSTANCE_GONE};
    struct driver *driver = context;
    const struct driver_peers *peers = &driver->options.peers;
    hear(driver, 1);
    if (table == STORE_CONFIG) {
        enum record_setting_kind kind = record_setting_kind(id);
        if (kind != RECORD_SETTING_NONE)
            set(driver, kind, NULL);
        return;
    }
    if (table >= STORE_CONFIG)
        return;
    driver_lock(driver);
    extras_drop(&driver->extras, table, id, revision);
    driver_refuse_record(driver, table, id, revision, "");
    tell_and_unlock(driver, (struct mesh_event){.kind = kinds[table], .gone = {id, revision}});
    if (table == STORE_INSTANCES)
        book_drop(&driver->book, id);
    if (table == STORE_INSTANCES && peers->on_peer_gone != NULL && !is_self(driver, id))
        peers->on_peer_gone(peers->context, id);
}

static void
on_whole(void *context, uint64_t revision)
{
    struct driver *driver = context;
    hear(driver, 0);
    driver_lock(driver);
    bool first = !driver->whole;
    driver->whole = true;
    driver->revision = revision;
    tell_and_unlock(driver,
                    (struct mesh_event){.kind = MESH_WHOLE, .whole = {.revision = revision}});
    if (first)
        log_info("mesh_registry_read instance=%s revision=%" PRIu64, driver->options.instance,
                 revision);
}

static void
on_session(void *context, uint64_t session)
{
    struct driver *driver = context;
    driver_lock(driver);
    driver->session = session;
    driver->counts.sessions += session != 0;
    bool closed = driver->closed;
    driver_unlock(driver);
    if (session != 0)
        log_info("mesh_session_begun instance=%s session=%" PRIu64, driver->options.instance,
                 session);
    else if (!closed)
        log_warn("mesh_session_lost instance=%s", driver->options.instance);
    tell(driver, (struct mesh_event){.kind = MESH_SESSION, .session = {.revision = session}});
}

static void
on_leader(void *context, enum store_leadership leadership)
{
    struct driver *driver = context;
    bool leads = leadership == STORE_LEADS;
    driver_lock(driver);
    bool changed = driver->leads != leads;
    driver->leads = leads;
    driver_unlock(driver);
    if (changed)
        log_info("mesh_leader instance=%s leads=%s", driver->options.instance,
                 leads ? "yes" : "no");
    tell(driver, (struct mesh_event){.kind = MESH_LEADER, .leader = {.is_leader = leads}});
}

static void
on_emptied(void *context)
{
    struct driver *driver = context;
    driver_lock(driver);
    driver->counts.emptied++;
    driver->session = driver->revision = 0;
    extras_restart(&driver->extras);
    extras_fini(&driver->unreadable);
    driver_unlock(driver);
    log_warn("mesh_registry_emptied instance=%s", driver->options.instance);
    tell(driver, (struct mesh_event){.kind = MESH_EMPTIED});
}

static void
on_trouble(void *context, const struct error *error)
{
    struct driver *driver = context;
    int64_t now_ns = clock_now_ns();
    driver->trouble = *error;
    if (driver->trouble_ns != 0 && now_ns - driver->trouble_ns < DRIVER_QUIET_NS)
        return;
    driver->trouble_ns = now_ns;
    log_warn("mesh_store_trouble error=\"%s\"", error->text);
}

const char *
driver_trouble(const struct driver *driver)
{
    return driver->trouble.text;
}

struct store_events
driver_events(struct driver *driver)
{
    return (struct store_events){.on_put = on_put,
                                 .on_gone = on_gone,
                                 .on_whole = on_whole,
                                 .on_session = on_session,
                                 .on_leader = on_leader,
                                 .on_emptied = on_emptied,
                                 .on_trouble = on_trouble,
                                 .context = driver};
}
