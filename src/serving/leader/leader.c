/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One service at a time goes round: ask the mesh, decide, write the status if it changed, act. Each
 * step is repeated by the next leader if this one dies after it, and changes nothing then.
 */
#include "serving/leader/leader.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "serving/leader/inside.h"

enum {
    MIB_UNITS = (1 << 20) / RECORD_UNIT_BYTES,
    WAITING_MS = 3000, /* until a refused order is repeated */
    ORDER_MS = 10000,
    /* Longer than an order and a lost session last together: a former leader can do nothing more.
     */
    AGED_MS = 40000,
};

/* ---- when ---- */

static void
object_rest(struct serving_object *object, enum object_wait wait)
{
    object->phase = OBJECT_IDLE;
    object->leader->working--;
    object_due(object, object->touched && wait > WAIT_SOON ? WAIT_SOON : wait);
    object->touched = false;
    object_free_if_done(object);
}

static bool
may_work(const struct serving_leader *leader)
{
    return leader->leads && leader->whole && !leader->stopped && leader->store != NULL;
}

/* ---- the results of orders ---- */

static const char *
keep(struct object_view *view, size_t index, const char *text)
{
    free(view->texts[index]);
    view->texts[index] = text != NULL ? strdup(text) : NULL;
    CHECK(text == NULL || view->texts[index] != NULL);
    return view->texts[index];
}

static struct serving_model
view_model(struct object_view *view, size_t index, const struct mesh_status *status)
{
    static const enum serving_load loads[] = {
        [MESH_MODEL_NOT_FOUND] = SERVING_NOT_FOUND, [MESH_MODEL_NOT_LOADED] = SERVING_NOT_LOADED,
        [MESH_MODEL_LOADING] = SERVING_LOADING,     [MESH_MODEL_LOADED] = SERVING_LOADED,
        [MESH_MODEL_FAILED] = SERVING_LOAD_FAILED,
    };
    struct serving_model model = {.load = loads[status->state], .copies = status->place_count};
    const struct mesh_place *failed = NULL;
    for (uint32_t i = 0; i < status->place_count; i++)
        if (status->places[i].kind == MESH_PLACE_FAILED) {
            model.failed_copies++;
            failed = failed == NULL ? &status->places[i] : failed;
        }
    const char *error = status->error;
    if (error == NULL && failed != NULL)
        error = failed->reason;
    model.error = keep(view, index, error);
    model.location = keep(view, index + 1, failed != NULL ? failed->instance : NULL);
    model.failed_ms = failed != NULL ? failed->since_ms : 0;
    model.bounds = (struct serving_bounds){.copies_min = status->bounds.copies_min,
                                           .copies_max = status->bounds.copies_max,
                                           .size_mib = status->bounds.size_units / MIB_UNITS};
    return model;
}

static void
view_take(struct object_view *view, const struct mesh_vmodel_status *status)
{
    static const enum serving_vmodel states[] = {
        [MESH_VMODEL_NOT_FOUND] = SERVING_ABSENT,
        [MESH_VMODEL_DEFINED] = SERVING_DEFINED,
        [MESH_VMODEL_TRANSITIONING] = SERVING_MOVING,
        [MESH_VMODEL_FAILED] = SERVING_MOVE_FAILED,
    };
    view->observed = (struct serving_observed){
        .vmodel = states[status->state],
        .owner = keep(view, 0, status->owner),
        .active = keep(view, 1, status->active),
        .target = keep(view, 2, status->target),
        .active_model = view_model(view, 3, &status->active_status),
        .target_model = view_model(view, 5, &status->target_status),
    };
}

/* ---- orders ---- */

static void object_decide(struct serving_object *object);

