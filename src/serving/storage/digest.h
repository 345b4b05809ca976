/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 as text. */
#pragma once

#include <stddef.h>

enum { DIGEST_BYTES = 65 };

struct digest;

struct digest *digest_begin(void);
void digest_add(struct digest *digest, const void *data, size_t bytes);
/* Adds a text with its zero byte, so that texts in a row cannot be divided in another way. NULL
 * counts as "". */
void digest_add_text(struct digest *digest, const char *text);
/* Writes the digits and frees it. `text` NULL: only frees it. NULL is ignored. */
void digest_end(struct digest *digest, char text[DIGEST_BYTES]);
