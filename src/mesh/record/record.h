/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry's records, as ModelMesh writes them in JSON and as the core uses them. Bytes to
 * structs and back; nothing else.
 *
 * Units: sizes stay in the registry's units of 8 KiB, times in milliseconds since the epoch, as in
 * mesh_core.h.
 *
 * Memory: a read record is one block with its texts and arrays; release it with free(). Running out
 * of memory ends the process.
 *
 * Errors: INVALID_ARGUMENT with the record, the field and the fault. Values come from anyone and
 * are judged here for their shape; the core judges whether a stamp or a size makes sense.
 *
 * Unknown fields survive: reading returns them as `unknown_fields`, a JSON object without blanks,
 * "" if there are none; writing takes them or the whole former value, with the same effect.
 *
 * Threads: any; there is no shared state.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "mesh/core/mesh_core.h"

enum {
    RECORD_BYTES_MAX = 1 << 20, /* of a value */
    RECORD_DEPTH_MAX = 64,      /* of objects and arrays in unknown fields */
    RECORD_UNIT_BYTES = 8192,
    RECORD_REASON_BYTES_MAX = 4096, /* of a failure's text, when it is written */
    RECORD_TYPES_MAX = 4096,        /* of type constraints */
    RECORD_LABELS_MAX = 64,         /* of an instance, one constraint's list, or types of a pool */
    RECORD_LABEL_BYTES_MAX = 255,
};

/* A value of the registry. */
struct record_source {
    const char *id;
    const void *value;
    size_t bytes;
    uint64_t create_revision;
    uint64_t revision;
};

/* ---- models ---- */

struct record_model {
    struct mesh_model model;
    const char *unknown_fields;
};

/* A place is loaded if the `loaded` map has the same stamp as `instanceIds`: a node that does not
 * know `loaded` and loads again is loading. */
enum status record_model_read(const struct record_source *source, struct record_model **record,
                              struct error *error) WARN_UNUSED;

/* Appends. `former`: the former value or unknown fields; NULL: none. Reasons may be any text; other
 * texts that are not UTF-8 are refused, and what was appended by then is useless. */
enum status record_model_write(const struct mesh_model *model, const void *former,
                               size_t former_bytes, struct bytes *to,
                               struct error *error) WARN_UNUSED;

/* ---- vmodels ---- */

struct record_vmodel {
    struct mesh_vmodel vmodel;
    const char *unknown_fields;
};

enum status record_vmodel_read(const struct record_source *source, struct record_vmodel **record,
                               struct error *error) WARN_UNUSED;
enum status record_vmodel_write(const struct mesh_vmodel *vmodel, const void *former,
                                size_t former_bytes, struct bytes *to,
                                struct error *error) WARN_UNUSED;

/* ---- instances ---- */

struct record_instance {
    struct mesh_instance instance;
    const char *location; /* for people */
    const char *zone;
    const char *address; /* the peers' address, "host:port"; "": not a node of ours */
    uint32_t loaders;
    const char *unknown_fields;
};

/* `full_units`: an instance that does not say whether it is full (P3) is full with less free than
 * this. */
enum status record_instance_read(const struct record_source *source, uint64_t full_units,
                                 struct record_instance **record, struct error *error) WARN_UNUSED;
enum status record_instance_write(const struct record_instance *instance, const void *former,
                                  size_t former_bytes, struct bytes *to,
                                  struct error *error) WARN_UNUSED;

static inline uint64_t
record_units(uint64_t bytes)
{
    return bytes / RECORD_UNIT_BYTES + (bytes % RECORD_UNIT_BYTES != 0);
}

/* ---- type constraints ---- */

struct record_types {
    const struct mesh_type_rule *rules;
    uint32_t rule_count;
};

/* A JSON object: {type: {"required": [labels], "preferred": [labels]}}. Labels are sorted and
 * unique; required ones are not preferred as well. Other members are ignored. */
enum status record_types_read(const void *value, size_t bytes, struct record_types **types,
                              struct error *error) WARN_UNUSED;

/* ---- dynamic configuration ---- */

enum record_setting_kind {
    RECORD_LOG_LEVEL,
    RECORD_LOG_CALLS,        /* a line for each */
    RECORD_TELL_DESTINATION, /* report to the caller which instance answered */
    RECORD_RATE_FOR_MORE,    /* S3, calls a minute */
    RECORD_DISABLED,         /* no new instance starts */
    RECORD_SETTING_NONE,
};

struct record_setting {
    enum record_setting_kind kind;
    bool on;                  /* LOG_CALLS, TELL_DESTINATION, DISABLED */
    uint32_t number;          /* RATE_FOR_MORE */
    enum log_level log_level; /* LOG_LEVEL */
};

/* Finds a kind by the name under config/. SETTING_NONE: unknown. */
enum record_setting_kind record_setting_kind(const char *name);

/* Parses plain text. INVALID_ARGUMENT: not a value of the kind; the former setting stays. */
enum status record_setting_read(enum record_setting_kind kind, const void *value, size_t bytes,
                                struct record_setting *setting, struct error *error) WARN_UNUSED;
