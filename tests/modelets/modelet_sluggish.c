/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes its time and gives its first input back: a run of n items takes fixed_us + n * item_us,
 * times a random factor of mean 1 (log-normal, `sigma`; 0: none). It waits rather than computes, so
 * its capacity does not depend on what else the machine does.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <shoal/modelet.h>

#include "../random.h"

struct sluggish {
    double fixed_us;
    double item_us;
    double sigma;
    uint64_t random;
};

static double
factor(struct sluggish *self)
{
    double normal =
        sqrt(-2 * log(random_unit(&self->random))) * cos(2 * M_PI * random_unit(&self->random));
    return exp(self->sigma * normal - self->sigma * self->sigma / 2);
}

static void
wait_us(double us)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + (int64_t)(us * 1e3);
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
}

static int
sluggish_open(const struct shoal_open *open, void **instance, struct shoal_error *error)
{
    (void)error;
    struct sluggish *self = calloc(1, sizeof(*self));
    if (self == NULL)
        return SHOAL_RESOURCE_EXHAUSTED;
    self->random = open->worker_index;
    for (uint32_t i = 0; i < open->param_count; i++) {
        const struct shoal_param *param = &open->params[i];
        double value = strtod(param->value, NULL);
        if (strcmp(param->name, "fixed_us") == 0)
            self->fixed_us = value;
        else if (strcmp(param->name, "item_us") == 0)
            self->item_us = value;
        else if (strcmp(param->name, "sigma") == 0)
            self->sigma = value;
    }
    *instance = self;
    return SHOAL_OK;
}

static void
sluggish_close(void *instance)
{
    free(instance);
}

static int
sluggish_run(void *instance, void *model, struct shoal_batch *batch)
{
    (void)model;
    struct sluggish *self = instance;
    wait_us((self->fixed_us + self->item_us * batch->count) * factor(self));
    for (uint32_t i = 0; i < batch->count; i++)
        batch->items[i]->status = batch->host->forward(batch->items[i], 0, "y");
    return SHOAL_OK;
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER,    .abilities = SHOAL_RUNS_BATCHES, .name = "sluggish",
    .version = "1",          .open = sluggish_open,           .run = sluggish_run,
    .close = sluggish_close,
};
