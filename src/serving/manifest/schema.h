/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of each kind, as data. */
#pragma once

#include "serving/manifest/manifest.h"

enum field_type {
    FIELD_TEXT,    /* `detail`: the words that it may have, "a|b"; NULL: any */
    FIELD_BOOL,    /* true or false */
    FIELD_NUMBER,  /* an integer from `least` */
    FIELD_AMOUNT,  /* of a resource: "200Mi", "5", "500m" */
    FIELD_POINT,   /* an endpoint: "port:N" or "unix:/PATH" */
    FIELD_BASE64,  /* bytes in base64 */
    FIELD_MAP,     /* names and values; `fields` is one field, the values' type */
    FIELD_TEXTS,   /* a list of texts */
    FIELD_OBJECT,  /* of `fields` */
    FIELD_OBJECTS, /* a list of them */
    FIELD_DROPPED, /* what a server adds: accepted and left out */
    FIELD_REFUSED, /* `detail`: why, and what to do */
};

enum field_need { FIELD_OPTIONAL, FIELD_REQUIRED };

struct schema_field {
    const char *name; /* NULL: the end */
    enum field_type type;
    enum field_need need;
    const char *detail;
    const struct schema_field *fields;
    int64_t least;
};

struct schema {
    const char *name;
    const char *resource;
    const char *words[4]; /* that kubectl takes besides, lower case */
    const char *api;      /* apiVersion; several that are alike: "a|b" */
    const struct schema_field *fields;
};

/* The schemas of all kinds, and of their common metadata. */
extern const struct schema_field manifest_metadata[];
extern const struct schema manifest_schemas[MANIFEST_KINDS];
/* The fields of the gateway's kinds. */
extern const struct schema_field manifest_pool_fields[];
extern const struct schema_field manifest_objective_fields[];
extern const struct schema_field manifest_rewrite_fields[];
extern const struct schema_field manifest_model_fields[];
extern const struct schema_field manifest_llm_route_fields[];
extern const struct schema_field manifest_http_route_fields[];
/* The schema of ModelMesh Serving's configuration, a text in a ConfigMap. */
extern const struct schema manifest_config_schema;
