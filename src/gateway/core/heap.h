/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pairing heap of nodes that are embedded in their owners: least key first, equal keys in the
 * order in which they were pushed. A root is NULL or a node. Nothing is allocated; pushing costs
 * O(1), removing O(log n) amortized.
 */
#pragma once

#include <stdint.h>

struct pairing_heap_node {
    int64_t key;
    uint64_t order; /* breaks ties; unique in the heap */
    struct pairing_heap_node *child;
    struct pairing_heap_node *next; /* sibling */
    struct pairing_heap_node *back; /* the sibling before it, or else its parent */
};

void pairing_heap_push(struct pairing_heap_node **root, struct pairing_heap_node *node);
/* The node is in this heap. */
void pairing_heap_remove(struct pairing_heap_node **root, struct pairing_heap_node *node);
