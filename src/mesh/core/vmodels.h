/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This node's view of the vmodels, as of the mirror. A vmodel's number is its id's; it holds
 * references to the ids of its models, which need not have records.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/heap.h"
#include "mesh/core/tables.h"
#include "mesh/core/write.h"

/* Nodes that were asked to load a model. */
struct asked {
    uint16_t instances[MESH_TRIED_MAX];
    uint8_t count;
};

struct vmodel {
    char *owner; /* malloc'ed; NULL: nobody's */
    uint64_t create_revision;
    uint64_t revision;
    struct bid bid;     /* the leader's */
    int64_t asked_ms;   /* now_ms when nodes were last asked to load the target; 0: never */
    struct asked asked; /* which nodes: those that have not begun to load it are not the next */
    uint32_t active;    /* models; NAME_NONE */
    uint32_t target;
    uint8_t asks; /* for that target */
    bool failed;
    bool known;  /* there is a record; else the revision is that of its deletion */
    bool listed; /* the table holds a reference to the id */
};

struct vmodels {
    struct names names;
    struct vmodel *at;
    uint32_t capacity;
    struct heap moving; /* those in transition */
    struct heap graves; /* by the revision of their end (T6) */
    bool lost; /* some may be, with all of etcd (W1): those that are known as of no revision */
};

void vmodels_init(struct vmodels *vmodels, const struct mesh_config *config);
void vmodels_fini(struct vmodels *vmodels);

/* A number for an id that an order names, with a reference; NAME_NONE: no room. */
uint32_t vmodels_hold(struct vmodels *vmodels, const char *id);

/* T6. False: older than what is there, or no room for one more. */
bool vmodels_put(struct vmodels *vmodels, struct tables *tables, const struct mesh_vmodel *record,
                 uint32_t *number);
bool vmodels_drop(struct vmodels *vmodels, struct tables *tables, const char *id, uint64_t revision,
                  uint32_t *number);
/* T6: what the mirror has passed cannot come back. */
void vmodels_dig_up(struct vmodels *vmodels, uint64_t revision);

/* W1: what is known stays so, as of no revision. */
void vmodels_lose(struct vmodels *vmodels);

static inline bool
vmodel_is_lost(const struct vmodel *vmodel)
{
    return vmodel->known && vmodel->revision == 0;
}

/* V7; NAME_NONE: it has neither. */
static inline uint32_t
vmodel_model(const struct vmodel *vmodel)
{
    if (!vmodel->known)
        return NAME_NONE;
    return vmodel->active != NAME_NONE ? vmodel->active : vmodel->target;
}

static inline bool
vmodel_is_moving(const struct vmodel *vmodel)
{
    return vmodel->known && vmodel->active != vmodel->target;
}
