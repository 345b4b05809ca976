/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/storage/role_answer.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <expat.h>
#include <jansson.h>
#include <openssl/crypto.h>

#include "base/check.h"
#include "base/memory.h"

enum { TEXT_BYTES = 8192, DEPTH_MAX = 16 };

struct role_reader {
    XML_Parser parser;
    unsigned depth;
    char text[TEXT_BYTES]; /* of the innermost element */
    size_t text_bytes;
    struct role_keys keys;
    char expires[64], code[ROLE_CODE_BYTES];
};

void
role_keys_fini(struct role_keys *keys)
{
    memory_free_secret(keys->id);
    memory_free_secret(keys->secret);
    memory_free_secret(keys->token);
    *keys = (struct role_keys){0};
}

/* They become parts of headers. */
static bool
is_plain(const char *text)
{
    size_t bytes = 0;
    while ((unsigned char)text[bytes] > ' ' && (unsigned char)text[bytes] < 0x7f)
        bytes++;
    return bytes > 0 && text[bytes] == '\0';
}

static enum status
check(struct role_keys *keys, const char *expires, struct error *error)
{
    struct tm parts = {0};
    const char *rest = expires != NULL ? strptime(expires, "%Y-%m-%dT%H:%M:%S", &parts) : NULL;
    bool is_whole = keys->id != NULL && keys->secret != NULL && keys->token != NULL &&
                    is_plain(keys->id) && is_plain(keys->secret) && is_plain(keys->token);
    if (is_whole && rest != NULL) {
        keys->expires_s = timegm(&parts);
        return STATUS_OK;
    }
    role_keys_fini(keys);
    return error_set(error, STATUS_DATA_LOSS, "the answer has no credentials with an expiration");
}

/* ---- XML ---- */

static void
on_begin(void *context, const char *name, const char **attributes)
{
    struct role_reader *reader = context;
    (void)name, (void)attributes;
    reader->text_bytes = 0;
    if (++reader->depth > DEPTH_MAX)
        XML_StopParser(reader->parser, XML_FALSE);
}

static void
on_text(void *context, const char *text, int bytes)
{
    struct role_reader *reader = context;
    if (reader->text_bytes + (size_t)bytes >= sizeof(reader->text)) {
        XML_StopParser(reader->parser, XML_FALSE);
        return;
    }
    memcpy(reader->text + reader->text_bytes, text, (size_t)bytes);
    reader->text_bytes += (size_t)bytes;
}

static void
take(char **kept, const char *text)
{
    if (*kept != NULL)
        return;
    *kept = strdup(text);
    CHECK(*kept != NULL);
}

static void
on_end(void *context, const char *name)
{
    struct role_reader *reader = context;
    reader->text[reader->text_bytes] = '\0';
    reader->depth--;
    if (strcmp(name, "AccessKeyId") == 0)
        take(&reader->keys.id, reader->text);
    else if (strcmp(name, "SecretAccessKey") == 0)
        take(&reader->keys.secret, reader->text);
    else if (strcmp(name, "SessionToken") == 0)
        take(&reader->keys.token, reader->text);
    else if (strcmp(name, "Expiration") == 0)
        snprintf(reader->expires, sizeof(reader->expires), "%.63s", reader->text);
    else if (strcmp(name, "Code") == 0 && is_plain(reader->text))
        snprintf(reader->code, sizeof(reader->code), "%.63s", reader->text);
    reader->text_bytes = 0;
}

static struct role_reader *
parse(const char *xml, size_t bytes)
{
    struct role_reader *reader = calloc(1, sizeof(*reader));
    CHECK(reader != NULL);
    reader->parser = XML_ParserCreate(NULL);
    CHECK(reader->parser != NULL);
    XML_SetUserData(reader->parser, reader);
    XML_SetElementHandler(reader->parser, on_begin, on_end);
    XML_SetCharacterDataHandler(reader->parser, on_text);
    (void)XML_Parse(reader->parser, xml, (int)bytes, XML_TRUE);
    XML_ParserFree(reader->parser);
    OPENSSL_cleanse(reader->text, sizeof(reader->text));
    return reader;
}

enum status
role_answer_read_xml(const char *xml, size_t bytes, struct role_keys *keys, struct error *error)
{
    struct role_reader *reader = parse(xml, bytes);
    *keys = reader->keys;
    enum status status = check(keys, reader->expires, error);
    free(reader);
    return status;
}

void
role_answer_read_code(const char *xml, size_t bytes, char code[ROLE_CODE_BYTES])
{
    struct role_reader *reader = parse(xml, bytes);
    role_keys_fini(&reader->keys);
    memcpy(code, reader->code, ROLE_CODE_BYTES);
    free(reader);
}

/* ---- JSON ---- */

static char *
member(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    char *copied = text != NULL ? strdup(text) : NULL;
    CHECK(text == NULL || copied != NULL);
    return copied;
}

enum status
role_answer_read_json(const char *text, size_t bytes, struct role_keys *keys, struct error *error)
{
    json_t *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    *keys = (struct role_keys){.id = member(object, "AccessKeyId"),
                               .secret = member(object, "SecretAccessKey"),
                               .token = member(object, "Token")};
    enum status status =
        check(keys, json_string_value(json_object_get(object, "Expiration")), error);
    json_decref(object);
    return status;
}
