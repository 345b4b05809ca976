/* SPDX-License-Identifier: Apache-2.0 */
/* Changes that callers ask for, and lists. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "serving/leader/inside.h"

struct serving_change {
    struct serving_leader *leader;
    char *id;
    const char *done;
    serving_answered *answered;
    void *context;
};

static void
answer_error(serving_answered *answered, void *context, const struct error *error)
{
    answered(context, &(struct serving_answer){.error = error});
}

static void
answer_done(serving_answered *answered, void *context, const char *done, uint64_t version)
{
    struct error none = ERROR_NONE;
    answered(context, &(struct serving_answer){.error = &none, .version = version, .done = done});
}

/* ---- writes ---- */

static enum status
judge(enum store_txn_end end, const struct error *said, struct error *error)
{
    switch (end) {
    case STORE_OK: return STATUS_OK;
    case STORE_LOST:
        return error_set(error, STATUS_ABORTED,
                         "it was changed meanwhile, or the node left the mesh: apply it again");
    case STORE_UNKNOWN:
        return error_set(error, STATUS_UNAVAILABLE, "it may have been done: %.300s",
                         said != NULL ? said->text : "no answer");
    case STORE_FULL:
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "the store has no space: %.300s",
                         said != NULL ? said->text : "");
    case STORE_BUSY: break;
    }
    return error_set(error, STATUS_UNAVAILABLE, "the store is busy: try again");
}

static void
on_changed(void *context, enum store_txn_end end, const struct error *said)
{
    struct serving_change *change = context;
    struct error error = ERROR_NONE;
    if (!change->leader->stopped) {
        if (judge(end, said, &error) != STATUS_OK) {
            answer_error(change->answered, change->context, &error);
        } else {
            const struct serving_object *object = object_find(change->leader, change->id);
            answer_done(change->answered, change->context, change->done,
                        object != NULL ? object->revision : 0);
        }
    }
    free(change->id);
    free(change);
}

static void
write_record(const struct serving_change *asked, uint64_t revision, const struct bytes *value)
{
    struct serving_leader *leader = asked->leader;
    struct error error = ERROR_NONE;
    struct serving_change *change = malloc(sizeof(*change));
    CHECK(change != NULL);
    *change = *asked;
    const struct store_compare compare = {STORE_MANIFESTS, change->id, revision};
    const struct store_change put = {STORE_MANIFESTS, change->id,
                                     value != NULL ? value->data : NULL,
                                     value != NULL ? value->used : 0};
    const struct store_txn txn = {.session = store_session(leader->store),
                                  .compares = &compare,
                                  .compare_count = 1,
                                  .changes = &put,
                                  .change_count = 1};
    enum status status = STATUS_OK;
    if (txn.session == 0)
        status = error_set(&error, STATUS_UNAVAILABLE,
                           "the node is not in its mesh now: is etcd reachable?");
    if (status == STATUS_OK)
        status = store_txn(leader->store, &txn, (struct store_reply){on_changed, change}, &error);
    if (status == STATUS_OK)
        return;
    answer_error(change->answered, change->context, &error);
    free(change->id);
    free(change);
}

static enum status
check_open(const struct serving_leader *leader, struct error *error)
{
    return leader->whole && !leader->stopped
               ? STATUS_OK
               : error_set(error, STATUS_UNAVAILABLE, "the registry has not been read yet");
}

uint32_t
serving_count(const struct serving_leader *leader)
{
    return leader->objects.count;
}

static void
put_manifest(struct serving_leader *leader, const struct manifest *manifest, uint64_t version,
             const struct serving_change *asked)
{
    struct error error = ERROR_NONE;
    const struct serving_object *object = object_find(leader, asked->id);
    bool exists = object != NULL && object->revision != 0;
    uint64_t now = exists && !object->deleted ? object->revision : 0;
    if (now != version) {
        error_set(&error, STATUS_ABORTED,
                  "its version is %" PRIu64 ", not %" PRIu64 ": it was changed meanwhile", now,
                  version);
        answer_error(asked->answered, asked->context, &error);
        free(asked->id);
        return;
    }
    if (object == NULL && leader->objects.count >= SERVING_OBJECTS_MAX) {
        error_set(&error, STATUS_RESOURCE_EXHAUSTED,
                  "the mesh has %u manifests, and may have %d: delete some", leader->objects.count,
                  SERVING_OBJECTS_MAX);
        answer_error(asked->answered, asked->context, &error);
        free(asked->id);
        return;
    }
    if (now != 0 && strcmp(object_manifest(object)->json, manifest->json) == 0) {
        answer_done(asked->answered, asked->context, "unchanged", now);
        free(asked->id);
        return;
    }
    struct bytes value = {0};
    manifest_record_write(
        &(struct manifest_record){.created_ms = now != 0 ? object->created_ms
                                                         : runner_mesh_ms(leader->options.runner),
                                  .json = manifest->json,
                                  .json_bytes = strlen(manifest->json)},
        &value);
    CHECK(!value.failed);
    struct serving_change change = *asked;
    change.done = now != 0 ? "configured" : "created";
    write_record(&change, exists ? object->revision : 0, &value);
    bytes_fini(&value);
}

