/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/models/model_size.h"

#include <stdbool.h>
#include <stddef.h>

#include "ipc/handshake.h"

static uint32_t
class_of(uint64_t file_bytes)
{
    uint32_t bits = 63u - (uint32_t)__builtin_clzll(file_bytes | 1);
    return bits < MODEL_SIZE_CLASSES ? bits : MODEL_SIZE_CLASSES - 1;
}

static uint64_t
whole(double bytes)
{
    return bytes < (double)MODEL_BYTES_MAX ? (uint64_t)bytes : MODEL_BYTES_MAX;
}

/* The sizes learned for models like it, and the number of units that it has. NULL: none. */
static const struct model_size *
known_of(const struct model_sizes *sizes, const struct model_hints *hints, double *units)
{
    const struct model_size *known =
        hints->said_bytes > 0 ? &sizes->by_said : &sizes->by_file[class_of(hints->file_bytes)];
    *units = hints->said_bytes > 0 ? (double)hints->said_bytes : 1;
    bool is_known = known->expected > 0 && (hints->said_bytes > 0 || hints->file_bytes > 0);
    return is_known ? known : NULL;
}

uint64_t
model_size_predict(const struct model_sizes *sizes, const struct model_hints *hints)
{
    double units;
    const struct model_size *known = known_of(sizes, hints, &units);
    if (known != NULL)
        return whole(units * known->expected);
    return hints->said_bytes > 0 ? whole((double)hints->said_bytes * (double)hints->said_factor)
                                 : hints->default_bytes;
}

uint64_t
model_size_reserve(const struct model_sizes *sizes, const struct model_hints *hints)
{
    double units;
    const struct model_size *known = known_of(sizes, hints, &units);
    return known != NULL && known->least < known->most ? whole(units * known->most * 17 / 16)
                                                       : model_size_predict(sizes, hints);
}

/* Moves by an eighth of the difference; at once if it is larger. */
static void
learn(struct model_size *known, double now)
{
    bool more = known->expected == 0 || now > known->expected;
    known->least = known->expected == 0 || now < known->least ? now : known->least;
    known->most = now > known->most ? now : known->most;
    known->expected = more ? now : known->expected + (now - known->expected) / 8;
}

void
model_size_learn(struct model_sizes *sizes, const struct model_hints *hints, uint64_t bytes)
{
    if (hints->said_bytes > 0)
        learn(&sizes->by_said, (double)bytes / (double)hints->said_bytes);
    if (hints->file_bytes > 0 && bytes > 0)
        learn(&sizes->by_file[class_of(hints->file_bytes)], (double)bytes);
}
