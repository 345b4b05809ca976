/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of API keys, of which only hashes are written down:
 *
 *     keys:
 *       - { name: team-a, sha256: 9f86…0a08, tokens_per_minute: 100000 }
 *
 * Also requests_per_minute and concurrency. A limit that is not given is none.
 */
#pragma once

#include "base/error.h"
#include "gateway/core/quota.h"

enum { KEYS_MAX = 4096, KEY_DIGEST_BYTES = 32 };

struct key_entry {
    unsigned char digest[KEY_DIGEST_BYTES];
    struct quota_limits limits;
};

/* INVALID_ARGUMENT with path, line and mistake; more than KEYS_MAX and a hash that comes twice are
 * mistakes. */
enum status key_file_read(const char *path, struct key_entry entries[KEYS_MAX], uint32_t *count,
                          struct error *error) WARN_UNUSED;
