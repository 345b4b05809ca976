/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proto files that the program was built with: an embedded FileDescriptorSet, walked as bytes.
 * It has a few kilobytes and is rarely asked for, so nothing is indexed. A set that cannot be read
 * is a broken build (CHECK).
 */
#pragma once

#include "wire/wire.h"

enum { REFLECTION_FILES_MAX = 64, REFLECTION_SERVICES_MAX = 64, REFLECTION_NAME_BYTES = 256 };

struct reflection_file {
    struct wire_cursor descriptor; /* a FileDescriptorProto */
    struct wire_cursor name;
    struct wire_cursor package;
};

/* Must not move after it is read: the cursors point to `span`. */
struct reflection_files {
    struct wire_span span;
    uint32_t count;
    struct reflection_file files[REFLECTION_FILES_MAX];
};

/* Reads a serialized FileDescriptorSet with its imports; the set keeps pointing into `data`. */
void reflection_files_read(struct reflection_files *set, const void *data, size_t bytes);

/* NULL: there is none. */
const struct reflection_file *reflection_file_by_name(const struct reflection_files *set,
                                                      const char *name);

/* The file that declares a service, method, message, enum, value, field, oneof or extension, by its
 * full name, "package.Message.Nested". NULL: there is none. */
const struct reflection_file *reflection_file_by_symbol(const struct reflection_files *set,
                                                        const char *symbol);

/* The file and all its imports, direct or indirect; returns their number. */
size_t reflection_file_closure(const struct reflection_files *set,
                               const struct reflection_file *file,
                               const struct reflection_file *found[REFLECTION_FILES_MAX]);

/* A file as a serialized FileDescriptorProto. */
const void *reflection_file_bytes(const struct reflection_file *file, size_t *bytes);

/* The full names of all services; returns their number. */
size_t reflection_services(const struct reflection_files *set,
                           char names[REFLECTION_SERVICES_MAX][REFLECTION_NAME_BYTES]);