static char *
make_id(enum manifest_kind kind, const char *name)
{
    char *id = NULL;
    CHECK(asprintf(&id, "%s/%s", manifest_kind_name(kind), name) >= 0);
    return id;
}

void
serving_put(struct serving_leader *leader, const char *json, size_t bytes, uint64_t version,
            serving_answered *answered, void *context)
{
    struct manifest_file file = {0};
    struct error error = ERROR_NONE;
    enum status status = check_open(leader, &error);
    if (status == STATUS_OK)
        status = manifest_read("manifest", json, bytes, &file, &error);
    if (status != STATUS_OK && file.mistake_count > 0)
        error_set(&error, status, "%.400s", file.mistakes[0]);
    if (status == STATUS_OK && file.count != 1)
        status = error_set(&error, STATUS_INVALID_ARGUMENT, "one manifest at a time");
    if (status == STATUS_OK)
        put_manifest(leader, &file.items[0], version,
                     &(struct serving_change){.leader = leader,
                                              .id = make_id(file.items[0].kind, file.items[0].name),
                                              .answered = answered,
                                              .context = context});
    else
        answer_error(answered, context, &error);
    manifest_file_free(&file);
}

void
serving_delete(struct serving_leader *leader, enum manifest_kind kind, const char *name,
               serving_answered *answered, void *context)
{
    struct error error = ERROR_NONE;
    struct serving_change change = {.leader = leader,
                                    .id = make_id(kind, name),
                                    .done = "deleted",
                                    .answered = answered,
                                    .context = context};
    const struct serving_object *object = object_find(leader, change.id);
    if (check_open(leader, &error) == STATUS_OK && (object == NULL || !object_is_there(object)))
        error_set(&error, STATUS_NOT_FOUND, "%s \"%.200s\" not found", manifest_kind_resource(kind),
                  name);
    if (error.status != STATUS_OK) {
        answer_error(answered, context, &error);
        free(change.id);
        return;
    }
    if (!object_is_service(object)) {
        write_record(&change, object->revision, NULL);
        return;
    }
    struct bytes value = {0};
    const char *json = object_manifest(object)->json;
    manifest_record_write(&(struct manifest_record){.created_ms = object->created_ms,
                                                    .deleted = true,
                                                    .json = json,
                                                    .json_bytes = strlen(json)},
                          &value);
    CHECK(!value.failed);
    write_record(&change, object->revision, &value);
    bytes_fini(&value);
}

/* ---- lists ---- */

static int
by_id(const void *a, const void *b)
{
    return strcmp((*(const struct serving_object *const *)a)->id,
                  (*(const struct serving_object *const *)b)->id);
}

static bool
show(struct serving_leader *leader, const struct serving_object *object,
     bool (*visit)(void *context, const struct serving_seen *seen), void *context)
{
    const struct manifest *manifest = object_manifest(object);
    char *hidden = object->kind == MANIFEST_SECRET ? manifest_hide(manifest) : NULL;
    struct bytes reported = {0};
    if (manifest_is_runtime(object->kind) || manifest_is_of_gateway(object->kind)) {
        reports_write(leader, object, &reported);
        bytes_put_char(&reported, '\0');
        CHECK(!reported.failed);
    }
    const char *status = reported.used > 0 ? reported.data : object->status;
    bool more = visit(context, &(struct serving_seen){
                                   .id = object->id,
                                   .kind = object->kind,
                                   .name = manifest->name,
                                   .version = object->revision,
                                   .created_ms = object->created_ms,
                                   .deleted = object->deleted,
                                   .manifest = hidden != NULL ? hidden : manifest->json,
                                   .status = status != NULL ? status : "",
                               });
    free(hidden);
    bytes_fini(&reported);
    return more;
}

enum status
serving_list(struct serving_leader *leader, const char *after,
             bool (*visit)(void *context, const struct serving_seen *seen), void *context,
             struct error *error)
{
    if (check_open(leader, error) != STATUS_OK)
        return error->status;
    const struct serving_object **sorted =
        calloc(leader->objects.count + 1, sizeof(const struct serving_object *));
    CHECK(sorted != NULL);
    size_t count = 0;
    struct hash_entry *entry = NULL;
    while ((entry = hash_table_walk(&leader->objects, entry)) != NULL) {
        const struct serving_object *object = (struct serving_object *)(void *)entry;
        if (object_is_there(object) && strcmp(object->id, after) > 0)
            sorted[count++] = object;
    }
    qsort(sorted, count, sizeof(const struct serving_object *), by_id);
    for (size_t i = 0; i < count && show(leader, sorted[i], visit, context); i++)
        continue;
    free(sorted);
    return STATUS_OK;
}
