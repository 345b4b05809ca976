/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This node's view of the vmodels, from the mirror. A vmodel's number is that of its id; it holds
 * references to the ids of its models, which need not have records.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/containers/heap.h"
#include "mesh/core/cluster/bid.h"
#include "mesh/core/cluster/tables.h"

struct vmodel {
    char *owner; /* malloc'ed; NULL: none */
    uint64_t create_revision;
    uint64_t revision;
    struct bid bid;           /* the leader's */
    int64_t asked_ms;         /* now_ms of the last request for the target; 0: never */
    struct nodes_asked asked; /* nodes asked; those that have not claimed it are passed over */
    uint32_t active;          /* models; NAME_NONE: none */
    uint32_t target;
    uint8_t asks; /* requests for that target */
    bool failed;
    bool known;  /* there is a record; otherwise `revision` is that of the deletion */
    bool listed; /* the table holds a reference to the id */
};

struct vmodels {
    struct names names;
    struct vmodel *at;
    uint32_t capacity;
    struct heap moving;   /* in transition */
    struct heap graves;   /* by the revision of the deletion (T6) */
    uint64_t transitions; /* completed moves that the mirror has shown */
    bool lost;            /* W1: some may be lost; those are known with revision 0 */
};

void vmodels_init(struct vmodels *vmodels, const struct mesh_config *config);
void vmodels_fini(struct vmodels *vmodels);

/* Returns a number for an id that an order names, with a reference; NAME_NONE: no room. */
uint32_t vmodels_hold(struct vmodels *vmodels, const char *id);

/* T6. False: older than the known record, or no room. */
bool vmodels_put(struct vmodels *vmodels, struct tables *tables, const struct mesh_vmodel *record,
                 uint32_t *number);
bool vmodels_drop(struct vmodels *vmodels, struct tables *tables, const char *id, uint64_t revision,
                  uint32_t *number);
/* T6: forgets deletions that the mirror has passed. */
void vmodels_dig_up(struct vmodels *vmodels, uint64_t revision);

/* W1: everything stays known, at revision 0. */
void vmodels_lose(struct vmodels *vmodels);

/* Records, heaps and bids agree. O(everything). */
void vmodels_check(const struct vmodels *vmodels);

static inline bool
vmodel_is_lost(const struct vmodel *vmodel)
{
    return vmodel->known && vmodel->revision == 0;
}

/* V7; NAME_NONE: neither. */
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
