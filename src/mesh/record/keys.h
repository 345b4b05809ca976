/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the registry keeps what: "<root>/<mesh>/<service>/<area>/<id>". An id is the rest of its
 * key, byte for byte: nothing is escaped, and one with a slash in it is one id.
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
    RECORD_LATCHES, /* of the leader's election */
    RECORD_AREAS,
};

/* Not ended by a NUL. */
struct record_span {
    const char *data;
    size_t bytes;
};

struct record_span record_text(const char *text);

/* "registry", "vmodels", … */
const char *record_area_name(enum record_area area);

/* The prefix of all keys, its last slash too. `root` may be NULL or "" and is taken as it is, as
 * the incumbent does: with or without a slash before it. INVALID_ARGUMENT: `mesh` or `service` is
 * empty. */
enum status record_prefix(const char *root, const char *mesh, const char *service, struct bytes *to,
                          struct error *error) WARN_UNUSED;

/* The prefix of all keys of an area. */
void record_area_put(struct bytes *to, struct record_span prefix, enum record_area area);
/* The key of a record; of a latch, of the instance whose it is. */
void record_key_put(struct bytes *to, struct record_span prefix, enum record_area area,
                    struct record_span id);

/* False: it is the key of no record. The id is within the key. */
bool record_key_parse(struct record_span prefix, struct record_span key, enum record_area *area,
                      struct record_span *id);
