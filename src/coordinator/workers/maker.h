/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes regions for local clients on a thread of its own: touching memory for the first time takes
 * long, and a reload needs a region for every client at once; the loop thread has deaths to repair
 * meanwhile. One after the other, in the order of the orders.
 *
 * All functions are for the loop thread, and `made` is called on it.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "coordinator/loop/loop.h"
#include "shm/layout.h"

/* A region that nobody is in yet. */
struct made_region {
    int fd; /* -1: none */
    uint64_t bytes;
};

/* Closes it; of one that is none nothing is done. */
void made_region_discard(struct made_region *region);

struct maker_order {
    struct region_plan plan;
    /* The region is the callee's; it is none when `error` says why. */
    void (*made)(const struct maker_order *order, struct made_region region,
                 const struct error *error);
    void *context;
    uint64_t serial;     /* the two numbers are the customer's own: to tell which order it is, */
    uint64_t generation; /* and of what */
};

struct maker;

struct maker *maker_create(struct loop *loop);
/* Ends the thread. What was made and not fetched is discarded, what was ordered is not made. */
void maker_destroy(struct maker *maker);

/* `made` will be called. */
void maker_order(struct maker *maker, const struct maker_order *order);
