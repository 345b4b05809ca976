/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "serving/leader/inside.h"

static const char status_end[] = "/status";

static uint64_t
hash_of(const char *id)
{
    return hash_fnv1a(HASH_FNV1A_SEED, id, strlen(id));
}

struct serving_object *
object_find(struct serving_leader *leader, const char *id)
{
    struct hash_entry *entry = hash_table_first(&leader->objects, hash_of(id));
    while (entry != NULL && strcmp(((struct serving_object *)(void *)entry)->id, id) != 0)
        entry = hash_table_next(entry);
    return (struct serving_object *)(void *)entry;
}

static void
object_free(struct serving_object *object)
{
    object_unqueue(object);
    for (size_t i = 0; i < ARRAY_COUNT(object->view.texts); i++)
        free(object->view.texts[i]);
    manifest_file_free(&object->file);
    manifest_file_free(&object->held);
    free(object->status);
    free(object->id);
    free(object);
}

/* An order under way has texts of the manifest with which it began. */
static void
drop_file(struct serving_object *object)
{
    if (object->phase == OBJECT_ACTS && object->held.items == NULL) {
        object->held = object->file;
        object->file = (struct manifest_file){0};
    } else {
        manifest_file_free(&object->file);
    }
}

void
object_free_if_done(struct serving_object *object)
{
    bool empty = object->revision == 0 && object->status_revision == 0;
    if (!object->removed && empty) {
        hash_table_remove(&object->leader->objects, &object->entry);
        object->removed = true;
    }
    if (object->removed && object->phase == OBJECT_IDLE)
        object_free(object);
}

/* Cuts "/status" off the id. False: it is no key of ours. */
static bool
split_id(const char *id, char name[STORE_ID_BYTES_MAX + 1], enum manifest_kind *kind,
         bool *is_status)
{
    size_t bytes = strlen(id);
    size_t ending = strlen(status_end);
    *is_status = bytes > ending && strcmp(id + bytes - ending, status_end) == 0;
    bytes -= *is_status ? ending : 0;
    memcpy(name, id, bytes);
    name[bytes] = '\0';
    char *slash = strchr(name, '/');
    if (slash == NULL || slash[1] == '\0' || strchr(slash + 1, '/') != NULL)
        return false;
    for (*kind = 0; *kind < MANIFEST_KINDS; (*kind)++)
        if (strncmp(manifest_kind_name(*kind), name, (size_t)(slash - name)) == 0 &&
            manifest_kind_name(*kind)[slash - name] == '\0')
            return true;
    return false;
}

static struct serving_object *
object_make(struct serving_leader *leader, const char *id, enum manifest_kind kind)
{
    struct serving_object *object = object_find(leader, id);
    if (object != NULL)
        return object;
    object = calloc(1, sizeof(*object));
    CHECK(object != NULL);
    object->leader = leader;
    object->id = strdup(id);
    CHECK(object->id != NULL);
    object->kind = kind;
    hash_table_add(&leader->objects, &object->entry, hash_of(id));
    object_touch(object);
    return object;
}

/* ---- when ---- */

void
object_unqueue(struct serving_object *object)
{
    if (object->queued)
        TAILQ_REMOVE(&object->leader->waits[object->wait], object, turn);
    object->queued = false;
}

void
object_due(struct serving_object *object, enum object_wait wait)
{
    static const int64_t waits_ms[OBJECT_WAITS] = {
        [WAIT_NONE] = 0,     [WAIT_SOON] = 20,      [WAIT_UNSTEADY] = 500,
        [WAIT_AGAIN] = 1000, [WAIT_STEADY] = 10000,
    };
    struct serving_leader *leader = object->leader;
    if (!object_is_service(object))
        return;
    if (object->phase != OBJECT_IDLE) {
        object->touched = true;
        return;
    }
    object_unqueue(object);
    object->due_ns = clock_now_ns() + waits_ms[wait] * NS_PER_MS;
    object->queued = true;
    object->wait = wait;
    TAILQ_INSERT_TAIL(&leader->waits[wait], object, turn);
    if (leader->leads && !leader->stopped)
        loop_timer_set(leader->timer, 0);
}

void
object_touch(struct serving_object *object)
{
    object_due(object, WAIT_NONE);
}

void
objects_touch(struct serving_leader *leader)
{
    struct hash_entry *entry = NULL;
    while ((entry = hash_table_walk(&leader->objects, entry)) != NULL)
        object_touch((struct serving_object *)(void *)entry);
}

void
vmodel_touch(struct serving_leader *leader, const char *vmodel, size_t bytes)
{
    static const enum manifest_kind kinds[] = {MANIFEST_INFERENCE_SERVICE, MANIFEST_PREDICTOR};
    char id[STORE_ID_BYTES_MAX + 64];
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        snprintf(id, sizeof(id), "%s/%.*s", manifest_kind_name(kinds[i]), (int)bytes, vmodel);
        struct serving_object *object = object_find(leader, id);
        if (object != NULL)
            object_touch(object);
    }
}

/* ---- records ---- */

static const char credentials_id[] = "Secret/storage-config";

static const char config_id[] = "ConfigMap/" MANIFEST_CONFIG;

