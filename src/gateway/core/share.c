/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokens of each model in a sliding window (F7), in slices of an eighth of it. Models beyond
 * SHARES_MAX are not counted, and so never refused.
 */
#include <string.h>

#include "gateway/core/state.h"

/* The tokens of an answer that did not say. */
enum { ANSWER_TOKENS = 128 };

static int64_t
slice_now(const struct gateway *gateway)
{
    return gateway->now_ms / (gateway->config.share_window_ms / SHARE_SLICES + 1);
}

/* The tokens of a model in the window that ends now. */
static uint64_t
tokens_of(const struct core_share *share, int64_t slice)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < SHARE_SLICES; i++)
        if (share->slices[i] > slice - SHARE_SLICES)
            sum += share->tokens[i];
    return sum;
}

void
share_count(struct gateway *gateway, const struct core_request *request,
            const struct gateway_event *event)
{
    if (gateway->config.share_window_ms == 0)
        return;
    int64_t slice = slice_now(gateway);
    struct core_share *share = NULL;
    for (uint32_t i = 0; i < SHARES_MAX; i++) {
        struct core_share *at = &gateway->shares[i];
        if (at->model == request->model) {
            share = at;
            break;
        }
        if (share == NULL && tokens_of(at, slice) == 0)
            share = at;
    }
    if (share == NULL)
        return;
    if (share->model != request->model)
        *share = (struct core_share){.model = request->model};
    uint64_t tokens = event->prompt_tokens + event->answer_tokens;
    int64_t position = slice % SHARE_SLICES;
    if (share->slices[position] != slice)
        share->tokens[position] = 0;
    share->slices[position] = slice;
    share->tokens[position] += tokens > 0 ? tokens : request->prompt_tokens + ANSWER_TOKENS;
}

bool
share_exceeded(const struct gateway *gateway, uint64_t model)
{
    uint64_t sum = 0;
    uint64_t of_model = 0;
    uint64_t active = 0;
    if (gateway->config.share_window_ms == 0)
        return false;
    for (uint32_t i = 0; i < SHARES_MAX; i++) {
        const struct core_share *share = &gateway->shares[i];
        uint64_t tokens = tokens_of(share, slice_now(gateway));
        sum += tokens;
        active += tokens > 0;
        of_model += share->model == model ? tokens : 0;
    }
    return of_model * active > sum;
}