static void
note_refusal(struct serving_object *object)
{
    static const char *const texts[] = {
        [MESH_OUTCOME_INVALID] = "The mesh refuses the name or the type: it is too long",
        // NOLINTNEXTLINE(bugprone-suspicious-missing-comma): one text in two lines
        [MESH_OUTCOME_DIFFERS] = "A model of that id is registered with other attributes: "
                                 "unregister it",
        [MESH_OUTCOME_FULL] = "The mesh is full: it has as many models as it may have",
    };
    size_t outcome = object->outcome;
    const char *text = outcome < ARRAY_COUNT(texts) ? texts[outcome] : NULL;
    snprintf(object->refusal, sizeof(object->refusal), "%s", text != NULL ? text : "");
}

/* Runs on the loop thread, after an order. */
static void
on_ordered(void *context)
{
    struct serving_object *object = context;
    bool asked = object->phase == OBJECT_ASKS;
    if (asked && object->outcome == MESH_OUTCOME_OK && object->revision != 0 &&
        may_work(object->leader)) {
        object_decide(object);
        return;
    }
    if (!asked && object->act == SERVING_SET)
        note_refusal(object);
    manifest_file_free(&object->held);
    bool done = object->outcome == MESH_OUTCOME_OK || object->outcome == MESH_OUTCOME_OTHER_OWNER;
    object_rest(object, done ? WAIT_SOON : WAIT_AGAIN);
}

/* Called under the runner's lock, on any thread. */
static void
on_order_end(struct runner_order *order, const struct runner_reply *reply)
{
    struct serving_object *object =
        (struct serving_object *)(void *)((char *)order - offsetof(struct serving_object, order));
    object->outcome = reply->outcome;
    if (object->phase == OBJECT_ASKS && reply->outcome == MESH_OUTCOME_OK)
        view_take(&object->view, &reply->vmodel);
    loop_post(object->leader->options.loop, on_ordered, object);
}

static void
object_order(struct serving_object *object, struct mesh_order order)
{
    order.vmodel = strchr(object->id, '/') + 1;
    object->order =
        (struct runner_order){.order = order,
                              .deadline_ns = clock_now_ns() + ORDER_MS * (int64_t)NS_PER_MS,
                              .on_end = on_order_end};
    runner_order(object->leader->options.runner, &object->order);
}

static void
object_act(struct serving_object *object)
{
    const struct manifest *manifest = object_manifest(object);
    const struct serving_bounds *bounds = &manifest->wanted.bounds;
    object->phase = OBJECT_ACTS;
    object->set_ns = clock_now_ns();
    if (object->act == SERVING_DELETE)
        object_order(object, (struct mesh_order){.kind = MESH_DELETE_VMODEL,
                                                 .owner = manifest->wanted.owner});
    else
        object_order(object, (struct mesh_order){.kind = MESH_SET_VMODEL,
                                                 .model = manifest->model.id,
                                                 .type = manifest->model.type,
                                                 .path = manifest->model.path[0] != '\0'
                                                             ? manifest->model.path
                                                             : NULL,
                                                 .key = manifest->model.key,
                                                 .owner = manifest->wanted.owner,
                                                 .auto_delete = true,
                                                 .load_now = true,
                                                 .bounded = true,
                                                 .bounds = {
                                                     .copies_min = bounds->copies_min,
                                                     .copies_max = bounds->copies_max,
                                                     .size_units = bounds->size_mib * MIB_UNITS,
                                                 }});
}

/* ---- writes ---- */

static void
object_go(struct serving_object *object)
{
    if (object->decided != object->revision || !may_work(object->leader))
        object_rest(object, WAIT_SOON);
    else if (object->act == SERVING_KEEP)
        object_rest(object, object->rest);
    else
        object_act(object);
}

static void
on_written(void *context, enum store_txn_end end, const struct error *error)
{
    struct serving_object *object = context;
    (void)error;
    if (object->leader->stopped)
        object_rest(object, WAIT_AGAIN); /* frees it if it is gone */
    else if (end == STORE_OK && object->act != SERVING_FORGET && object->act != SERVING_HIDE)
        object_go(object);
    else
        object_rest(object, end == STORE_OK ? WAIT_SOON : WAIT_AGAIN);
}

/* Writes a status of what it has seen: a leader that came meanwhile may have written a newer
 * one. */
