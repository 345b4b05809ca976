/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The id that a caller gave a request (`id` of ModelInferRequest), cut to REQUEST_ID_BYTES, so that
 * the log can name the requests of a worker that died. Its words are atomic, because the thread
 * that judges a death may read it while a hostile worker lets another thread use the slot again:
 * what it reads is then nonsense, but bounded.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

enum { REQUEST_ID_WORDS = 5, REQUEST_ID_BYTES = 8 * REQUEST_ID_WORDS - 1 };

struct request_id {
    _Atomic uint64_t words[REQUEST_ID_WORDS];
};

/* Costs one load if this id and the one before are empty. */
static inline void
request_id_write(struct request_id *id, const char *text)
{
    uint64_t words[REQUEST_ID_WORDS] = {0};
    if (text[0] == '\0' && atomic_load_explicit(&id->words[0], memory_order_relaxed) == 0)
        return;
    memcpy(words, text, strnlen(text, REQUEST_ID_BYTES));
    for (uint32_t i = 0; i < REQUEST_ID_WORDS; i++)
        atomic_store_explicit(&id->words[i], words[i], memory_order_relaxed);
}

/* Characters that would end a quoted word of the log become '?'. */
static inline void
request_id_read(const struct request_id *id, char text[REQUEST_ID_BYTES + 1])
{
    uint64_t words[REQUEST_ID_WORDS];
    for (uint32_t i = 0; i < REQUEST_ID_WORDS; i++)
        words[i] = atomic_load_explicit(&id->words[i], memory_order_relaxed);
    memcpy(text, words, REQUEST_ID_BYTES);
    text[REQUEST_ID_BYTES] = '\0';
    for (char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c <= ' ' || *c == '"' || *c == '\\')
            *c = '?';
}
