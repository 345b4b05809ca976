/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration file, parsed and checked as a whole. config_keys.def names every key
 * with type, range, default, unit and meaning; the parser, the errors and the manual
 * (`shoald --help-config`) are made from it. The result is plain data that lives until config_free.
 *
 * The environment may give what the file leaves out of `mesh` (config_environment.c).
 *
 * How a file becomes a `struct config`: yaml/tree.c makes a tree of libyaml's events and refuses
 * aliases, tags and anything too deep or too large; config_read.c fills the structs by the table;
 * config_check.c applies the rules that the table cannot state. Each reports every mistake that it
 * finds, with its line, and goes on.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "ipc/handshake.h"
#include "shm/layout.h"

enum {
    CONFIG_CPUS_MAX = STAGE_WORKERS_MAX,
    CONFIG_PIPELINES_MAX = 64,
    CONFIG_LISTEN_MAX = 16,
    CONFIG_PARAMS_MAX = HANDSHAKE_PARAMS_MAX,
    CONFIG_VARIABLES_MAX = 64,
    CONFIG_TYPES_MAX = 64,
    CONFIG_LABELS_MAX = 64,
    CONFIG_ALLOW_MAX = 64,
    CONFIG_PATTERNS_MAX = 64,
    CONFIG_LABEL_BYTES_MAX = 255,
    CONFIG_INSTANCE_BYTES = 12, /* the end of a host's name, which differs between pods */
    CONFIG_NAME_BYTES_MAX = 63,
    CONFIG_METHOD_BYTES_MAX = 255,
    CONFIG_ID_PATH_MAX = 16,
    CONFIG_FILE_BYTES_MAX = 1 << 20,
};

struct config_param {
    char *name;
    char *value; /* the scalar as written */
};

struct config_stage {
    char *name;
    char *modelet;     /* the path of the file, found */
    char *interpreter; /* the path of the plug-in that runs `modelet`, a script; NULL: it is none */
    int *cpus;         /* one worker per element; NULL: not pinned */
    uint32_t worker_count;
    uint32_t batch_size;   /* 0: singletons */
    int64_t batch_wait_ns; /* 0: take the requests that are there */
    char *batch_wait;      /* "adaptive": batch_wait_ns is the maximum; or "fixed" */
    int64_t start_timeout_ns;
    int64_t run_timeout_ns; /* 0: none */
    uint32_t halvings_max;
    char *collect; /* "refuse", "concat" or "last": of pieces for callers that take none */
    uint32_t quarantine_deaths; /* in a row; 0: never */
    int64_t quarantine_ns;
    uint32_t attempts_max;  /* one more than the worker deaths that a request survives */
    uint32_t sandbox_allow; /* enum sandbox_allow */
    char *model_id;         /* of the model to load through `load`; NULL: none */
    char *model_path;       /* NULL: not given */
    char *model_key;        /* NULL: not given */
    struct config_param *params;
    uint32_t param_count;
    char **variables; /* of its workers' environment, "NAME=value", NULL-terminated */
    int line;
};

/* Models that come and go while the pipeline serves (models/DESIGN.md). */
struct config_models {
    char *root;            /* absolute, a directory; NULL: the pipeline has no `models` */
    char *id;              /* of the one model that the root is; NULL: it has models in it */
    uint64_t memory_bytes; /* limit of all loaded models together */
    uint32_t load_concurrency;
    int64_t load_timeout_ns;
    uint64_t default_bytes; /* assumed size of a model of which nothing is known yet */
    int default_line;       /* 0: not given; lowered where memory is short */
    char **types;           /* the values of a key's `model_type.name` taken; NULL: not given */
    uint32_t type_count;
    char *watch;    /* "yes" or "no": whether the root's sub-directories are models */
    int watch_line; /* 0: not given */
    char *preload;  /* "yes" or "no": whether listed models are loaded in advance */
};

