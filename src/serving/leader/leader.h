/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manifests in the mesh's store: every node knows them and takes changes; the mesh's leader makes
 * them true (reconcile/) with the runner's orders, and writes their status beside them. DESIGN.md
 * has the rules, L.
 *
 * Loop thread. Callbacks come from there, perhaps before the called function returns.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/error.h"
#include "loop/loop.h"
#include "mesh/edge/runner.h"
#include "mesh/store/store.h"
#include "serving/manifest/manifest.h"

struct serving_leader;

enum serving_types { SERVING_TYPES_DERIVED, SERVING_TYPES_GIVEN };

struct serving_leader_options {
    struct loop *loop;
    struct mesh_runner *runner;
    /* GIVEN: the node has type constraints of its own; those of ServingRuntimes are ignored. */
    enum serving_types types;
    const char *folder; /* of manifests that are applied and watched; NULL: none */
    const char *node;   /* this node's name in the mesh */
    /* The Secret storage-config has come or changed; NULL: there is none. */
    void (*on_credentials)(void *context, const struct manifest *secret);
    void *context;
};

struct serving_leader *serving_leader_create(const struct serving_leader_options *options);
/* The events to open the store with; all but manifests go on to `next`, which is copied. */
struct store_events serving_leader_events(struct serving_leader *leader,
                                          const struct store_events *next);
/* The store is open. */
void serving_leader_start(struct serving_leader *leader, struct store *store);
/* Begins nothing more and gives no answers any more. The runner is still there. May be repeated;
 * NULL is ignored. */
void serving_leader_stop(struct serving_leader *leader);
/* Call after serving_leader_stop, when the store and the loop are closed. NULL is ignored. */
void serving_leader_destroy(struct serving_leader *leader);

/* ---- changes ---- */

struct serving_answer {
    const struct error *error; /* status OK: it is done */
    uint64_t version;          /* of the object now; 0: it is gone */
    const char *done;          /* "created", "configured", "unchanged", "deleted" */
};

typedef void serving_answered(void *context, const struct serving_answer *answer);

/* Creates or replaces the object of a manifest, a single document. ABORTED: its version is another
 * than `version` (0: it does not exist). `answered` is called once, unless the leader stops. */
void serving_put(struct serving_leader *leader, const char *json, size_t bytes, uint64_t version,
                 serving_answered *answered, void *context);
/* NOT_FOUND: there is none. A service's or predictor's vmodel is deleted first, by the leader. */
void serving_delete(struct serving_leader *leader, enum manifest_kind kind, const char *name,
                    serving_answered *answered, void *context);

/* Objects of the mesh, which may have SERVING_OBJECTS_MAX. */
uint32_t serving_count(const struct serving_leader *leader);

/* ---- runtimes that nodes run ---- */

/* A ServingRuntime, Secret or ConfigMap has come, changed or gone; or the session, or all of them.
 */
void serving_on_runtimes(struct serving_leader *leader, void (*on_change)(void *context),
                         void *context);
/* The record of a model has come or changed, and the runner knows it; same context. */
void serving_on_models(struct serving_leader *leader, void (*on_change)(void *context));
/* Returns whether the store has been read and this node has a session. */
bool serving_is_open(const struct serving_leader *leader);
/* Namespaced ones, then those of the cluster; `visit` calls nothing here but serving_value. */
void serving_visit_runtimes(struct serving_leader *leader,
                            void (*visit)(void *context, const struct manifest *manifest),
                            void *context);

enum serving_value { SERVING_VALUE_FOUND, SERVING_VALUE_NO_OBJECT, SERVING_VALUE_NO_KEY };
/* Appends the value of a key of a Secret or ConfigMap, without zero bytes. */
enum serving_value serving_value(struct serving_leader *leader, enum manifest_kind kind,
                                 const char *name, const char *key, struct bytes *value);

/* `podsPerRuntime` of the ConfigMap model-serving-config; 0: not given. */
uint64_t serving_pods_per_runtime(struct serving_leader *leader);
/* Returns how long no model may need a runtime before it rests, by the same ConfigMap;
 * TIME_NEVER_NS: it never rests. */
int64_t serving_grace_ns(struct serving_leader *leader);

/* Publishes this node's report on a runtime, a JSON object or "", if it has changed. */
void serving_report(struct serving_leader *leader, const char *node, enum manifest_kind kind,
                    const char *runtime, const char *json);
/* Returns whether a node's report says that it can run a runtime, and does not. */
bool serving_can_run(struct serving_leader *leader, const char *node, enum manifest_kind kind,
                     const char *runtime);

/* ---- looking ---- */

struct serving_seen {
    const char *id; /* "KIND/NAME" */
    enum manifest_kind kind;
    const char *name;
    uint64_t version;
    int64_t created_ms;
    bool deleted;         /* its vmodel is still there */
    const char *manifest; /* JSON; a Secret's without its values */
    const char *status;   /* JSON: version, events and status; "": none yet */
};

/* UNAVAILABLE: the store has not been read yet. Visits objects in the order of ids,
 * behind `after` ("": from the first), until `visit` returns false. */
enum status serving_list(struct serving_leader *leader, const char *after,
                         bool (*visit)(void *context, const struct serving_seen *seen),
                         void *context, struct error *error) WARN_UNUSED;
