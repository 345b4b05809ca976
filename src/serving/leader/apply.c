/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Applies the node's folder of manifests to the store (DESIGN.md, rules F). Each object of the
 * folder is an item, and so is one that has left it until its removal is applied. An item that is
 * due is compared with the store's object; changes take the path of callers' changes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "serving/leader/inside.h"

enum { ASKING_MAX = 32, TURN_ITEMS_MAX = 64 };

#define AGAIN_NS ((int64_t)NS_PER_S)

enum item_state {
    ITEM_NEW,     /* not compared yet */
    ITEM_CHANGED, /* its file has changed since it was in force */
    ITEM_HANDLED, /* it was in force, or another's object is left there: a change of that stays */
    ITEM_LEFT     /* no file has it any more */
};

struct folder_item {
    struct hash_entry entry; /* first */
    struct serving_leader *leader;
    char *id;
    char *json; /* NULL: it was never seen in the folder, only in the store */
    char *file;
    enum item_state state;
    bool is_listed; /* in the last view */
    enum item_turn { TURN_NONE, TURN_DUE, TURN_LATER } queued;
    bool is_asking;
    bool is_overtaken;             /* the file has changed since it was asked */
    TAILQ_ENTRY(folder_item) turn; /* in one of both queues */
};

/* ---- items ---- */

static uint64_t
hash_of(const char *id)
{
    return hash_fnv1a(HASH_FNV1A_SEED, id, strlen(id));
}

static struct folder_item *
find(const struct serving_leader *leader, const char *id)
{
    struct hash_entry *entry = hash_table_first(&leader->items, hash_of(id));
    while (entry != NULL && strcmp(((struct folder_item *)(void *)entry)->id, id) != 0)
        entry = hash_table_next(entry);
    return (struct folder_item *)(void *)entry;
}

static void
set_text(char **text, const char *value)
{
    free(*text);
    *text = strdup(value);
    CHECK(*text != NULL);
}

static void
unqueue(struct folder_item *item)
{
    struct serving_leader *leader = item->leader;
    if (item->queued == TURN_DUE)
        TAILQ_REMOVE(&leader->due, item, turn);
    else if (item->queued == TURN_LATER)
        TAILQ_REMOVE(&leader->later, item, turn);
    item->queued = TURN_NONE;
}

static void
make_due(struct folder_item *item)
{
    unqueue(item);
    TAILQ_INSERT_TAIL(&item->leader->due, item, turn);
    item->queued = TURN_DUE;
    loop_timer_set(item->leader->folder_timer, 0);
}

/* All of them are due together, a while after the last one has failed. */
static void
make_due_later(struct folder_item *item)
{
    struct serving_leader *leader = item->leader;
    unqueue(item);
    TAILQ_INSERT_TAIL(&leader->later, item, turn);
    item->queued = TURN_LATER;
    leader->later_ns = clock_now_ns() + AGAIN_NS;
    loop_timer_set(leader->folder_timer, TAILQ_EMPTY(&leader->due) ? AGAIN_NS : 0);
}

static struct folder_item *
make(struct serving_leader *leader, const char *id)
{
    struct folder_item *item = calloc(1, sizeof(*item));
    CHECK(item != NULL);
    item->leader = leader;
    set_text(&item->id, id);
    hash_table_add(&leader->items, &item->entry, hash_of(id));
    return item;
}

static void
item_free(struct folder_item *item)
{
    hash_table_remove(&item->leader->items, &item->entry);
    unqueue(item);
    free(item->id);
    free(item->json);
    free(item->file);
    free(item);
}

/* ---- changes ---- */

static void
on_answer(void *context, const struct serving_answer *answer)
{
    struct folder_item *item = context;
    enum status status = answer->error->status;
    bool is_gone = status == STATUS_NOT_FOUND && item->state == ITEM_LEFT;
    item->is_asking = false;
    item->leader->asking--;
    if (status == STATUS_OK || is_gone) {
        if (status == STATUS_OK)
            log_info("manifests_applied id=\"%s\" file=\"%s\" done=%s", item->id,
                     item->file != NULL ? item->file : "", answer->done);
        if (item->state != ITEM_LEFT && !item->is_overtaken)
            item->state = ITEM_HANDLED;
        make_due(item); /* the file, or the object, may be another one already */
        return;
    }
    if (status != STATUS_ABORTED)
        log_warn_limited("manifests_waiting id=\"%s\" error=\"%s\"", item->id, answer->error->text);
    make_due_later(item);
}