struct config_pipeline {
    char *name;
    char *method;      /* "/package.Service/Method"; NULL: called by name through ModelInfer */
    uint32_t *id_path; /* of the id in that method's requests: field numbers, outermost first */
    uint32_t id_path_count; /* 0: none */
    uint32_t slot_count;
    uint64_t arena_bytes;       /* 0: chosen from slots and message size */
    int64_t default_timeout_ns; /* of a request without a deadline; 0: none */
    int64_t queue_limit_ns;     /* a longer forecast is refused; 0: no limit */
    int64_t queue_wait_ns;      /* the longest wait of a call for a slot; 0: none */
    uint32_t queue_wait_max;    /* calls that may wait */
    uint64_t queue_wait_bytes;  /* the memory of all that wait */
    uint64_t stream_bytes;      /* unread pieces of an answer; 0: no pieces */
    int64_t spin_ns;            /* the longest look for work before sleeping */
    uint32_t local_clients;     /* the maximum; 0: none */
    uint32_t local_slots;       /* per client */
    uint64_t local_bytes;       /* of each client's arena */
    struct config_models models;
    struct config_stage *stages;
    uint32_t stage_count;
    int line;
};

/* The options of an address that is given as a map. */
struct config_transport {
    char *tls;   /* "yes" or "no"; NULL: not given, which is no */
    char *plain; /* the same: TLS is left out on purpose */
    int line;
};

struct config_addresses {
    char *items[CONFIG_LISTEN_MAX];
    struct config_transport transports[CONFIG_LISTEN_MAX];
    uint32_t count;
};

bool config_has_tls(const struct config_addresses *addresses, uint32_t index);

/* Returns whether the pipeline's callers may get answers in pieces. `collect` of the last stage
 * says that its method is unary; of the Open Inference Protocol it is for other callers. */
bool config_gives_pieces(const struct config_pipeline *pipeline);

/* Limits of HTTP. */
struct config_http {
    uint32_t connections_max; /* this and the next two: per service */
    uint32_t metrics_connections_max;
    uint32_t probe_connections_max;
    uint32_t address_connections_max; /* 0: none */
    int64_t idle_timeout_ns;
    int64_t header_timeout_ns;
    int64_t body_timeout_ns;
    int64_t write_timeout_ns;
    uint64_t large_bytes; /* a larger body of REST is read by a thread of its own */
    uint32_t large_waiting_max;
    uint64_t large_waiting_bytes_max;
};

/* Files of PEM, absolute. */
struct config_tls {
    char *certificate; /* NULL: no TLS; never without the key */
    char *key;
    char *key_password_file; /* its first line opens the key; NULL: no such file */
    char *ca;           /* signs the certificates of the other side; NULL: none are asked for */
    char *client_auth;  /* of callers: "none", "optional", "required"; NULL: decided by `ca` */
    char *peer_name;    /* in the certificates of all nodes; NULL: each has its host's name */
    char *key_password; /* from the environment, never in any output; NULL: none */
    int line;
};

/* Returns whether a list of labels, with commas between, has that one; NULL has none. */
bool config_labels_have(const char *labels, const void *label, size_t bytes);

/* Returns whether callers are asked for certificates, which may be optional (`client_auth:
 * optional`). */
bool config_asks_for_certificates(const struct config_tls *tls);

/* The rights of the caller whose certificate has this identity. */
struct config_allow {
    char *identity;
    uint32_t methods;     /* bit i: the i-th word of the key's choices; 0: all methods */
    char **models;        /* ids; a `*` at the end matches any continuation */
    uint32_t model_count; /* 0: all models */
};

/* The addresses where mmesh.ModelMesh is served in addition to its unix socket
 * (mesh_management.h). */
struct config_management {
    struct config_addresses addresses;
    bool on_listen; /* on all addresses of `listen` as well; set by the environment */
    char *socket_mode;
    uint32_t socket_mode_bits; /* of unix sockets */
    uint32_t connections_max;  /* of each address */
    struct config_allow *allow;
    uint32_t allow_count; /* 0: every caller may do everything */
};

/* The kinds of store for a mesh's records. */
enum config_store {
    CONFIG_STORE_MEMORY,
    CONFIG_STORE_FILE,
    CONFIG_STORE_ENDPOINTS, /* of etcd */
    CONFIG_STORE_ETCD_FILE, /* JSON with etcd's endpoints and credentials (KV_STORE) */
};

/* A model server at `runtime` that the node manages (serving/adapter/DESIGN.md). */
struct config_adapter {
    char *server_type; /* NULL: none */
    char *repository;  /* absolute */
    uint64_t memory_bytes;
    uint64_t buffer_bytes;
    uint64_t default_bytes;
    uint32_t load_timeout_ms;
    uint32_t loaders;
    uint32_t size_percent;
};

