/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/protocol/reflection_files.h"

#include <string.h>

#include "base/check.h"

/* Field numbers of google/protobuf/descriptor.proto. */
enum {
    SET_FILE = 1,
    NAMED_NAME = 1, /* of files, messages, fields, enums, values, services, methods alike */
    FILE_PACKAGE = 2,
    FILE_DEPENDENCY = 3,
    FILE_SERVICE = 6,
};

/* ---- the descriptors ---- */

/* A walk over descriptors that cannot be read is a broken build, not an outside error. */
static bool
next(struct wire_cursor *cursor, struct wire_field *field)
{
    enum wire_result result = wire_next(cursor, field);
    CHECK(result != WIRE_MALFORMED);
    return result == WIRE_FIELD;
}

/* The last field of that number in a message; empty if there is none. */
static struct wire_cursor
member(struct wire_cursor message, uint32_t number)
{
    struct wire_cursor found = {0};
    struct wire_field field;
    while (next(&message, &field))
        if (field.number == number && field.type == WIRE_BYTES)
            found = field.data;
    return found;
}

/* The text of a cursor on the embedded bytes, which are one span. */
static const char *
text_of(struct wire_cursor cursor)
{
    const unsigned char *data = (const unsigned char *)"";
    (void)wire_run(&cursor, &data);
    return (const char *)data;
}

static bool
text_is(struct wire_cursor cursor, const char *text, size_t bytes)
{
    return cursor.left == bytes && memcmp(text_of(cursor), text, bytes) == 0;
}

void
reflection_files_read(struct reflection_files *set, const void *data, size_t bytes)
{
    set->span = (struct wire_span){data, bytes};
    set->count = 0;
    struct wire_cursor cursor = {.spans = &set->span, .left = set->span.bytes};
    struct wire_field field;
    while (next(&cursor, &field)) {
        if (field.number != SET_FILE)
            continue;
        CHECK(set->count < REFLECTION_FILES_MAX);
        set->files[set->count++] =
            (struct reflection_file){.descriptor = field.data,
                                     .name = member(field.data, NAMED_NAME),
                                     .package = member(field.data, FILE_PACKAGE)};
    }
}

static const struct reflection_file *
file_named(const struct reflection_files *set, const char *name, size_t bytes)
{
    for (uint32_t i = 0; i < set->count; i++)
        if (text_is(set->files[i].name, name, bytes))
            return &set->files[i];
    return NULL;
}

/* ---- symbols ---- */

/* A declaration in a scope, and the scope that it opens, if any. */
struct scope_part {
    uint32_t number;
    const struct scope_part *inner;
};

static const struct scope_part service_parts[] = {{2, NULL} /* methods */, {0, NULL}};
/* An enum's values are declared beside it, not in it: see enum_has. */
static const struct scope_part message_parts[] = {{2, NULL},          /* fields */
                                                  {3, message_parts}, /* nested messages */
                                                  {4, NULL},          /* enums */
                                                  {6, NULL},          /* extensions */
                                                  {8, NULL},          /* oneofs */
                                                  {0, NULL}};
static const struct scope_part file_parts[] = {
    {4, message_parts}, {5, NULL}, {6, service_parts}, {7, NULL}, {0, NULL}};

enum { FILE_ENUM = 5, MESSAGE_ENUM = 4, ENUM_VALUE = 2 };

static bool
enum_has(struct wire_cursor declaration, const char *symbol)
{
    struct wire_field field;
    while (next(&declaration, &field))
        if (field.number == ENUM_VALUE &&
            text_is(member(field.data, NAMED_NAME), symbol, strlen(symbol)))
            return true;
    return false;
}