static void
ask(struct folder_item *item, const struct serving_object *object)
{
    struct serving_leader *leader = item->leader;
    bool is_there = object != NULL && object->revision != 0 && !object->deleted;
    item->is_asking = true;
    item->is_overtaken = false;
    leader->asking++;
    if (item->state == ITEM_LEFT) {
        serving_delete(leader, object->kind, object_manifest(object)->name, on_answer, item);
        return;
    }
    CHECK(item->json != NULL);
    serving_put(leader, item->json, strlen(item->json), is_there ? object->revision : 0, on_answer,
                item);
}

/* ---- decisions ---- */

struct member_search {
    const char *name;
    bool is_found;
};

/* Called under the runner's lock. */
static void
look_at_member(void *context, const struct mesh_instance *instance)
{
    struct member_search *search = context;
    search->is_found |= strcmp(instance->id, search->name) == 0;
}

static bool
is_member(const struct serving_leader *leader, const char *name)
{
    enum { PAGE = 64 };
    struct member_search search = {.name = name};
    uint64_t from = 0;
    do {
        from = runner_visit_instances(leader->options.runner, from, PAGE, look_at_member, &search);
    } while (from != 0 && !search.is_found);
    return search.is_found;
}

/* Returns whether the object says the same but for where it is from. */
static bool
is_same(const struct folder_item *item, const struct manifest *manifest)
{
    CHECK(item->json != NULL);
    char *marked = manifest_mark(manifest, item->leader->options.node);
    bool same = strcmp(marked, item->json) == 0;
    free(marked);
    return same;
}

/* F3: it is this folder's, or that of a node which is gone and had the same. */
static bool
may_delete(const struct folder_item *item, const struct manifest *manifest)
{
    if (manifest->folder == NULL)
        return false;
    return strcmp(manifest->folder, item->leader->options.node) == 0 ||
           (item->json != NULL && !is_member(item->leader, manifest->folder) &&
            is_same(item, manifest));
}

/* F2: an object that another one has defined, at the first sight of the file. */
static bool
may_replace(const struct folder_item *item, const struct manifest *manifest)
{
    const struct serving_leader *leader = item->leader;
    bool is_ours = manifest->folder != NULL && strcmp(manifest->folder, leader->options.node) == 0;
    if (is_ours || leader->leads)
        return true;
    log_warn(
        "manifests_conflict id=\"%s\" file=\"%s\" in_force=\"%s\" action=\"change the file, or "
        "apply it\"",
        item->id, item->file, manifest->folder != NULL ? manifest->folder : "shoalctl apply");
    return false;
}

/* At the begin of a session this node may lead and not know it yet. */
static bool
knows_leader(const struct serving_leader *leader)
{
    char id[STORE_ID_BYTES_MAX + 1];
    return store_leader(leader->store, id);
}

static void
step_present(struct folder_item *item, const struct serving_object *object)
{
    const struct manifest *manifest = object_manifest(object);
    bool is_left = item->state == ITEM_LEFT;
    bool is_new = item->state == ITEM_NEW;
    if (is_left && !may_delete(item, manifest)) {
        item_free(item);
        return;
    }
    bool is_exact = !is_left && strcmp(manifest->json, item->json) == 0;
    bool is_reported = is_exact || (is_new && is_same(item, manifest));
    if (is_new && !is_reported && !knows_leader(item->leader)) {
        make_due_later(item);
        return;
    }
    bool may_ask =
        is_left || item->state == ITEM_CHANGED || (is_new && may_replace(item, manifest));
    if (may_ask && !is_reported)
        ask(item, object);
    else
        item->state = ITEM_HANDLED;
}

static void
step(struct folder_item *item)
{
    const struct serving_object *object = object_find(item->leader, item->id);
    bool is_there = object != NULL && object->revision != 0 && !object->deleted;
    if (item->is_asking)
        return; /* the answer makes it due */
    if (is_there)
        step_present(item, object);
    else if (item->state == ITEM_LEFT)
        item_free(item);
    else
        ask(item, object);
}