static void
object_write(struct serving_object *object, const struct store_change *changes, size_t count)
{
    struct serving_leader *leader = object->leader;
    struct error error = ERROR_NONE;
    char status[STORE_ID_BYTES_MAX + 1];
    object_status_id(object, status);
    const struct store_compare compares[] = {{STORE_MANIFESTS, object->id, object->revision},
                                             {STORE_MANIFESTS, status, object->status_revision}};
    object->phase = OBJECT_WRITES;
    if (store_txn(leader->store,
                  &(struct store_txn){.session = store_session(leader->store),
                                      .compares = compares,
                                      .compare_count = ARRAY_COUNT(compares),
                                      .changes = changes,
                                      .change_count = count},
                  (struct store_reply){on_written, object}, &error) == STATUS_OK)
        return;
    log_warn("serving_write_failed id=\"%s\" error=\"%s\"", object->id, error.text);
    object_rest(object, WAIT_AGAIN);
}

/* Drops the records of a deleted object: the status alone or everything. */
static void
object_drop(struct serving_object *object)
{
    char status[STORE_ID_BYTES_MAX + 1];
    object_status_id(object, status);
    const struct store_change changes[] = {{.table = STORE_MANIFESTS, .id = status},
                                           {.table = STORE_MANIFESTS, .id = object->id}};
    bool whole = object->act == SERVING_FORGET && object->revision != 0;
    if (whole || object->status_revision != 0)
        object_write(object, changes, whole ? 2 : 1);
    else
        object_rest(object, WAIT_AGAIN);
}

static bool
is_aged(struct serving_object *object)
{
    const struct serving_observed *seen = &object->view.observed;
    bool ours = seen->vmodel != SERVING_ABSENT &&
                strcmp(seen->owner, object_manifest(object)->wanted.owner) == 0;
    int64_t now_ns = clock_now_ns();
    if (!object->deleted || ours)
        object->gone_ns = 0;
    else if (object->gone_ns == 0)
        object->gone_ns = now_ns;
    return object->gone_ns != 0 && now_ns - object->gone_ns > AGED_MS * (int64_t)NS_PER_MS;
}

/* False: it is there already. */
static bool
object_notify(struct serving_object *object, const struct serving_status *status)
{
    struct status_record former = {.events = "[]", .events_bytes = 2};
    struct bytes text = {0};
    struct bytes events = {0};
    struct bytes value = {0};
    char id[STORE_ID_BYTES_MAX + 1];
    int64_t now_ms = runner_mesh_ms(object->leader->options.runner);
    bool known =
        object->status != NULL && status_record_read(object->status, object->status_bytes, &former);
    bool turned = !known || former.ready != status->available;
    int64_t since_ms = turned ? now_ms : former.since_ms;
    serving_status_write(object_manifest(object)->wanted.form, status, url_look(object->leader),
                         since_ms, &text);
    bool same = known && former.status_bytes == text.used &&
                memcmp(former.status, text.data, text.used) == 0;
    if (!same)
        serving_events_write(&former, status, now_ms, &events);
    status_record_write(
        &(struct status_record){.version = object->revision,
                                .ready = status->available,
                                .since_ms = since_ms,
                                .events = same ? former.events : events.data,
                                .events_bytes = same ? former.events_bytes : events.used,
                                .status = text.data,
                                .status_bytes = text.used},
        &value);
    CHECK(!value.failed && !text.failed && !events.failed);
    bool writes = !same || former.version != object->revision;
    object_status_id(object, id);
    if (writes)
        object_write(object, &(struct store_change){STORE_MANIFESTS, id, value.data, value.used},
                     1);
    bytes_fini(&text);
    bytes_fini(&events);
    bytes_fini(&value);
    return writes;
}

/* ---- decisions ---- */

