/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reports of nodes about runtimes, and of gateways about their objects. A node writes and
 * withdraws its own; those of nodes and objects that are gone are the leader's to
 * delete, and are not shown meanwhile. A gateway's end with its lease.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"
#include "serving/leader/inside.h"
#include "yaml/tree.h"

enum { SWEEP_MAX = 16, NODES_PAGE = 64 };

#define MARK "/node/"
#define GATEWAY_MARK "/gateway/"
#define SWEEP_NS (30 * (int64_t)NS_PER_S)

/* ---- the table ---- */

static const char *
mark_of(enum manifest_kind kind)
{
    return manifest_is_runtime(kind) ? MARK : manifest_is_of_gateway(kind) ? GATEWAY_MARK : NULL;
}

/* Returns where the mark of its kind is, with a node's or a gateway's name behind it; NULL: no
 * report. The object itself may be named "node" or "gateway". */
static const char *
find_mark(const char *id)
{
    size_t bytes = strcspn(id, "/");
    for (enum manifest_kind kind = 0; kind < MANIFEST_KINDS; kind++) {
        const char *name = manifest_kind_name(kind);
        if (mark_of(kind) == NULL || strlen(name) != bytes || strncmp(id, name, bytes) != 0)
            continue;
        const char *end = id[bytes] == '/' ? strchr(id + bytes + 1, '/') : NULL;
        return end != NULL && strncmp(end, mark_of(kind), strlen(mark_of(kind))) == 0 ? end : NULL;
    }
    return NULL;
}

/* Hashes the id of the object that a report is about: all reports about an object are found by its
 * id. */
static uint64_t
hash_of(const char *id)
{
    const char *mark = find_mark(id);
    return hash_fnv1a(HASH_FNV1A_SEED, id, mark != NULL ? (size_t)(mark - id) : strlen(id));
}

static struct leader_report *
find(struct serving_leader *leader, const char *id)
{
    struct hash_entry *entry = hash_table_first(&leader->reported, hash_of(id));
    while (entry != NULL && strcmp(((struct leader_report *)(void *)entry)->id, id) != 0)
        entry = hash_table_next(entry);
    return (struct leader_report *)(void *)entry;
}

static struct leader_report *
make(struct serving_leader *leader, const char *id)
{
    struct leader_report *reported = find(leader, id);
    size_t bytes = strlen(id) + 1;
    if (reported != NULL)
        return reported;
    reported = calloc(1, sizeof(*reported) + bytes);
    CHECK(reported != NULL);
    memcpy(reported->id, id, bytes);
    reported->json = must_copy("");
    hash_table_add(&leader->reported, &reported->entry, hash_of(id));
    return reported;
}

static void
drop(struct serving_leader *leader, struct leader_report *reported)
{
    hash_table_remove(&leader->reported, &reported->entry);
    free(reported->json);
    free(reported);
}

bool
report_take(struct serving_leader *leader, const struct store_record *record)
{
    bool is_gone = record->value == NULL;
    if (find_mark(record->id) == NULL)
        return false;
    struct leader_report *reported = make(leader, record->id);
    if (record->revision < reported->revision ||
        (!is_gone && record->revision == reported->revision))
        return true;
    free(reported->json);
    reported->json =
        is_gone ? must_copy("")
                : must_format("%.*s", (int)record->value_bytes, (const char *)record->value);
    reported->revision = is_gone ? 0 : record->revision;
    if (is_gone && !reported->writing)
        drop(leader, reported);
    return true;
}

void
reports_free(struct serving_leader *leader)
{
    struct hash_entry *entry;
    while ((entry = hash_table_walk(&leader->reported, NULL)) != NULL)
        drop(leader, (struct leader_report *)(void *)entry);
    hash_table_fini(&leader->reported);
}

/* ---- writing ---- */

struct report_change {
    struct serving_leader *leader;
    char id[];
};

static void
on_written(void *context, enum store_txn_end end, const struct error *error)
{
    struct report_change *change = context;
    struct leader_report *reported = find(change->leader, change->id);
    (void)end; /* looked at again: what is reported then is compared with the record */
    (void)error;
    if (reported != NULL) {
        reported->writing = false;
        if (reported->revision == 0)
            drop(change->leader, reported);
    }
    free(change);
}

static void
write_report(struct serving_leader *leader, struct leader_report *reported, const char *json)
{
    struct error error = ERROR_NONE;
    size_t bytes = strlen(reported->id) + 1;
    struct report_change *change = malloc(sizeof(*change) + bytes);
    CHECK(change != NULL);
    change->leader = leader;
    memcpy(change->id, reported->id, bytes);
    const struct store_change put = {.table = STORE_MANIFESTS,
                                     .id = reported->id,
                                     .value = json[0] != '\0' ? json : NULL,
                                     .value_bytes = strlen(json)};
    const struct store_txn txn = {
        .session = store_session(leader->store), .changes = &put, .change_count = 1};
    reported->writing = true;
    if (store_txn(leader->store, &txn, (struct store_reply){on_written, change}, &error) ==
        STATUS_OK)
        return;
    log_warn_limited("serving_write_failed id=\"%s\" error=\"%s\"", reported->id, error.text);
    reported->writing = false;
    free(change);
}

void
serving_report(struct serving_leader *leader, const char *node, enum manifest_kind kind,
               const char *runtime, const char *json)
{
    if (!serving_is_open(leader))
        return;
    char *id = must_format("%s/%s" MARK "%s", manifest_kind_name(kind), runtime, node);
    struct leader_report *reported = find(leader, id);
    const char *now = reported != NULL ? reported->json : "";
    bool is_news = strcmp(now, json) != 0 && strlen(id) <= STORE_ID_BYTES_MAX;
    if (is_news && reported == NULL)
        reported = make(leader, id);
    if (is_news && !reported->writing)
        write_report(leader, reported, json);
    free(id);
}

