/* SPDX-License-Identifier: Apache-2.0 */
/* State of the management calls that this node answers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/cluster/bid.h"
#include "mesh/core/mesh_core.h"

enum order_stage {
    ORDER_FREE,
    ORDER_RECORDS,    /* its records are being written */
    ORDER_LOAD,       /* waits for a copy */
    ORDER_TRANSITION, /* waits for the leader (V4) */
};

struct core_order {
    struct mesh_order said; /* its texts are in `texts` */
    char *texts;            /* malloc'ed */
    struct bid bid;
    int64_t began_ms;        /* now_ms */
    int64_t asked_ms;        /* LOAD: now_ms of the last request for a copy */
    uint64_t asked_revision; /* of the record at that time */
    uint64_t was;            /* create_revision of the record to delete; 0: not seen yet */
    uint32_t model;          /* NAME_NONE: names none */
    uint32_t vmodel;
    uint32_t at; /* index in `under_way` */
    uint8_t stage;
    uint8_t asks;
    bool due;       /* to be checked in this step */
    bool wrote;     /* it has sent more than compares */
    bool confirmed; /* the compares of `bid` hold */
    bool loads;     /* SET_VMODEL: the now active model is to be loaded (V2) */
};

struct orders {
    struct core_order *at;
    uint32_t capacity;
    uint32_t *under_way;
    uint32_t under_way_count;
    uint32_t under_way_capacity;
    uint32_t *due;
    uint32_t due_count;
    uint32_t due_capacity;
};