const char *
url_look(struct serving_leader *leader)
{
    const struct serving_object *object = object_find(leader, config_id);
    const struct manifest *manifest = object != NULL ? object_manifest(object) : NULL;
    return manifest != NULL ? manifest->url : NULL;
}

void
credentials_notify(struct serving_leader *leader)
{
    const struct serving_leader_options *options = &leader->options;
    const struct serving_object *object = object_find(leader, credentials_id);
    if (leader->whole)
        options->on_credentials(options->context, object != NULL ? object_manifest(object) : NULL);
}

static void
runtimes_changed(struct serving_leader *leader, const struct serving_object *object)
{
    if (object->kind == MANIFEST_SECRET || object->kind == MANIFEST_CONFIG_MAP)
        runtimes_notify(leader);
    if (!manifest_is_runtime(object->kind))
        return;
    offers_drop(leader);
    types_derive(leader);
    objects_touch(leader);
    runtimes_notify(leader);
}

/* An object has another content, or none any more. */
static void
content_changed(struct serving_object *object)
{
    runtimes_changed(object->leader, object);
    if (strcmp(object->id, credentials_id) == 0)
        credentials_notify(object->leader);
    if (strcmp(object->id, config_id) == 0)
        objects_touch(object->leader);
    object_touch(object);
}

static void
put_status(struct serving_object *object, const struct store_record *record)
{
    if (record->revision <= object->status_revision)
        return;
    char *status = malloc(record->value_bytes + 1);
    CHECK(status != NULL);
    memcpy(status, record->value, record->value_bytes);
    status[record->value_bytes] = '\0';
    free(object->status);
    object->status = status;
    object->status_bytes = record->value_bytes;
    object->status_revision = record->revision;
}

/* A record that cannot be read leaves the former one in force. */
static void
put_manifest(struct serving_object *object, const struct store_record *record)
{
    struct manifest_record read;
    struct manifest_file file = {0};
    struct error error = ERROR_NONE;
    const char *name = strchr(object->id, '/') + 1;
    if (record->revision <= object->revision)
        return;
    bool good = manifest_record_read(record->value, record->value_bytes, &read) &&
                manifest_read(object->id, read.json, read.json_bytes, &file, &error) == STATUS_OK &&
                file.count == 1 && file.items[0].kind == object->kind &&
                strcmp(file.items[0].name, name) == 0;
    if (!good) {
        log_warn("serving_record_skipped id=\"%s\" error=\"%s\"", object->id,
                 file.mistake_count > 0 ? file.mistakes[0] : "not a manifest of that name");
        manifest_file_free(&file);
        return;
    }
    drop_file(object);
    object->file = file;
    object->revision = record->revision;
    object->created_ms = read.created_ms;
    object->deleted = read.deleted;
    object->refusal[0] = '\0';
    content_changed(object);
}

void
object_put(struct serving_leader *leader, const struct store_record *record)
{
    char name[STORE_ID_BYTES_MAX + 1];
    enum manifest_kind kind;
    bool is_status;
    if (!split_id(record->id, name, &kind, &is_status))
        return;
    struct serving_object *object = object_make(leader, name, kind);
    if (is_status)
        put_status(object, record);
    else
        put_manifest(object, record);
    object_free_if_done(object);
}

void
object_gone(struct serving_leader *leader, const char *id, uint64_t revision)
{
    char name[STORE_ID_BYTES_MAX + 1];
    enum manifest_kind kind;
    bool is_status;
    struct serving_object *object =
        split_id(id, name, &kind, &is_status) ? object_find(leader, name) : NULL;
    if (object == NULL || revision < (is_status ? object->status_revision : object->revision))
        return;
    if (is_status) {
        free(object->status);
        object->status = NULL;
        object->status_revision = 0;
    } else {
        drop_file(object);
        object->revision = 0;
        content_changed(object);
    }
    object_free_if_done(object);
}

void
object_status_id(const struct serving_object *object, char id[STORE_ID_BYTES_MAX + 1])
{
    size_t bytes = strlen(object->id);
    CHECK(bytes + sizeof(status_end) <= STORE_ID_BYTES_MAX + 1);
    memcpy(id, object->id, bytes);
    memcpy(id + bytes, status_end, sizeof(status_end));
}

void
objects_restart(struct serving_leader *leader)
{
    struct hash_entry *entry = NULL;
    struct hash_entry *next = hash_table_walk(&leader->objects, NULL);
    while ((entry = next) != NULL) {
        struct serving_object *object = (struct serving_object *)(void *)entry;
        next = hash_table_walk(&leader->objects, entry);
        drop_file(object);
        free(object->status);
        object->status = NULL;
        object->revision = object->status_revision = 0;
        object_free_if_done(object);
    }
    offers_drop(leader);
    types_derive(leader);
    runtimes_notify(leader);
}

void
objects_free(struct serving_leader *leader)
{
    struct hash_entry *entry;
    while ((entry = hash_table_walk(&leader->objects, NULL)) != NULL) {
        hash_table_remove(&leader->objects, entry);
        object_free((struct serving_object *)(void *)entry);
    }
    hash_table_fini(&leader->objects);
}
