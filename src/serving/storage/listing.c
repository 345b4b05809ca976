/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/storage/listing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <expat.h>

#include "base/check.h"
#include "base/percent.h"

enum { DEPTH_MAX = 16, TEXT_BYTES = 4096 };

struct listing_reader {
    struct listing *listing; /* NULL: an error is read */
    XML_Parser parser;
    struct error *error;
    unsigned depth;
    bool is_listing, is_object;
    char text[TEXT_BYTES]; /* of the innermost element */
    size_t text_bytes;
    struct listing_object object;
    char code[64], message[200];
};

static void
stop(struct listing_reader *reader, enum status status, const char *why)
{
    if (reader->error->status == STATUS_OK)
        error_set(reader->error, status, "the listing %s", why);
    XML_StopParser(reader->parser, XML_FALSE);
}

static void
on_begin(void *context, const char *name, const char **attributes)
{
    struct listing_reader *reader = context;
    (void)attributes;
    reader->text_bytes = 0;
    if (++reader->depth > DEPTH_MAX)
        stop(reader, STATUS_DATA_LOSS, "is nested too deeply");
    if (reader->depth == 1)
        reader->is_listing = strcmp(name, "ListBucketResult") == 0;
    if (reader->depth == 2)
        reader->is_object = strcmp(name, "Contents") == 0;
}

static void
on_text(void *context, const char *text, int bytes)
{
    struct listing_reader *reader = context;
    if (reader->text_bytes + (size_t)bytes >= sizeof(reader->text)) {
        stop(reader, STATUS_DATA_LOSS, "has a text that is too long");
        return;
    }
    memcpy(reader->text + reader->text_bytes, text, (size_t)bytes);
    reader->text_bytes += (size_t)bytes;
}

/* `+` is a space: S3 encodes as forms do. */
static void
decode_key(char *key)
{
    for (char *at = key; *at != '\0'; at++)
        if (*at == '+')
            *at = ' ';
    percent_decode(key);
}

static void
take_member(struct listing_reader *reader, const char *name)
{
    struct listing_object *object = &reader->object;
    char *end;
    if (strcmp(name, "Key") == 0) {
        free(object->key);
        object->key = strdup(reader->text);
        CHECK(object->key != NULL);
        decode_key(object->key);
        if (strlen(object->key) >= LISTING_NAME_BYTES)
            stop(reader, STATUS_DATA_LOSS, "has a key that is too long");
    } else if (strcmp(name, "ETag") == 0) {
        free(object->etag);
        object->etag = strndup(reader->text, LISTING_ETAG_BYTES - 1);
        CHECK(object->etag != NULL);
        for (const char *at = object->etag; *at != '\0'; at++)
            if ((unsigned char)*at < ' ' || *at == 0x7f) /* it goes into a header */
                stop(reader, STATUS_DATA_LOSS, "has an ETag with a line break");
    } else if (strcmp(name, "Size") == 0) {
        errno = 0;
        object->bytes = strtoull(reader->text, &end, 10);
        if (errno != 0 || end == reader->text || *end != '\0' || reader->text[0] == '-' ||
            object->bytes > INT64_MAX)
            stop(reader, STATUS_DATA_LOSS, "has an object with a size that is no number");
    }
}

static void
add_object(struct listing_reader *reader)
{
    struct listing *listing = reader->listing;
    if (reader->object.key == NULL) {
        stop(reader, STATUS_DATA_LOSS, "has an object without a key");
        return;
    }
    if (listing->count == listing->count_max) {
        char why[64];
        snprintf(why, sizeof(why), "has more than %u objects", listing->count_max);
        stop(reader, STATUS_RESOURCE_EXHAUSTED, why);
        return;
    }
    if (listing->count == listing->room) {
        listing->room = listing->room == 0 ? 64 : 2 * listing->room;
        listing->objects = realloc(listing->objects, listing->room * sizeof(struct listing_object));
        CHECK(listing->objects != NULL);
    }
    listing->objects[listing->count++] = reader->object;
    reader->object = (struct listing_object){0};
}

static void
take_top(struct listing_reader *reader, const char *name)
{
    struct listing *listing = reader->listing;
    if (strcmp(name, "IsTruncated") == 0)
        listing->is_truncated = strcmp(reader->text, "true") == 0;
    else if (strcmp(name, "NextContinuationToken") == 0)
        snprintf(listing->token, sizeof(listing->token), "%.*s", (int)sizeof(listing->token) - 1,
                 reader->text);
    else if (strcmp(name, "Contents") == 0)
        add_object(reader);
}

static void
on_end(void *context, const char *name)
{
    struct listing_reader *reader = context;
    reader->text[reader->text_bytes] = '\0';
    if (reader->listing == NULL) {
        if (reader->depth == 2 && strcmp(name, "Code") == 0)
            snprintf(reader->code, sizeof(reader->code), "%.63s", reader->text);
        if (reader->depth == 2 && strcmp(name, "Message") == 0)
            snprintf(reader->message, sizeof(reader->message), "%.199s", reader->text);
    } else if (reader->is_listing && reader->depth == 2) {
        take_top(reader, name);
    } else if (reader->is_listing && reader->is_object && reader->depth == 3) {
        take_member(reader, name);
    }
    reader->depth--;
    reader->text_bytes = 0;
}

static bool
parse(struct listing_reader *reader, const char *xml, size_t bytes)
{
    reader->parser = XML_ParserCreate(NULL);
    CHECK(reader->parser != NULL);
    XML_SetUserData(reader->parser, reader);
    XML_SetElementHandler(reader->parser, on_begin, on_end);
    XML_SetCharacterDataHandler(reader->parser, on_text);
    bool is_xml =
        bytes < INT32_MAX && XML_Parse(reader->parser, xml, (int)bytes, XML_TRUE) == XML_STATUS_OK;
    XML_ParserFree(reader->parser);
    free(reader->object.key);
    free(reader->object.etag);
    return is_xml;
}

enum status
listing_read(struct listing *listing, const char *xml, size_t bytes, struct error *error)
{
    struct listing_reader *reader = calloc(1, sizeof(*reader));
    CHECK(reader != NULL);
    reader->listing = listing;
    reader->error = error;
    listing->is_truncated = false;
    listing->token[0] = '\0';
    error_clear(error);
    bool is_xml = parse(reader, xml, bytes);
    if (error->status == STATUS_OK && (!is_xml || !reader->is_listing))
        error_set(error, STATUS_DATA_LOSS, "the answer is no listing of S3 (ListBucketResult)");
    if (error->status == STATUS_OK && listing->is_truncated && listing->token[0] == '\0')
        error_set(error, STATUS_DATA_LOSS, "the listing is cut short without a continuation token");
    free(reader);
    return error->status;
}

void
listing_fini(struct listing *listing)
{
    for (uint32_t i = 0; i < listing->count; i++) {
        free(listing->objects[i].key);
        free(listing->objects[i].etag);
    }
    free(listing->objects);
    *listing = (struct listing){0};
}

void
listing_read_error(const char *xml, size_t bytes, char *text, size_t room)
{
    struct error ignored = ERROR_NONE;
    struct listing_reader *reader = calloc(1, sizeof(*reader));
    CHECK(reader != NULL);
    reader->error = &ignored;
    (void)parse(reader, xml, bytes);
    snprintf(text, room, "%s%s%s", reader->code, reader->message[0] != '\0' ? ": " : "",
             reader->message);
    free(reader);
}
