/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/model_files.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include <jansson.h>

enum { DIGEST_DIGITS = 64 };

static bool
is_digest(const char *text)
{
    size_t digits = strspn(text, "0123456789abcdefABCDEF");
    return digits == DIGEST_DIGITS && text[digits] == '\0';
}

/* `"sha256": "<digits>"`, or `"sha256": {"<file>": "<digits>"}`. */
static enum status
digest_of(const json_t *key, const char *file, char digest[DIGEST_DIGITS + 1], struct error *error)
{
    const json_t *stated = json_object_get(key, "sha256");
    if (json_is_object(stated))
        stated = json_object_get(stated, file);
    if (stated == NULL)
        return STATUS_OK;
    const char *text = json_string_value(stated);
    if (text == NULL || !is_digest(text))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the model's key states a sha256 for %.100s that is not %d hexadecimal "
                         "digits",
                         file, DIGEST_DIGITS);
    for (size_t i = 0; i <= DIGEST_DIGITS; i++)
        digest[i] = (char)tolower((unsigned char)text[i]);
    return STATUS_OK;
}

enum status
model_key_digest(const char *key, const char *file, char digest[DIGEST_DIGITS + 1],
                 struct error *error)
{
    digest[0] = '\0';
    json_error_t ignored;
    json_t *parsed = json_loads(key, 0, &ignored);
    if (parsed == NULL) /* a registrar's key need not be JSON */
        return STATUS_OK;
    enum status status = digest_of(parsed, file, digest, error);
    json_decref(parsed);
    return status;
}
