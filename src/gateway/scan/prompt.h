/* SPDX-License-Identifier: Apache-2.0 */
/* The members of an OpenAI request that decide its endpoint. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gateway/scan/json_scan.h"

struct prompt {
    uint64_t model;          /* gateway_name_hash of what the name means */
    struct json_span name;   /* the model's, as written, with its quotes */
    uint64_t tokens;         /* of the prompt, as estimated */
    bool is_streamed;        /* the answer begins with its first token */
    struct json_span prompt; /* messages, prompt or input; at NULL: none */
};

/* Returns NULL, or the mistake in words for the client. */
const char *prompt_read(const char *body, size_t bytes, struct prompt *prompt);
