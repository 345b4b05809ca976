/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/config/key_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "gateway/config/yaml_file.h"

static bool
read_digest(const char *text, unsigned char digest[KEY_DIGEST_BYTES])
{
    size_t digits = 0;
    while (text != NULL && digits < (size_t)2 * KEY_DIGEST_BYTES && hex_digit(text[digits]) >= 0)
        digits++;
    if (digits < (size_t)2 * KEY_DIGEST_BYTES || text[digits] != '\0')
        return false;
    for (size_t i = 0; i < KEY_DIGEST_BYTES; i++)
        digest[i] = (unsigned char)(hex_digit(text[2 * i]) << 4 | hex_digit(text[2 * i + 1]));
    return true;
}

static enum status
read_limit(const struct yaml_file *file, const struct tree_node *value, const char *name,
           uint64_t *limit, struct error *error)
{
    const char *text = yaml_text(value);
    char *end = NULL;
    long long number = text != NULL ? strtoll(text, &end, 10) : -1;
    if (text == NULL || end == text || *end != '\0' || number < 0 || number > INT32_MAX)
        return yaml_mistake(file, value, error, "%.80s: expected a whole number", name);
    *limit = (uint64_t)number;
    return STATUS_OK;
}

static enum status
read_key(const struct yaml_file *file, const struct tree_node *item, struct key_entry *entry,
         struct error *error)
{
    *entry = (struct key_entry){.limits = {0}};
    if (!read_digest(yaml_text(yaml_find(item, "sha256")), entry->digest))
        return yaml_mistake(file, item, error,
                            "sha256: expected 64 hexadecimal digits, as "
                            "`printf %%s KEY | sha256sum` prints them");
    for (const struct tree_node *value = yaml_first(item); value != NULL; value = value->next) {
        const char *key = value->key;
        uint64_t *limit = strcmp(key, "tokens_per_minute") == 0 ? &entry->limits.tokens_per_minute
                          : strcmp(key, "requests_per_minute") == 0
                              ? &entry->limits.requests_per_minute
                          : strcmp(key, "concurrency") == 0 ? &entry->limits.concurrency
                                                            : NULL;
        if (limit == NULL && strcmp(key, "name") != 0 && strcmp(key, "sha256") != 0)
            return yaml_mistake(file, value, error, "an API key has no %.80s", key);
        enum status status = limit != NULL ? read_limit(file, value, key, limit, error) : STATUS_OK;
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

enum status
key_file_read(const char *path, struct key_entry entries[KEYS_MAX], uint32_t *count,
              struct error *error)
{
    struct yaml_file *file;
    *count = 0;
    enum status status = yaml_file_read(path, &file, error);
    if (status != STATUS_OK)
        return status;
    const struct tree_node *list = yaml_find(yaml_root(file), "keys");
    if (!yaml_is_list(list))
        status = yaml_mistake(file, list, error, "expected a list `keys:`");
    for (const struct tree_node *item = yaml_first(list); status == STATUS_OK && item != NULL;
         item = item->next) {
        struct key_entry *entry = &entries[*count];
        if (*count == KEYS_MAX)
            status = yaml_mistake(file, item, error, "more than %d keys", KEYS_MAX);
        else
            status = read_key(file, item, entry, error);
        for (uint32_t i = 0; i < *count && status == STATUS_OK; i++)
            if (memcmp(entries[i].digest, entry->digest, KEY_DIGEST_BYTES) == 0)
                status = yaml_mistake(file, item, error, "this key is listed twice");
        *count += status == STATUS_OK;
    }
    yaml_file_free(file);
    return status;
}
