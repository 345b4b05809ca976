/* SPDX-License-Identifier: Apache-2.0 */
/* Errors as OpenAI's API has them: {"error": {"message", "type", "param", "code"}}. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "gateway/core/gateway_core.h"

struct openai_error {
    int code;
    const char *type;
    const char *message;
    const char *request_id; /* NULL: none */
    const char *allow;      /* of 405; else NULL */
    bool may_retry;         /* adds Retry-After */
    int64_t retry_ms;       /* in so long; 0: in a second */
};

/* The error for a client whose request the core refused. */
struct openai_error openai_error_of(enum gateway_refusal refusal);
/* Returns the value of Retry-After. */
int64_t openai_retry_seconds(const struct openai_error *error);
/* Appends the body. */
void openai_error_write(struct bytes *out, const struct openai_error *error);
