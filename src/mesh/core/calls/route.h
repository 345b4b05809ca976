/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the copy that serves a call: rules R1 to R4. Pure; reads only the record's places. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/cluster/place.h"

enum route_kind { ROUTE_MISS, ROUTE_HERE, ROUTE_WAIT, ROUTE_THERE };

struct route {
    enum route_kind kind;
    uint32_t instance; /* THERE */
    int64_t since_ms;  /* THERE: the copy's stamp */
};

struct route_wish {
    const struct core_model *model;
    const struct tried *tried;
    uint32_t tried_count;
    int64_t now_ms;
    int64_t wall_ms;
    int64_t assumed_ms;    /* R4 */
    enum mesh_state state; /* of this node's entry */
    uint32_t in_flight;    /* calls in it and waiting for it */
    bool prefer_self;      /* R2 */
};

/* HERE: this node's copy serves; WAIT: it will serve once loaded. */
struct route route_choose(const struct tables *tables, const struct route_wish *wish);