/* The node as a member of a mesh (mesh/DESIGN.md). */
struct config_mesh {
    bool on;     /* the file has `mesh`, or the environment asks for it (config_environment.c) */
    char *store; /* as written */
    enum config_store store_kind;
    char *store_place;   /* absolute path of a file; endpoints; NULL: memory */
    char *runtime;       /* "unix:/path" or "host:port"; NULL: only pipelines load models */
    char *runtime_else;  /* the second place to look if `runtime` is a guess; else NULL */
    char *runtime_calls; /* where it serves calls for models; NULL: at the same address */
    char *runtime_types; /* sorted, comma-separated; NULL: all that no pipeline has */
    struct config_adapter adapter; /* for `runtime` */
    char **images;      /* "NAME=COMMAND", NULL-terminated; NULL: ServingRuntimes are not run */
    char *run_commands; /* "on" or "off" */
    char *node_labels;  /* this and the next: sorted, comma-separated; NULL: none */
    char *node_taints;
    int64_t stop_timeout_ns;
    int64_t restart_ns_max;
    int64_t wake_timeout_ns; /* 0: none */
    char *prefix;            /* of the keys, before the service's name */
    char *service;
    char *instance; /* this node's id */
    char *labels;   /* sorted, comma-separated; "" for none */
    char *location;
    char *zone;
    char *type_constraints;                /* absolute path, or JSON; NULL: none */
    char *dataplane;                       /* likewise */
    char *registered;                      /* models registered at the start: likewise */
    struct config_addresses peers;         /* where other nodes reach this one */
    struct config_addresses upgrade_peers; /* while a predecessor has those; none: any port */
    char *address;                         /* HOST or HOST:PORT published to them; NULL: detected */
    struct config_tls tls;                 /* between them */
    struct config_management management;
    uint32_t scaleup_rpm;
    uint32_t scaleup_percent;
    uint32_t waiting_max; /* 0: derived from the model's concurrency */
    int64_t failure_expiry_ns;
    int64_t clearance_ns; /* 0: the first loads are not judged */
    char *fail_fast;      /* "yes" or "no" */
    uint32_t store_waiting_max;
    char *names;        /* "models" or "vmodels": what requests name without metadata */
    char *vmodel_owner; /* for calls that name none; NULL: none */
    /* MM_METRICS sets it. With fq_names, labels `method` start with the service; the other two have
     * no effect and are reported. */
    bool metrics_fq_names;
    bool metrics_tls;
    bool metrics_per_model;
    int line;
};

/* The web page for operators (dashboard/DESIGN.md). */
struct config_dashboard {
    struct config_addresses addresses; /* may be empty */
    char *token_file;                  /* absolute; NULL: no token is asked for */
    uint32_t viewers_max;
    char *infer; /* "on" or "off"; NULL: off */
};

/* Models that are fetched (serving/storage/DESIGN.md). Paths are absolute. */
struct config_storage {
    uint64_t cache_bytes; /* 0: none are */
    char *cache;          /* NULL: the default */
    char *entries;        /* this and the next ones: NULL: not given */
    char *pvc_mounts;
    char *files;
    char *metadata;
    uint32_t fetches_max;
    uint64_t bytes_per_s; /* of all fetches together; 0: no limit */
};

struct config {
    char *path;
    char *directory;                 /* the file's, absolute; relative paths start here */
    struct config_addresses listen;  /* relative unix paths are made absolute */
    struct config_addresses metrics; /* may be empty, as the next ones */
    struct config_addresses http;    /* of REST */
    struct config_addresses probes;  /* this and the next: front/probes.h */
    struct config_addresses prestop;
    struct config_dashboard dashboard;
    char *socket_mode; /* of the unix sockets of `listen` and `runtime`; NULL: by umask */
    uint32_t socket_mode_bits;
    struct config_http http_limits;
    char *http_control; /* "on" or "off"; NULL: off */
    uint32_t shared_memory_regions;
    uint32_t repository_waiting_max; /* calls for lists, loads and unloads */
    char *http_hosts;                /* names of this node in HTTP, comma-separated; NULL: none */
    struct config_addresses runtime; /* of mmesh.ModelRuntime; may be empty */
    struct config_mesh mesh;
    int *cpus; /* of the coordinator; NULL: not pinned */
    uint32_t cpu_count;
    uint32_t front_threads;
    uint64_t message_bytes_max;
    char *compression;                 /* "on" or "off"; NULL: on */
    uint32_t connections_max;          /* per address */
    uint32_t connections_per_peer_max; /* per address and machine; 0: half of the above */
    uint32_t streams_per_connection_max;
    uint64_t stream_window_bytes; /* 0: the library's own flow control */
    int64_t send_timeout_ns;
    int64_t drain_timeout_ns;   /* grace between SIGTERM and the end of the workers */
    int64_t upgrade_timeout_ns; /* until a successor is ready */
    int64_t keepalive_time_ns;
    int64_t keepalive_timeout_ns;
    char *counters; /* path of the counters' file; NULL: the default */
    char *log_level;
    char *log_format;                /* "logfmt" or "json" */
    uint32_t access_log;             /* one in so many calls; 0: none */
    uint32_t event_log_lines;        /* per event in LOG_SITE_S seconds; 0: no limit */
    uint64_t worker_log_bytes_per_s; /* per worker; 0: no limit */
    char *server_name;               /* NULL: the default */
    char *caller_metadata;           /* the key; NULL: the default */
    char *caller_proxies;            /* names in certificates, comma-separated; NULL: none */
    char *sandbox;                   /* "best_effort" or "required" */
    char *manifests;                 /* folder, absolute; NULL: none */
    char *traces;                    /* "file:/absolute", or an http or https URL; NULL: none */
    uint64_t trace_sample;           /* of 2^32 calls without a traceparent */
    struct config_storage storage;
    struct config_tls tls; /* of `listen` */
    struct config_pipeline *pipelines;
    uint32_t pipeline_count;
};

