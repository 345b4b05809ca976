/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/model_size.h"

#include "shm/handshake.h"

static uint32_t
class_of(uint64_t file_bytes)
{
    uint32_t bits = 63u - (uint32_t)__builtin_clzll(file_bytes | 1);
    return bits < MODEL_SIZE_CLASSES ? bits : MODEL_SIZE_CLASSES - 1;
}

uint64_t
model_size_predict(const struct model_sizes *sizes, const struct model_hints *hints)
{
    if (hints->said_bytes > 0) {
        double factor = sizes->said_factor > 0 ? sizes->said_factor : (double)hints->said_factor;
        double bytes = (double)hints->said_bytes * factor;
        return bytes < (double)MODEL_BYTES_MAX ? (uint64_t)bytes : MODEL_BYTES_MAX;
    }
    uint64_t bytes = hints->file_bytes > 0 ? sizes->by_file[class_of(hints->file_bytes)] : 0;
    return bytes > 0 ? bytes : hints->default_bytes;
}

/* An eighth of the difference at a time; at once where it is more, so that the budget holds. */
static double
drawn(double before, double now)
{
    return before == 0 || now > before ? now : before + (now - before) / 8;
}

void
model_size_learn(struct model_sizes *sizes, const struct model_hints *hints, uint64_t bytes)
{
    if (hints->said_bytes > 0)
        sizes->said_factor = drawn(sizes->said_factor, (double)bytes / (double)hints->said_bytes);
    if (hints->file_bytes == 0 || bytes == 0)
        return;
    uint64_t *known = &sizes->by_file[class_of(hints->file_bytes)];
    *known = (uint64_t)drawn((double)*known, (double)bytes);
}