static void
object_decide(struct serving_object *object)
{
    struct serving_wanted wanted = object_manifest(object)->wanted;
    struct serving_status status;
    wanted.deleted = object->deleted;
    wanted.aged = is_aged(object);
    wanted.waited = object->waited;
    wanted.refusal = object->refusal[0] != '\0' ? object->refusal : NULL;
    enum serving_support support = serving_support(&wanted, offers_look(object->leader));
    object->act = serving_reconcile(&wanted, support, &object->view.observed, &status);
    object->decided = object->revision;
    object->waited = support == SERVING_WAITS;
    object->rest = serving_is_steady(&status) ? WAIT_STEADY : WAIT_UNSTEADY;
    if (object->act == SERVING_FORGET || object->act == SERVING_HIDE) {
        object_drop(object);
        return;
    }
    if (object->act == SERVING_SET && wanted.refusal != NULL &&
        clock_now_ns() < object->set_ns + WAITING_MS * (int64_t)NS_PER_MS) {
        object->act = SERVING_KEEP;
        object->rest = WAIT_AGAIN;
    }
    if (object->deleted || !object_notify(object, &status))
        object_go(object);
}

/* A status whose manifest is gone: another program has removed it. */
static void
object_start(struct serving_object *object)
{
    object->leader->working++;
    if (object->revision == 0) {
        object->act = SERVING_FORGET;
        object_drop(object);
        return;
    }
    object->phase = OBJECT_ASKS;
    object_order(object, (struct mesh_order){.kind = MESH_VMODEL_STATUS});
}

/* Starts those whose wait is over, as long as there is room; objects that are not due cost
 * nothing. */
static void
start_due(struct serving_leader *leader, enum object_wait wait, int64_t now_ns)
{
    struct serving_object *object;
    while (leader->working < SERVING_WORK_MAX &&
           (object = TAILQ_FIRST(&leader->waits[wait])) != NULL && object->due_ns <= now_ns) {
        object_unqueue(object);
        object_start(object);
    }
}

/* Without room, the next object that rests sets the timer. */
static void
work(struct serving_leader *leader)
{
    int64_t now_ns = clock_now_ns();
    int64_t next_ns = INT64_MAX;
    if (!may_work(leader))
        return;
    for (enum object_wait wait = 0; wait < OBJECT_WAITS; wait++)
        start_due(leader, wait, now_ns);
    for (enum object_wait wait = 0; wait < OBJECT_WAITS; wait++) {
        const struct serving_object *first = TAILQ_FIRST(&leader->waits[wait]);
        if (first != NULL && first->due_ns < next_ns)
            next_ns = first->due_ns;
    }
    loop_timer_clear(leader->timer);
    if (leader->working < SERVING_WORK_MAX && next_ns != INT64_MAX)
        loop_timer_set(leader->timer, next_ns - now_ns);
}

static void
on_time(void *context)
{
    work(context);
}

/* ---- the store's events ---- */

/* It may be open now. */
static void
opened(struct serving_leader *leader)
{
    if (!leader->stopped)
        loop_timer_set(leader->sweep, 0);
    runtimes_notify(leader);
}

static void
on_put(void *context, const struct store_record *record)
{
    struct serving_leader *leader = context;
    if (record->table == STORE_MANIFESTS) {
        if (report_take(leader, record))
            return;
        object_put(leader, record);
        folder_touch(leader, record->id);
        return;
    }
    leader->next.on_put(leader->next.context, record);
    if (record->table == STORE_VMODELS)
        vmodel_touch(leader, record->id, strlen(record->id));
    if (record->table == STORE_MODELS && strstr(record->id, "__") != NULL)
        vmodel_touch(leader, record->id, (size_t)(strstr(record->id, "__") - record->id));
    if (record->table == STORE_MODELS && leader->on_models != NULL && !leader->stopped)
        leader->on_models(leader->on_runtimes_context);
}

static void
on_gone(void *context, enum store_table table, const char *id, uint64_t revision)
{
    struct serving_leader *leader = context;
    const struct store_record gone = {.table = table, .id = id, .revision = revision};
    if (table != STORE_MANIFESTS) {
        leader->next.on_gone(leader->next.context, table, id, revision);
    } else if (!report_take(leader, &gone)) {
        object_gone(leader, id, revision);
        folder_touch(leader, id);
    }
    if (table == STORE_VMODELS)
        vmodel_touch(leader, id, strlen(id));
}

