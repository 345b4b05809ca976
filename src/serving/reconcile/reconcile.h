/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The next action for one InferenceService or Predictor, from its manifest and the state of the
 * mesh; and its status, in the words of ModelMesh Serving's controller. Pure: no clock, no memory
   of its own.
 * Texts of the status point into the arguments. DESIGN.md has the rules, R and S.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* ---- the desired state ---- */

enum serving_form { SERVING_INFERENCE_SERVICE, SERVING_PREDICTOR };

/* Bounds from the annotations, and in the record of the model. 0: none. */
struct serving_bounds {
    uint32_t copies_min;
    uint32_t copies_max;
    uint32_t size_mib;
};

struct serving_wanted {
    enum serving_form form;
    const char *owner; /* of its vmodel */
    const char *model; /* the id */
    bool deleted;
    bool aged; /* deleted, and without a vmodel for longer than any leader's order lasts */
    const char *refusal; /* the mesh's answer to the last SET; NULL: it was taken */
    bool waited;         /* WAITS was the last decision's support */
    /* Used to choose a runtime; NULL: not given. */
    const char *format;
    const char *version;
    const char *protocol;
    const char *runtime;
    struct serving_bounds bounds;
};

/* ---- what can serve it ---- */

struct serving_format {
    const char *name;
    const char *version; /* NULL: none */
    bool auto_select;
};

struct serving_runtime {
    const char *name;
    bool multi_model;
    bool disabled;
    const struct serving_format *formats;
    uint32_t format_count;
    const char *const *protocols;
    uint32_t protocol_count;
};

/* A label of a node whose runtime rests: it has no processes until a model needs it. */
#define SERVING_LABEL_RESTS "state:resting"

/* A node of the mesh. */
struct serving_node {
    const char *labels; /* comma-separated; "": none */
    /* The names of types that each of its pools takes, comma-separated, or "*"; 0: one pool that
     * takes all. */
    const char *const *pool_types;
    uint32_t pool_count;
};

struct serving_offers {
    const struct serving_runtime *runtimes;
    uint32_t runtime_count;
    const struct serving_node *nodes;
    uint32_t node_count;
};

enum serving_support {
    SERVING_SUPPORTED,
    SERVING_WAITS,            /* a ServingRuntime does, and no node runs it, or it rests there */
    SERVING_NO_RUNTIME,       /* none takes the format, version and protocol */
    SERVING_RUNTIME_UNKNOWN,  /* the named one does not exist */
    SERVING_RUNTIME_DISABLED, /* it is disabled, or not for several models */
};

enum serving_support serving_support(const struct serving_wanted *wanted,
                                     const struct serving_offers *offers);

/* ---- what is there ---- */

enum serving_load {
    SERVING_NOT_FOUND,
    SERVING_NOT_LOADED,
    SERVING_LOADING,
    SERVING_LOADED,
    SERVING_LOAD_FAILED,
};

struct serving_model {
    enum serving_load load;
    const char *error;    /* of a failure; NULL: none */
    const char *location; /* of a failed copy; NULL: of none */
    int64_t failed_ms;    /* of that copy, since the epoch; 0: unknown */
    uint32_t copies;
    uint32_t failed_copies;
    struct serving_bounds bounds;
};

enum serving_vmodel { SERVING_ABSENT, SERVING_DEFINED, SERVING_MOVING, SERVING_MOVE_FAILED };

struct serving_observed {
    enum serving_vmodel vmodel;
    const char *owner; /* this and the next two: "" without a vmodel */
    const char *active;
    const char *target;
    struct serving_model active_model;
    struct serving_model target_model; /* unless it is the active one */
};

/* ---- the decision ---- */

enum serving_act {
    SERVING_KEEP,
    SERVING_SET,    /* the vmodel, to the model, and load it */
    SERVING_DELETE, /* the vmodel */
    SERVING_HIDE,   /* the deleted object, whose vmodel is gone: drop its status */
    SERVING_FORGET, /* it: no order of a former leader can bring the vmodel back */
};

struct serving_status {
    const char *transition; /* "UpToDate", "InProgress", "BlockedByFailedLoad", "InvalidSpec" */
    const char *active;     /* "Pending", "Standby", "Loading", "Loaded", "FailedToLoad" */
    const char *target;     /* the same; "": it is the active one */
    const char *reason;     /* of the last failure; NULL: none */
    const char *message;
    const char *model;    /* that failed */
    const char *location; /* NULL: none */
    int64_t failed_ms;    /* 0: unknown */
    bool available;
    uint32_t copies;
    uint32_t failed_copies;
};

enum serving_act serving_reconcile(const struct serving_wanted *wanted,
                                   enum serving_support support,
                                   const struct serving_observed *observed,
                                   struct serving_status *status);

/* Returns whether nothing is expected to change without an event (S4): look again later than
 * soon. */
bool serving_is_steady(const struct serving_status *status);
