/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proto files that the program was built with, looked at where they are embedded: a
 * FileDescriptorSet, walked as bytes. It is a few kilobytes and asked for by people, so nothing is
 * indexed; reading it takes microseconds. A set that cannot be read is a broken build: CHECK.
 */
#pragma once

#include "rpc/wire.h"

enum { REFLECTION_FILES_MAX = 64, REFLECTION_SERVICES_MAX = 64, REFLECTION_NAME_BYTES = 256 };

struct reflection_file {
    struct wire_cursor descriptor; /* a FileDescriptorProto */
    struct wire_cursor name;
    struct wire_cursor package;
};

/* Not to be moved once it is read: the cursors stand on `span`. */
struct reflection_files {
    struct rpc_span span;
    uint32_t count;
    struct reflection_file files[REFLECTION_FILES_MAX];
};

/* The set keeps pointing into the bytes, a serialized FileDescriptorSet with its imports. */
void reflection_files_read(struct reflection_files *set, const void *data, size_t bytes);

/* NULL: there is none. */
const struct reflection_file *reflection_file_by_name(const struct reflection_files *set,
                                                      const char *name);

/* The file that declares a service, method, message, enum, value, field, oneof or extension, by its
 * full name, "package.Message.Nested". NULL: there is none. */
const struct reflection_file *reflection_file_by_symbol(const struct reflection_files *set,
                                                        const char *symbol);

/* The file and all that it imports, directly or not; returns how many. */
size_t reflection_file_closure(const struct reflection_files *set,
                               const struct reflection_file *file,
                               const struct reflection_file *found[REFLECTION_FILES_MAX]);

/* A file as a serialized FileDescriptorProto. */
const void *reflection_file_bytes(const struct reflection_file *file, size_t *bytes);

/* The full names of all services; returns how many. */
size_t reflection_services(const struct reflection_files *set,
                           char names[REFLECTION_SERVICES_MAX][REFLECTION_NAME_BYTES]);