static void
on_whole(void *context, uint64_t revision)
{
    struct serving_leader *leader = context;
    bool begins = !leader->whole;
    leader->whole = true;
    leader->next.on_whole(leader->next.context, revision);
    if (!begins)
        return;
    objects_touch(leader);
    credentials_notify(leader);
    folder_touch_all(leader);
    opened(leader);
}

static void
on_session(void *context, uint64_t session)
{
    struct serving_leader *leader = context;
    leader->next.on_session(leader->next.context, session);
    if (session != 0)
        folder_touch_all(leader);
    opened(leader);
}

static void
on_leader(void *context, enum store_leadership leadership)
{
    struct serving_leader *leader = context;
    leader->leads = leadership == STORE_LEADS;
    leader->next.on_leader(leader->next.context, leadership);
    if (leader->leads)
        objects_touch(leader);
}

/* The objects that come back are put again; others were lost with the store. */
static void
on_emptied(void *context)
{
    struct serving_leader *leader = context;
    leader->whole = false;
    reports_free(leader);
    objects_restart(leader);
    leader->next.on_emptied(leader->next.context);
}

static void
on_trouble(void *context, const struct error *error)
{
    struct serving_leader *leader = context;
    leader->next.on_trouble(leader->next.context, error);
}

static void
on_full(void *context, const struct error *error)
{
    struct serving_leader *leader = context;
    leader->next.on_full(leader->next.context, error);
}

static void
on_batch_limit(void *context, size_t operations, const struct error *error)
{
    struct serving_leader *leader = context;
    leader->next.on_batch_limit(leader->next.context, operations, error);
}

/* ---- life ---- */

struct serving_leader *
serving_leader_create(const struct serving_leader_options *options)
{
    struct serving_leader *leader = calloc(1, sizeof(*leader));
    CHECK(leader != NULL);
    leader->options = *options;
    for (enum object_wait wait = 0; wait < OBJECT_WAITS; wait++)
        TAILQ_INIT(&leader->waits[wait]);
    leader->timer = loop_timer_create(loop_base(options->loop), on_time, leader);
    folder_init(leader);
    leader->sweep = loop_timer_create(loop_base(options->loop), reports_sweep, leader);
    return leader;
}

struct store_events
serving_leader_events(struct serving_leader *leader, const struct store_events *next)
{
    leader->next = *next;
    return (struct store_events){.on_put = on_put,
                                 .on_gone = on_gone,
                                 .on_whole = on_whole,
                                 .on_session = on_session,
                                 .on_leader = on_leader,
                                 .on_emptied = on_emptied,
                                 .on_trouble = on_trouble,
                                 .on_full = on_full,
                                 .on_batch_limit = on_batch_limit,
                                 .context = leader};
}

void
serving_leader_start(struct serving_leader *leader, struct store *store)
{
    leader->store = store;
    objects_touch(leader);
    folder_begin(leader);
    reports_sweep(leader);
}

void
serving_leader_stop(struct serving_leader *leader)
{
    if (leader == NULL || leader->stopped)
        return;
    leader->stopped = true;
    loop_timer_clear(leader->timer);
    loop_timer_clear(leader->folder_timer);
    folder_stop(leader->folder);
    loop_timer_clear(leader->sweep);
    struct hash_entry *entry = NULL;
    while ((entry = hash_table_walk(&leader->objects, entry)) != NULL)
        runner_order_cancelled(leader->options.runner,
                               &((struct serving_object *)(void *)entry)->order);
}

void
serving_leader_destroy(struct serving_leader *leader)
{
    if (leader == NULL)
        return;
    loop_timer_destroy(leader->timer);
    folder_end(leader);
    loop_timer_destroy(leader->sweep);
    objects_free(leader);
    reports_free(leader);
    offers_drop(leader);
    free(leader);
}