/* Objects from this folder that left it while the node was down. */
static void
sweep(struct serving_leader *leader)
{
    struct hash_entry *entry = NULL;
    while ((entry = hash_table_walk(&leader->objects, entry)) != NULL) {
        const struct serving_object *object = (struct serving_object *)(void *)entry;
        const struct manifest *manifest = object_manifest(object);
        if (manifest == NULL || manifest->folder == NULL || object->deleted ||
            strcmp(manifest->folder, leader->options.node) != 0 || find(leader, object->id) != NULL)
            continue;
        struct folder_item *item = make(leader, object->id);
        item->state = ITEM_LEFT;
        make_due(item);
    }
    leader->is_swept = true;
}

static void
on_turn(void *context)
{
    struct serving_leader *leader = context;
    struct folder_item *item;
    int64_t now_ns = clock_now_ns();
    if (!leader->whole || leader->stopped || !leader->is_viewed ||
        store_session(leader->store) == 0)
        return; /* later events come back here */
    if (!leader->is_swept && leader->is_view_whole)
        sweep(leader);
    while (leader->later_ns <= now_ns && (item = TAILQ_FIRST(&leader->later)) != NULL)
        make_due(item);
    for (uint32_t i = 0; i < TURN_ITEMS_MAX && leader->asking < ASKING_MAX; i++) {
        item = TAILQ_FIRST(&leader->due);
        if (item == NULL)
            break;
        /* A step frees only items outside the queue. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        CHECK(item->queued == TURN_DUE);
        unqueue(item);
        step(item);
    }
    if (leader->asking < ASKING_MAX && !TAILQ_EMPTY(&leader->due))
        loop_timer_set(leader->folder_timer, 0);
    else if (!TAILQ_EMPTY(&leader->later))
        loop_timer_set(leader->folder_timer, leader->later_ns - now_ns);
}

/* ---- the folder ---- */

static void
take_object(struct serving_leader *leader, const struct folder_object *object)
{
    struct folder_item *item = find(leader, object->id);
    bool is_known = item != NULL && item->json != NULL;
    if (item == NULL)
        item = make(leader, object->id);
    bool is_same = is_known && strcmp(item->json, object->json) == 0;
    item->is_listed = true;
    if (is_same && item->state != ITEM_LEFT)
        return;
    item->state = is_known ? ITEM_CHANGED : ITEM_NEW;
    item->is_overtaken = true;
    set_text(&item->json, object->json);
    set_text(&item->file, object->file);
    make_due(item);
}

static void
on_view(void *context, const struct folder_view *view)
{
    struct serving_leader *leader = context;
    struct hash_entry *entry = NULL;
    while ((entry = hash_table_walk(&leader->items, entry)) != NULL)
        ((struct folder_item *)(void *)entry)->is_listed = false;
    for (uint32_t i = 0; i < view->count; i++)
        take_object(leader, &view->objects[i]);
    while ((entry = hash_table_walk(&leader->items, entry)) != NULL) {
        struct folder_item *item = (struct folder_item *)(void *)entry;
        if (item->is_listed || item->state == ITEM_LEFT)
            continue;
        item->state = ITEM_LEFT;
        make_due(item);
    }
    leader->is_viewed = true;
    leader->is_view_whole = view->is_whole;
    loop_timer_set(leader->folder_timer, 0);
}

void
folder_touch(struct serving_leader *leader, const char *id)
{
    struct folder_item *item = leader->folder != NULL ? find(leader, id) : NULL;
    if (item != NULL)
        make_due(item);
}

void
folder_touch_all(struct serving_leader *leader)
{
    struct hash_entry *entry = NULL;
    while ((entry = hash_table_walk(&leader->items, entry)) != NULL)
        make_due((struct folder_item *)(void *)entry);
    loop_timer_set(leader->folder_timer, 0);
}

void
folder_init(struct serving_leader *leader)
{
    TAILQ_INIT(&leader->due);
    TAILQ_INIT(&leader->later);
    leader->folder_timer = loop_timer_create(loop_base(leader->options.loop), on_turn, leader);
}

void
folder_begin(struct serving_leader *leader)
{
    const struct serving_leader_options *options = &leader->options;
    if (options->folder != NULL)
        leader->folder =
            folder_start(options->loop, options->folder, options->node, on_view, leader);
}

void
folder_end(struct serving_leader *leader)
{
    struct hash_entry *entry;
    folder_destroy(leader->folder);
    loop_timer_destroy(leader->folder_timer);
    while ((entry = hash_table_walk(&leader->items, NULL)) != NULL)
        item_free((struct folder_item *)(void *)entry);
    hash_table_fini(&leader->items);
}
