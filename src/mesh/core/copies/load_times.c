/* SPDX-License-Identifier: Apache-2.0 */
/* The durations of loads, and what follows from them. */
#include "mesh/core/copies/load_times.h"

enum {
    UNMEASURED_MS_MIN = 3000,
    GUESS_SLOWEST = 2,
    CHURN_ASSUMED = 10,
    CHURN_MS_MIN = 1000,
    TICK_MS = 1000,
    SAMPLES_FEW = 4, /* R4 */
};

void
load_took(struct mesh *mesh, int64_t took_ms)
{
    struct load_times *times = &mesh->load_times;
    times->samples_ms[times->samples++ % SAMPLES_MAX] = took_ms;
}

static uint32_t
sample_count(const struct mesh *mesh)
{
    return mesh->load_times.samples < SAMPLES_MAX ? mesh->load_times.samples : SAMPLES_MAX;
}

/* R4: with few samples. */
static int64_t
guess_ms(const struct mesh *mesh, uint32_t count)
{
    int64_t unmeasured_ms = mesh->pools.load_timeout_ms / 3;
    if (unmeasured_ms < UNMEASURED_MS_MIN)
        unmeasured_ms = UNMEASURED_MS_MIN;
    int64_t slowest = 0;
    for (uint32_t i = 0; i < count; i++)
        if (mesh->load_times.samples_ms[i] > slowest)
            slowest = mesh->load_times.samples_ms[i];
    return count == 0 || GUESS_SLOWEST * slowest > unmeasured_ms ? unmeasured_ms
                                                                 : GUESS_SLOWEST * slowest;
}

/* Mean duration of the last loads; 0: none. */
static int64_t
mean_ms(const struct mesh *mesh)
{
    uint32_t count = sample_count(mesh);
    int64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += mesh->load_times.samples_ms[i];
    return count == 0 ? 0 : sum / count;
}

int64_t
load_assumed_ms(const struct mesh *mesh)
{
    uint32_t count = sample_count(mesh);
    if (count < SAMPLES_FEW)
        return guess_ms(mesh, count);
    int64_t mean = mean_ms(mesh);
    int64_t squares = 0;
    for (uint32_t i = 0; i < count; i++)
        squares +=
            (mesh->load_times.samples_ms[i] - mean) * (mesh->load_times.samples_ms[i] - mean);
    int64_t nine_variances = 9 * (squares / count);
    int64_t deviation = 0;
    while ((deviation + 1) * (deviation + 1) <= nine_variances)
        deviation += deviation / 8 + 1;
    return mean + deviation;
}

int64_t
load_churn_ms(const struct mesh *mesh)
{
    int64_t age_ms = CHURN_ASSUMED * load_assumed_ms(mesh);
    return age_ms > CHURN_MS_MIN ? age_ms : CHURN_MS_MIN;
}

/* The tick that ends a call's wait may be a second late. */
int64_t
load_guard_ms(const struct mesh *mesh)
{
    int64_t mean = mean_ms(mesh);
    return mean > TICK_MS ? mean - TICK_MS : 0;
}
