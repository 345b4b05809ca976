/* SPDX-License-Identifier: Apache-2.0 */
/* State shared by the files of this folder. */
#pragma once

#include <sys/queue.h>

#include "base/hash_table.h"
#include "loop/timer.h"
#include "serving/leader/folder.h"
#include "serving/leader/leader.h"
#include "serving/manifest/record.h"

enum {
    SERVING_WORK_MAX = 64,       /* objects that are being reconciled at once */
    SERVING_OBJECTS_MAX = 16384, /* of the mesh; further ones are refused */
};

/* ---- status (status.c) ---- */

/* Writes the status as Kubernetes shows it. `since_ms`: when it became ready, or ceased to be.
 * `url` NULL: unknown. */
void serving_status_write(enum serving_form form, const struct serving_status *status,
                          const char *url, int64_t since_ms, struct bytes *to);
/* Appends an event to those of a record, of which it keeps the last ones. */
void serving_events_write(const struct status_record *former, const struct serving_status *status,
                          int64_t now_ms, struct bytes *to);

/* ---- objects (book.c) ---- */

/* The event that an object waits for. A removed one stays until it waits for nothing. */
enum object_phase { OBJECT_IDLE, OBJECT_ASKS, OBJECT_WRITES, OBJECT_ACTS };

/* The waits of an idle service for its turn. All waits of one kind are equally long, so a queue of
 * each is in the order of their ends. */
enum object_wait {
    WAIT_NONE,
    WAIT_SOON,     /* after an action: to see what came of it */
    WAIT_UNSTEADY, /* while a model loads */
    WAIT_AGAIN,    /* after something failed */
    WAIT_STEADY,
    OBJECT_WAITS,
};

/* A copy of the result of an order. */
struct object_view {
    struct serving_observed observed;
    char *texts[7];
};

struct serving_object {
    struct hash_entry entry; /* first */
    struct serving_leader *leader;
    char *id; /* "KIND/NAME" */
    enum manifest_kind kind;
    uint64_t revision;         /* of the manifest; 0: there is only a status */
    struct manifest_file file; /* one item if `revision` is not 0 */
    struct manifest_file held; /* a former one, which an order under way uses */
    int64_t created_ms;
    bool deleted;
    uint64_t status_revision; /* 0: none */
    char *status;             /* its record's value; NULL: none */
    size_t status_bytes;

    enum object_phase phase;
    enum serving_act act;  /* the decision, after the write */
    uint64_t decided;      /* the revision that it is about */
    enum object_wait rest; /* after it */
    int64_t set_ns;        /* the last order that acted */
    int64_t gone_ns;       /* deleted, and seen without a vmodel since then; 0: not */
    int64_t due_ns;
    bool queued; /* in the leader's queue of `wait` */
    enum object_wait wait;
    TAILQ_ENTRY(serving_object) turn;
    bool touched; /* while it was not idle */
    bool waited;  /* the last decision was about no node's runtime */
    bool removed; /* from the table */
    struct runner_order order;
    struct object_view view;
    enum mesh_outcome outcome;
    char refusal[256]; /* the mesh's answer to the last SET; "": taken */
};

/* The value of "manifests/KIND/NAME/node/NODE". */
struct leader_report {
    struct hash_entry entry; /* first */
    uint64_t revision;
    char *json;
    bool writing; /* a change is under way */
    char id[];
};

struct serving_leader {
    struct serving_leader_options options;
    struct hash_table reported;
    struct loop_timer *sweep; /* of reports that nobody will take back */
    void (*on_runtimes)(void *context);
    void (*on_models)(void *context);
    void *on_runtimes_context;
    struct store *store;
    struct store_events next;
    struct loop_timer *timer;
    struct hash_table objects;
    TAILQ_HEAD(object_turns, serving_object) waits[OBJECT_WAITS]; /* services that are idle */
    uint32_t working;                                             /* objects that are not idle */
    bool leads;
    bool whole;
    bool stopped;
    struct offers *offers; /* NULL: to be gathered */
    int64_t offers_ns;
    bool types_derived;    /* the runner has type constraints of ours */
    struct folder *folder; /* NULL: none. This and all that follows: apply.c */
    struct hash_table items;
    TAILQ_HEAD(folder_turns, folder_item) due;
    struct folder_turns later; /* after something failed, until later_ns */
    int64_t later_ns;
    struct loop_timer *folder_timer;
    uint32_t asking; /* items whose change is under way */
    bool is_viewed;  /* the folder has been read */
    bool is_view_whole;
    bool is_swept; /* what left it while the node was down is known */
};