/* All mistakes of a file, by line, each "FILE:LINE: the mistake and the remedy". */
struct config_errors {
    char **lines;
    uint32_t count;
};

enum config_pinning {
    CONFIG_PIN,    /* every CPU named must exist */
    CONFIG_NO_PIN, /* `shoald --no-pin`: the same workers, unpinned; cpus is NULL */
};

enum config_modelets {
    CONFIG_MODELETS_FIND,   /* each must exist */
    CONFIG_MODELETS_UNSEEN, /* only the form is checked; a bare file name stays as written */
};

/* Zero is the behaviour of `shoald`. */
struct config_options {
    enum config_pinning pinning;
    enum config_modelets modelets;
};

/*
 * Reads and checks a file: syntax, unknown and duplicate keys, types, ranges, names, the existence
 * of modelets and CPUs, and rules across keys (two pipelines of one name, a batch larger than the
 * slots, …). A bare name of a modelet is searched for in the file's folder, the folders of
 * SHOAL_MODELET_PATH, and lib/shoal beside the folder of the running program. `options` may be
 * NULL. INVALID_ARGUMENT: every mistake is in `errors`; if that is empty, `error` says why the file
 * cannot be read.
 * Both `config` and `errors` may be freed after any result.
 */
enum status config_load(const char *path, const struct config_options *options,
                        struct config *config, struct config_errors *errors,
                        struct error *error) WARN_UNUSED;
/* The text that config_parse() reads like config_load() reads a file. */
struct config_text {
    const char *path; /* names it, and relative paths start at its folder */
    const char *text;
    size_t bytes;
};
enum status config_parse(const struct config_text *text, const struct config_options *options,
                         struct config *config, struct config_errors *errors,
                         struct error *error) WARN_UNUSED;
void config_free(struct config *config);

/* The folder of `models_cache`, or its default. False: there is no home. */
bool config_cache_folder(const struct config_storage *storage, char path[PATH_MAX]);

/* Returns whether callers have the rights of `http_control`. */
bool config_has_control(const struct config *config);

/* The name that callers get with the server's metadata. */
const char *config_server_name(const struct config *config);

/* Finds a bare name of a modelet as config_load does; `directory` stands for the file's folder.
 * NULL: it is in none of the folders `*tried`. Both are to be freed. */
char *config_modelet_path(const char *directory, const char *name, char **tried);

void config_errors_free(struct config_errors *errors);

/* Returns whether the value of a key that takes a file or JSON is JSON: an object or a list. */
bool config_is_json(const char *value);

/* Iterates, from `position` 0, over the variables of KServe ModelMesh's container that are set and
 * have no effect here; `instead` says what replaces each. False: there are no more. */
bool config_passed_over(const struct config *config, size_t *position, const char **name,
                        const char **instead);

/* The manual: every key with type, range, default, unit and meaning, as text, as Markdown or as
 * the page shoald.yaml(5). */
enum config_manual_form { CONFIG_MANUAL_TEXT, CONFIG_MANUAL_MARKDOWN, CONFIG_MANUAL_MAN };
void config_print_manual(FILE *out, enum config_manual_form form);
