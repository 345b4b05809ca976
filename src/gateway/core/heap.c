/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/core/heap.h"

#include <stdbool.h>
#include <stddef.h>

static bool
is_before(const struct pairing_heap_node *a, const struct pairing_heap_node *b)
{
    return a->key != b->key ? a->key < b->key : a->order < b->order;
}

/* Two roots become one. */
static struct pairing_heap_node *
meld(struct pairing_heap_node *a, struct pairing_heap_node *b)
{
    if (a == NULL || b == NULL)
        return a != NULL ? a : b;
    if (is_before(b, a)) {
        struct pairing_heap_node *first = b;
        b = a;
        a = first;
    }
    b->next = a->child;
    if (b->next != NULL)
        b->next->back = b;
    b->back = a;
    a->child = b;
    return a;
}

static struct pairing_heap_node *
cut_first(struct pairing_heap_node **list)
{
    struct pairing_heap_node *first = *list;
    if (first != NULL) {
        *list = first->next;
        first->next = first->back = NULL;
    }
    return first;
}

/* Siblings become one root: in pairs from the left, then all from the right. */
static struct pairing_heap_node *
meld_siblings(struct pairing_heap_node *first)
{
    struct pairing_heap_node *pairs = NULL;
    struct pairing_heap_node *root = NULL;
    while (first != NULL) {
        struct pairing_heap_node *a = cut_first(&first);
        struct pairing_heap_node *pair = meld(a, cut_first(&first));
        pair->next = pairs;
        pairs = pair;
    }
    while (pairs != NULL)
        root = meld(root, cut_first(&pairs));
    return root;
}

void
pairing_heap_push(struct pairing_heap_node **root, struct pairing_heap_node *node)
{
    node->child = node->next = node->back = NULL;
    *root = meld(*root, node);
}

void
pairing_heap_remove(struct pairing_heap_node **root, struct pairing_heap_node *node)
{
    struct pairing_heap_node *below = meld_siblings(node->child);
    if (*root == node) {
        *root = below;
        return;
    }
    if (node->back->child == node)
        node->back->child = node->next;
    else
        node->back->next = node->next;
    if (node->next != NULL)
        node->next->back = node->back;
    *root = meld(*root, below);
}
