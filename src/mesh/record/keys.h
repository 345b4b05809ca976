/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry's keys: "<root>/<mesh>/<service>/<area>/<id>". An id is the rest of its key, byte
 * for byte: nothing is escaped, and an id may contain slashes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/bytes.h"
#include "base/error.h"

enum record_area {
    RECORD_MODELS,
    RECORD_VMODELS,
    RECORD_INSTANCES,
    RECORD_CONFIG,
    RECORD_MANIFESTS,  /* of serving */
    RECORD_CANDIDATES, /* of the leader's election */
    RECORD_AREAS,
};

/* A text that is not NUL-terminated. */
struct record_span {
    const char *data;
    size_t bytes;
};

struct record_span record_text(const char *text);

/* The prefix of all keys, including its last slash. `root` may be NULL or "" and is used as it is,
 * as ModelMesh does, with or without a leading slash. INVALID_ARGUMENT: `mesh` or `service` is
 * empty. */
enum status record_prefix(const char *root, const char *mesh, const char *service, struct bytes *to,
                          struct error *error) WARN_UNUSED;

/* The prefix of all keys of an area. */
void record_area_put(struct bytes *to, struct record_span prefix, enum record_area area);
/* The key of a record, or of an instance's candidate. */
void record_key_put(struct bytes *to, struct record_span prefix, enum record_area area,
                    struct record_span id);

/* False: not the key of a record. The id points into the key. */
bool record_key_parse(struct record_span prefix, struct record_span key, enum record_area *area,
                      struct record_span *id);