/* Returns whether `symbol`, relative to the scope, is declared in it. */
static bool
scope_has(struct wire_cursor scope, const struct scope_part *parts, const char *symbol)
{
    size_t first_bytes = strcspn(symbol, ".");
    bool last = symbol[first_bytes] == '\0';
    uint32_t enums = parts == file_parts ? FILE_ENUM : parts == message_parts ? MESSAGE_ENUM : 0;
    struct wire_field field;
    while (next(&scope, &field)) {
        const struct scope_part *part = parts;
        while (part->number != field.number && part->number != 0)
            part++;
        if (part->number == 0 || field.type != WIRE_BYTES)
            continue;
        if (last && part->number == enums && enum_has(field.data, symbol))
            return true;
        if (!text_is(member(field.data, NAMED_NAME), symbol, first_bytes))
            continue;
        if (last ||
            (part->inner != NULL && scope_has(field.data, part->inner, symbol + first_bytes + 1)))
            return true;
    }
    return false;
}

const struct reflection_file *
reflection_file_by_symbol(const struct reflection_files *set, const char *symbol)
{
    symbol += symbol[0] == '.'; /* fully qualified names may begin with a dot */
    for (uint32_t i = 0; i < set->count; i++) {
        const struct reflection_file *file = &set->files[i];
        size_t package_bytes = (size_t)file->package.left;
        const char *rest = symbol;
        if (package_bytes > 0) {
            if (strncmp(symbol, text_of(file->package), package_bytes) != 0 ||
                symbol[package_bytes] != '.')
                continue;
            rest = symbol + package_bytes + 1;
        }
        if (scope_has(file->descriptor, file_parts, rest))
            return file;
    }
    return NULL;
}

const struct reflection_file *
reflection_file_by_name(const struct reflection_files *set, const char *name)
{
    return file_named(set, name, strlen(name));
}

/* ---- what goes into answers ---- */

/* A file is added after the files that import it, so each is followed once. */
size_t
reflection_file_closure(const struct reflection_files *set, const struct reflection_file *file,
                        const struct reflection_file *found[REFLECTION_FILES_MAX])
{
    bool seen[REFLECTION_FILES_MAX] = {false};
    size_t count = 0;
    seen[file - set->files] = true;
    found[count++] = file;
    for (size_t i = 0; i < count; i++) {
        struct wire_cursor cursor = found[i]->descriptor;
        struct wire_field field;
        while (next(&cursor, &field)) {
            if (field.number != FILE_DEPENDENCY)
                continue;
            const struct reflection_file *import =
                file_named(set, text_of(field.data), (size_t)field.data.left);
            CHECK(import != NULL); /* the set is built with its imports */
            if (!seen[import - set->files]) {
                seen[import - set->files] = true;
                found[count++] = import;
            }
        }
    }
    return count;
}

const void *
reflection_file_bytes(const struct reflection_file *file, size_t *bytes)
{
    *bytes = (size_t)file->descriptor.left;
    return text_of(file->descriptor);
}

static void
join_name(char name[REFLECTION_NAME_BYTES], struct wire_cursor package, struct wire_cursor last)
{
    size_t package_bytes = (size_t)package.left;
    size_t last_bytes = (size_t)last.left;
    CHECK(package_bytes + 1 + last_bytes < REFLECTION_NAME_BYTES);
    memcpy(name, text_of(package), package_bytes);
    if (package_bytes > 0)
        name[package_bytes++] = '.';
    memcpy(name + package_bytes, text_of(last), last_bytes);
    name[package_bytes + last_bytes] = '\0';
}

size_t
reflection_services(const struct reflection_files *set,
                    char names[REFLECTION_SERVICES_MAX][REFLECTION_NAME_BYTES])
{
    size_t count = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        struct wire_cursor cursor = set->files[i].descriptor;
        struct wire_field field;
        while (next(&cursor, &field)) {
            if (field.number != FILE_SERVICE)
                continue;
            CHECK(count < REFLECTION_SERVICES_MAX);
            join_name(names[count++], set->files[i].package, member(field.data, NAMED_NAME));
        }
    }
    return count;
}