bool
serving_can_run(struct serving_leader *leader, const char *node, enum manifest_kind kind,
                const char *runtime)
{
    char *id = must_format("%s/%s" MARK "%s", manifest_kind_name(kind), runtime, node);
    const struct leader_report *reported = find(leader, id);
    free(id);
    return reported != NULL && (strstr(reported->json, "\"state\":\"Able\"") != NULL ||
                                strstr(reported->json, "\"state\":\"Busy\"") != NULL);
}

/* ---- what is left behind ---- */

struct node_search {
    const char *name;
    bool found;
};

/* Called under the runner's lock. */
static void
compare_node(void *context, const struct mesh_instance *instance)
{
    struct node_search *search = context;
    search->found = search->found || strcmp(instance->id, search->name) == 0;
}

static bool
is_node(struct serving_leader *leader, const char *name)
{
    struct node_search search = {.name = name};
    uint64_t from = 0;
    do {
        from =
            runner_visit_instances(leader->options.runner, from, NODES_PAGE, compare_node, &search);
    } while (from != 0);
    return search.found;
}

static bool
is_left_behind(struct serving_leader *leader, const struct leader_report *reported)
{
    const char *mark = find_mark(reported->id);
    char *about = must_format("%.*s", (int)(mark - reported->id), reported->id);
    const struct serving_object *object = object_find(leader, about);
    free(about);
    if (object == NULL || object->revision == 0)
        return true;
    return manifest_is_runtime(object->kind) && !is_node(leader, mark + strlen(MARK));
}

/* A report of this node's former process, which ran runtimes. */
static bool
is_former(const struct serving_leader *leader, const struct leader_report *reported)
{
    const char *mark = find_mark(reported->id);
    return leader->on_runtimes == NULL && strncmp(mark, MARK, strlen(MARK)) == 0 &&
           strcmp(mark + strlen(MARK), leader->options.node) == 0;
}

/* Only the leader deletes what others left behind. Some at a time; the next round has the rest. */
void
reports_sweep(void *context)
{
    struct serving_leader *leader = context;
    uint32_t count = 0;
    struct hash_entry *entry = NULL;
    while (serving_is_open(leader) && count < SWEEP_MAX &&
           (entry = hash_table_walk(&leader->reported, entry)) != NULL) {
        struct leader_report *reported = (struct leader_report *)(void *)entry;
        bool is_ours =
            is_former(leader, reported) || (leader->leads && is_left_behind(leader, reported));
        if (reported->writing || !is_ours)
            continue;
        write_report(leader, reported, "");
        count++;
    }
    loop_timer_set(leader->sweep, SWEEP_NS);
}

/* ---- showing ---- */

static int
by_id(const void *a, const void *b)
{
    return strcmp((*(const struct leader_report *const *)a)->id,
                  (*(const struct leader_report *const *)b)->id);
}

static bool
is_about(const struct leader_report *reported, const struct serving_object *object)
{
    size_t bytes = strlen(object->id);
    const char *mark = mark_of(object->kind);
    return strncmp(reported->id, object->id, bytes) == 0 &&
           strncmp(reported->id + bytes, mark, strlen(mark)) == 0;
}

/* For a runtime one node is enough, also where it rests until it is needed. Each gateway must have
 * accepted an object of gateways as it is. */
static bool
is_ready(const struct leader_report *const *reported, size_t count,
         const struct serving_object *object)
{
    size_t ready = 0;
    char *version = must_format("\"version\":%" PRIu64 ",", object->revision);
    for (size_t i = 0; i < count; i++)
        if (manifest_is_runtime(object->kind))
            ready += strstr(reported[i]->json, "\"state\":\"Ready\"") != NULL ||
                     strstr(reported[i]->json, "\"state\":\"Idle\"") != NULL;
        else
            ready += strstr(reported[i]->json, version) != NULL &&
                     strstr(reported[i]->json, "\"type\":\"Accepted\",\"status\":\"True\"") != NULL;
    free(version);
    return ready > 0 && (manifest_is_runtime(object->kind) || ready == count);
}

void
reports_write(struct serving_leader *leader, const struct serving_object *object, struct bytes *to)
{
    const struct leader_report **shown =
        must_allocate(leader->reported.count + 1, sizeof(const struct leader_report *));
    size_t count = 0;
    struct hash_entry *entry = hash_table_first(&leader->reported, hash_of(object->id));
    for (; entry != NULL; entry = hash_table_next(entry)) {
        const struct leader_report *reported = (struct leader_report *)(void *)entry;
        if (reported->json[0] != '\0' && is_about(reported, object) &&
            !is_left_behind(leader, reported))
            shown[count++] = reported;
    }
    qsort(shown, count, sizeof(const struct leader_report *), by_id);
    struct json json = json_begin(to, JSON_STYLE_ANY);
    json_open(&json, '{');
    json_field_uint(&json, "version", object->revision);
    json_field_bool(&json, "ready", is_ready(shown, count, object));
    json_field_open(&json, "status", '{');
    json_field_open(&json, manifest_is_runtime(object->kind) ? "nodes" : "gateways", '[');
    for (size_t i = 0; i < count; i++)
        json_put_raw(&json, shown[i]->json, strlen(shown[i]->json));
    json_close(&json, ']');
    json_close(&json, '}');
    json_close(&json, '}');
    free(shown);
}
