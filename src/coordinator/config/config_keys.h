/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every key of the configuration, once: config_read.c parses by this table, errors quote it, the
 * manual prints it. A new key is a line in config_keys.def and a field in config.h; config_check.c
 * has the rules across keys.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The maps of a file. */
enum config_where {
    WHERE_TOP,
    WHERE_TLS,
    WHERE_ADDRESS,
    WHERE_MESH,
    WHERE_MESH_TLS,
    WHERE_ADAPTER,
    WHERE_MANAGEMENT,
    WHERE_ALLOW,
    WHERE_PIPELINE,
    WHERE_MODELS,
    WHERE_STAGE,
    WHERE_MODEL,
    WHERE_COUNT
};

enum config_type {
    CONFIG_NAME,           /* letters, digits and ._- */
    CONFIG_TEXT,           /* any scalar but an empty one */
    CONFIG_JSON,           /* a file's path, or JSON, which may have several lines */
    CONFIG_CHOICE,         /* one of the words in `choices` */
    CONFIG_CHOICES,        /* list of such words; bit i of the field is the i-th word */
    CONFIG_INTEGER,        /* times `factor` into the field */
    CONFIG_DECIMAL,        /* the same, fractions allowed */
    CONFIG_ADDRESSES,      /* list of addresses that gRPC can listen on */
    CONFIG_HTTP_ADDRESSES, /* the same for HTTP; each a scalar or a map WHERE_ADDRESS, and a single
                              one needs no list */
    CONFIG_ADDRESS,        /* the address within such a map */
    CONFIG_CPUS,           /* list of CPU numbers */
    CONFIG_FIELD_NUMBERS,  /* list of numbers of protobuf fields */
    CONFIG_PARAMS,         /* map of scalars, named by the modelet */
    CONFIG_VARIABLES,      /* map of scalars under names of environment variables */
    CONFIG_MODEL,          /* the map WHERE_MODEL, into the same struct */
    CONFIG_NAMES,          /* list of names */
    CONFIG_MODELS,         /* the map WHERE_MODELS, into the same struct */
    CONFIG_LABELS,         /* list of texts without a comma; sorted and joined by commas */
    CONFIG_MESH,           /* the map WHERE_MESH, into the same struct */
    CONFIG_TLS,            /* the map WHERE_TLS or WHERE_MESH_TLS, into the same struct */
    CONFIG_ADAPTER,        /* the map WHERE_ADAPTER, into the same struct */
    CONFIG_MANAGEMENT,     /* the map WHERE_MANAGEMENT, or its `addresses` alone */
    CONFIG_ALLOW,          /* list of WHERE_ALLOW */
    CONFIG_PATTERNS,       /* list of texts, which may end in a `*` */
    CONFIG_STAGES,         /* list of WHERE_STAGE */
    CONFIG_PIPELINES,      /* list of WHERE_PIPELINE */
};

enum config_need { OPTIONAL, REQUIRED };
/* The type that a number is stored as. */
enum config_field { FIELD_NONE, FIELD_U32, FIELD_U64, FIELD_I64 };

struct config_key {
    enum config_where where;
    enum config_type type;
    enum config_need need;
    const char *name;
    double min, max;      /* of a number, of a text's bytes, of a list's length */
    const char *unit;     /* NULL: none */
    const char *fallback; /* the default as written in a file; a list's only element; or NULL */
    const char *choices;  /* "a|b|c" */
    enum config_field field;
    int64_t factor;
    size_t offset; /* in struct config, config_pipeline or config_stage */
    const char *help;
};

/* Position of each key in the table; config_read reads a map's keys in this order. */
enum config_key_index {
#define KEY(id, ...) KEY_##id,
#define KEY_MAP(id, ...) KEY_##id,
#include "coordinator/config/config_keys.def"
#undef KEY
#undef KEY_MAP
    KEY_COUNT
};

extern const struct config_key config_keys[KEY_COUNT];

/* Returns a name for errors: "the top level", "a pipeline", … */
const char *config_where_name(enum config_where where);

/* NULL: no such key there. */
const struct config_key *config_key_find(enum config_where where, const char *name);
/* The key probably meant: a similar name there, or the same name elsewhere; or NULL. */
const struct config_key *config_key_nearest(enum config_where where, const char *name);

/* Returns a name for errors and the manual: "an integer", "a list of CPU numbers". */
const char *config_type_name(enum config_type type);
/* "1 to 65535", "0 to 60000 ms", "error|warn|info|debug"; "" without a restriction. */
void config_range_text(const struct config_key *key, char *text, size_t room);
