/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokens that an answer says it used: the last member `usage` in its last bytes, of one JSON
 * object or of a stream's last events. The answer is not kept. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { USAGE_TAIL_BYTES = 1024 };

struct usage_tail {
    uint32_t used;
    char bytes[USAGE_TAIL_BYTES];
};

struct usage {
    uint64_t prompt_tokens;
    uint64_t answer_tokens;
};

/* `used` is 0 at the beginning. */
void usage_feed(struct usage_tail *tail, const void *data, size_t bytes);
/* False: the answer does not say, or says no whole numbers below 2^32. */
bool usage_read(const struct usage_tail *tail, struct usage *usage);