struct serving_object *object_find(struct serving_leader *leader, const char *id);
/* An object that waits for nothing and is removed, or neither manifest nor status: frees it. */
void object_free_if_done(struct serving_object *object);
/* Takes over a record of the table of manifests, or its absence as of a revision: a later record
 * stays. The mirror may show one before the answer to a deletion comes. */
void object_put(struct serving_leader *leader, const struct store_record *record);
void object_gone(struct serving_leader *leader, const char *id, uint64_t revision);
/* The store was emptied: revisions begin anew. */
void objects_restart(struct serving_leader *leader);
void objects_free(struct serving_leader *leader);
static inline const struct manifest *
object_manifest(const struct serving_object *object)
{
    return object->revision != 0 ? &object->file.items[0] : NULL;
}
/* A deleted one is gone for callers when its vmodel and then its status are. */
static inline bool
object_is_there(const struct serving_object *object)
{
    return object->revision != 0 && (!object->deleted || object->status_revision != 0);
}
static inline bool
object_is_service(const struct serving_object *object)
{
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): callers have one
    return object->kind == MANIFEST_INFERENCE_SERVICE || object->kind == MANIFEST_PREDICTOR;
}
/* The URL at which callers reach the nodes; NULL: unknown. */
const char *url_look(struct serving_leader *leader);
/* Passes the Secret storage-config to this node's storage. */
void credentials_notify(struct serving_leader *leader);
/* The key of a service's status. */
void object_status_id(const struct serving_object *object, char id[STORE_ID_BYTES_MAX + 1]);

/* Reconciles the service after that time, or, if it is not idle, soon after it is; at once. */
void object_due(struct serving_object *object, enum object_wait wait);
/* Takes it out of its queue. */
void object_unqueue(struct serving_object *object);
void object_touch(struct serving_object *object);
/* Touches all services, because a runtime has changed. */
void objects_touch(struct serving_leader *leader);
/* Reconciles the service of a vmodel, if there is one. */
void vmodel_touch(struct serving_leader *leader, const char *vmodel, size_t bytes);

/* ---- what can serve (offers.c) ---- */

/* Valid until the next event. */
const struct serving_offers *offers_look(struct serving_leader *leader);
void offers_drop(struct serving_leader *leader);

/* ---- the node's folder (apply.c) ---- */

void folder_init(struct serving_leader *leader);
/* The store is open. */
void folder_begin(struct serving_leader *leader);
/* An object has come, changed or gone; all may have. */
void folder_touch(struct serving_leader *leader, const char *id);
void folder_touch_all(struct serving_leader *leader);
void folder_end(struct serving_leader *leader);
/* ---- reports of nodes (reports.c) ---- */

/* Takes a node's report; `value` NULL: it is absent. Returns false if the record is no report. */
bool report_take(struct serving_leader *leader, const struct store_record *record);
/* Appends the status of a runtime, or of an object of gateways, as an object of JSON. */
void reports_write(struct serving_leader *leader, const struct serving_object *object,
                   struct bytes *to);
void reports_sweep(void *context);
void reports_free(struct serving_leader *leader);

static inline void
runtimes_notify(struct serving_leader *leader)
{
    if (leader->on_runtimes != NULL && !leader->stopped)
        leader->on_runtimes(leader->on_runtimes_context);
}

/* ---- types (types.c) ---- */

/* Gives the runner the type constraints of the ServingRuntimes. */
void types_derive(struct serving_leader *leader);
