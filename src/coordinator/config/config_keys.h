/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every key of the configuration, once: config_read.c parses by this table, errors quote it, the
 * manual prints it. A new key is a line in config_keys.c and a field in config.h; config_check.c
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
    KEY_LISTEN,
    KEY_HTTP,
    KEY_METRICS,
    KEY_PROBES,
    KEY_PRESTOP,
    KEY_DASHBOARD,
    KEY_DASHBOARD_TOKEN,
    KEY_DASHBOARD_VIEWERS,
    KEY_DASHBOARD_INFER,
    KEY_RUNTIME,
    KEY_SOCKET_MODE,
    KEY_CPUS,
    KEY_FRONT_THREADS,
    KEY_MESSAGE_MIB,
    KEY_COMPRESSION,
    KEY_CONNECTIONS_MAX,
    KEY_CONNECTIONS_PER_PEER_MAX,
    KEY_STREAMS_PER_CONNECTION_MAX,
    KEY_STREAM_WINDOW_KIB,
    KEY_SEND_TIMEOUT_MS,
    KEY_DRAIN_TIMEOUT_MS,
    KEY_UPGRADE_TIMEOUT_MS,
    KEY_KEEPALIVE_TIME_MS,
    KEY_KEEPALIVE_TIMEOUT_MS,
    KEY_HTTP_CONNECTIONS,
    KEY_HTTP_ADDRESS_CONNECTIONS,
    KEY_METRICS_CONNECTIONS,
    KEY_PROBE_CONNECTIONS,
    KEY_HTTP_IDLE_TIMEOUT_MS,
    KEY_HTTP_HEADER_TIMEOUT_MS,
    KEY_HTTP_BODY_TIMEOUT_MS,
    KEY_HTTP_WRITE_TIMEOUT_MS,
    KEY_HTTP_LARGE_KIB,
    KEY_HTTP_LARGE_WAITING,
    KEY_HTTP_LARGE_WAITING_MIB,
    KEY_HTTP_HOSTS,
    KEY_HTTP_CONTROL,
    KEY_SHARED_MEMORY_REGIONS,
    KEY_REPOSITORY_WAITING,
    KEY_COUNTERS,
    KEY_LOG_LEVEL,
    KEY_LOG_FORMAT,
    KEY_ACCESS_LOG,
    KEY_EVENT_LOG_LINES,
    KEY_WORKER_LOG_KIB_PER_S,
    KEY_CALLER_METADATA,
    KEY_CALLER_PROXIES,
    KEY_SANDBOX,
    KEY_TRACES,
    KEY_TRACE_SAMPLE,
    KEY_MODELS_CACHE_GIB,
    KEY_MODELS_CACHE,
    KEY_STORAGE_CONFIG,
    KEY_PVC_MOUNTS,
    KEY_FILES_ROOT,
    KEY_STORAGE_FETCHES,
    KEY_TLS,
    KEY_MESH,
    KEY_PIPELINES,
    KEY_ADDRESS,
    KEY_ADDRESS_TLS,
    KEY_ADDRESS_PLAIN,
    KEY_TLS_CERTIFICATE,
    KEY_TLS_KEY,
    KEY_TLS_PASSWORD,
    KEY_TLS_CLIENT_CA,
    KEY_TLS_CLIENT_AUTH,
    KEY_MESH_STORE,
    KEY_MESH_RUNTIME,
    KEY_MESH_CALLS,
    KEY_MESH_RUNTIME_TYPES,
    KEY_MESH_PREFIX,
    KEY_MESH_SERVICE,
    KEY_MESH_INSTANCE,
    KEY_MESH_PEERS,
    KEY_MESH_UPGRADE_PEERS,
    KEY_MESH_ADDRESS,
    KEY_MESH_TLS,
    KEY_MESH_MANAGEMENT,
    KEY_MESH_LABELS,
    KEY_MESH_TYPES,
    KEY_MESH_DATAPLANE,
    KEY_MESH_REGISTER,
    KEY_MESH_RPM,
    KEY_MESH_PERCENT,
    KEY_MESH_WAITING,
    KEY_MESH_FAILURE_EXPIRY,
    KEY_MESH_CLEARANCE,
    KEY_MESH_FAIL_FAST,
    KEY_MESH_STORE_WAITING,
    KEY_MESH_NAMES,
    KEY_MESH_OWNER,
    KEY_MESH_LOCATION,
    KEY_MESH_ZONE,
    KEY_MESH_TLS_CERTIFICATE,
    KEY_MESH_TLS_KEY,
    KEY_MESH_TLS_PASSWORD,
    KEY_MESH_TLS_CA,
    KEY_MESH_TLS_NAME,
    KEY_MANAGEMENT_ADDRESSES,
    KEY_MANAGEMENT_MODE,
    KEY_MANAGEMENT_CONNECTIONS_MAX,
    KEY_MANAGEMENT_ALLOW,
    KEY_ALLOW_IDENTITY,
    KEY_ALLOW_METHODS,
    KEY_ALLOW_MODELS,
    KEY_PIPELINE_NAME,
    KEY_METHOD,
    KEY_ID_PATH,
    KEY_SLOTS,
    KEY_ARENA_MIB,
    KEY_DEFAULT_TIMEOUT_MS,
    KEY_QUEUE_LIMIT_MS,
    KEY_QUEUE_WAIT_MS,
    KEY_QUEUE_WAIT_MAX,
    KEY_QUEUE_WAIT_MIB,
    KEY_SPIN_US,
    KEY_LOCAL_CLIENTS,
    KEY_LOCAL_SLOTS,
    KEY_LOCAL_MIB,
    KEY_MODELS,
    KEY_STAGES,
    KEY_MODELS_ROOT,
    KEY_MODELS_ID,
    KEY_MODELS_MEMORY,
    KEY_MODELS_CONCURRENCY,
    KEY_MODELS_TIMEOUT,
    KEY_MODELS_DEFAULT,
    KEY_MODELS_TYPES,
    KEY_MODELS_WATCH,
    KEY_MODELS_PRELOAD,
    KEY_STAGE_NAME,
    KEY_MODELET,
    KEY_WORKERS,
    KEY_STAGE_CPUS,
    KEY_BATCH_SIZE,
    KEY_BATCH_WAIT_MS,
    KEY_BATCH_WAIT,
    KEY_START_TIMEOUT_MS,
    KEY_RUN_TIMEOUT_MS,
    KEY_QUARANTINE_DEATHS,
    KEY_QUARANTINE_MS,
    KEY_HALVINGS_MAX,
    KEY_ATTEMPTS_MAX,
    KEY_SANDBOX_ALLOW,
    KEY_PARAMS,
    KEY_ENV,
    KEY_MODEL,
    KEY_MODEL_ID,
    KEY_MODEL_PATH,
    KEY_MODEL_KEY,
    KEY_COUNT,
};

extern const struct config_key config_keys[KEY_COUNT];

/* For errors: "the top level", "a pipeline", … */
const char *config_where_name(enum config_where where);

/* NULL: no such key there. */
const struct config_key *config_key_find(enum config_where where, const char *name);
/* The key probably meant: a similar name there, or the same name elsewhere; or NULL. */
const struct config_key *config_key_nearest(enum config_where where, const char *name);

/* For errors and the manual: "an integer", "a list of CPU numbers". */
const char *config_type_name(enum config_type type);
/* "1 to 65535", "0 to 60000 ms", "error|warn|info|debug"; "" without a restriction. */
void config_range_text(const struct config_key *key, char *text, size_t room);
