/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes regions for local clients on a thread of its own, in the order in which they were ordered:
 * the first touch of memory is slow, a reload needs a region for every client at once, and the loop
 * thread must repair deaths meanwhile.
 *
 * All functions are for the loop thread, and `made` is called on it.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "loop/loop.h"
#include "shm/layout.h"

/* A region without users. */
struct made_region {
    int fd; /* -1: none */
    uint64_t bytes;
};

/* Closes the region, if there is one. */
void made_region_discard(struct made_region *region);

struct region_maker_order {
    struct region_plan plan;
    /* Takes over the region; if it is none, `error` says why. */
    void (*made)(const struct region_maker_order *order, struct made_region region,
                 const struct error *error);
    void *context;
    uint64_t serial; /* this and the next: for the orderer, to recognize the order */
    uint64_t generation;
};

struct region_maker;

struct region_maker *region_maker_create(struct loop *loop);
/* Ends the thread. Discards regions not fetched and orders not begun. */
void region_maker_destroy(struct region_maker *maker);

/* Orders a region; `made` will be called. */
void region_maker_order(struct region_maker *maker, const struct region_maker_order *order);
