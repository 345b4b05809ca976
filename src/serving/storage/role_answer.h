/* SPDX-License-Identifier: Apache-2.0 */
/* Temporary credentials as AWS services send them. Pure; no text of an answer is in an error but
 * its code, since the rest may quote secrets. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct role_keys {
    char *id, *secret, *token; /* owned; NULL: none */
    int64_t expires_s;         /* by the wall clock */
};

/* The result of AssumeRoleWithWebIdentity, in XML. DATA_LOSS: it is none. */
enum status role_answer_read_xml(const char *xml, size_t bytes, struct role_keys *keys,
                                 struct error *error) WARN_UNUSED;
/* Reads the answer of an instance's metadata service about its role, in JSON. */
enum status role_answer_read_json(const char *text, size_t bytes, struct role_keys *keys,
                                  struct error *error) WARN_UNUSED;
/* The code of an error in XML; "": it has none. */
enum { ROLE_CODE_BYTES = 64 };
void role_answer_read_code(const char *xml, size_t bytes, char code[ROLE_CODE_BYTES]);

/* Overwrites and frees the texts. */
void role_keys_fini(struct role_keys *keys);
