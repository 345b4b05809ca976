/* SPDX-License-Identifier: Apache-2.0 */
/* The alias method: each model is drawn in constant time. */
#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "scale.h"

/* Of two models that share a slot, the first one's chance. */
struct slot {
    uint32_t other;
    float chance;
};

struct popularity {
    uint32_t count;
    struct slot slots[];
};

struct popularity *
popularity_create(uint32_t count, uint32_t zipf_percent)
{
    struct popularity *popularity = calloc(1, sizeof(*popularity) + count * sizeof(struct slot));
    double *weight = malloc(count * sizeof(*weight));
    uint32_t *small = malloc(count * sizeof(*small));
    uint32_t *large = malloc(count * sizeof(*large));
    CHECK(popularity != NULL && weight != NULL && small != NULL && large != NULL);
    popularity->count = count;
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += weight[i] = pow(i + 1.0, -(double)zipf_percent / 100);
    uint32_t smalls = 0;
    uint32_t larges = 0;
    for (uint32_t i = 0; i < count; i++) {
        popularity->slots[i].chance = 1;
        weight[i] *= count / sum;
        if (weight[i] < 1)
            small[smalls++] = i;
        else
            large[larges++] = i;
    }
    while (smalls > 0 && larges > 0) {
        uint32_t low = small[--smalls];
        uint32_t high = large[larges - 1];
        popularity->slots[low] = (struct slot){.other = high, .chance = (float)weight[low]};
        weight[high] -= 1 - weight[low];
        if (weight[high] < 1) {
            small[smalls++] = high;
            larges--;
        }
    }
    free(weight);
    free(small);
    free(large);
    return popularity;
}

uint32_t
popularity_draw(const struct popularity *popularity, uint64_t dice)
{
    uint32_t at = (uint32_t)((dice & UINT32_MAX) * popularity->count >> 32);
    float drawn = (float)(dice >> 40) / (float)(1 << 24);
    return drawn < popularity->slots[at].chance ? at : popularity->slots[at].other;
}
