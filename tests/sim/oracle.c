/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle.h"

#include <stdlib.h>

#include "base/check.h"

/* A ring of models by last use; the last link is its head. */
struct link {
    uint32_t before;
    uint32_t after;
    uint32_t units; /* 0: it is not there */
};

struct oracle {
    uint64_t used_units;
    uint32_t head;
    struct link links[];
};

struct oracle *
oracle_create(uint32_t models)
{
    struct oracle *oracle =
        calloc(1, sizeof(*oracle) + (models + UINT64_C(1)) * sizeof(struct link));
    CHECK(oracle != NULL);
    oracle->head = models;
    oracle->links[models] = (struct link){.before = models, .after = models};
    return oracle;
}

void
oracle_destroy(struct oracle *oracle)
{
    free(oracle);
}

static void
take_out(struct oracle *oracle, uint32_t model)
{
    struct link *link = &oracle->links[model];
    oracle->links[link->before].after = link->after;
    oracle->links[link->after].before = link->before;
    oracle->used_units -= link->units;
    link->units = 0;
}

bool
oracle_use(struct oracle *oracle, uint32_t model, uint32_t units, uint64_t capacity_units)
{
    struct link *link = &oracle->links[model];
    bool had = link->units != 0;
    if (had)
        take_out(oracle, model);
    struct link *head = &oracle->links[oracle->head];
    *link = (struct link){.before = oracle->head, .after = head->after, .units = units};
    oracle->links[head->after].before = model;
    head->after = model;
    oracle->used_units += units;
    while (oracle->used_units > capacity_units && head->before != model)
        take_out(oracle, head->before);
    return had;
}
