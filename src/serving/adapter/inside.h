/* SPDX-License-Identifier: Apache-2.0 */
/* State shared by the parts of an adapter: adapter.c has the requests and their threads, steps.c
 * their course, server.c the servers' APIs, layout*.c their folders, tasks.c what all need. */
#pragma once

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/bytes.h"
#include "serving/adapter/adapter.h"

/* The requests of mmesh.ModelRuntime, and a turn to another server. */
enum task_kind { TASK_STATUS, TASK_SIZE, TASK_LOAD, TASK_UNLOAD, TASK_TURN };

enum task_step {
    STEP_WAITS,
    STEP_PROBE,   /* status: whether the server is up */
    STEP_INDEX,   /* status: which models it has */
    STEP_EMPTY,   /* status: unloads them */
    STEP_CLEAR,   /* files, status and turn: clears the repository */
    STEP_MEASURE, /* files, size */
    STEP_LAY,     /* files, load */
    STEP_LOAD,    /* load: the server loads it */
    STEP_UNLOAD,  /* unload, failed load: the server unloads it */
    STEP_REMOVE,  /* files, unload and failed load */
};

/* The calls that a server gets. */
enum server_call { SERVER_PROBE, SERVER_INDEX, SERVER_LOAD, SERVER_UNLOAD };

struct model_names {
    char **at;
    uint32_t count;
};

void model_names_add(struct model_names *names, const char *name);
/* The first of that name. */
void model_names_remove(struct model_names *names, const char *name);
void model_names_fini(struct model_names *names);

/* A model as the mesh names it. */
struct adapter_model {
    char *id, *type, *path, *key; /* "" if not given */
    char name[EXTERNAL_NAME_BYTES];
};

struct adapter_task {
    struct adapter_task *next;
    struct adapter_task *next_file; /* in a list of those with work for the thread, or done by it */
    struct adapter *adapter;
    struct external *external;
    const struct rpc_client_events *events;
    void *context;
    int64_t deadline_ns;
    enum task_kind kind;
    enum task_step step;
    bool is_stale; /* a later status or turn has come: nothing is sent any more */
    struct adapter_model model;
    uint64_t size_bytes;
    struct error error;       /* how it ends */
    struct model_names names; /* status: still to be unloaded */
    bool has_server;          /* turn: to that one; else to none */
    struct adapter_server server;
};

struct adapter {
    struct rpc_queue *home;
    char repository[PATH_MAX];
    char roots[2][PATH_MAX]; /* "": none */
    struct rpc_post wake;

    /* Owned by home; constant while a task is under way, as a turn waits for all. */
    bool has_server;
    struct adapter_server server;

    /* Owned by home. */
    struct adapter_task *tasks; /* that wait or are under way, in order */
    struct model_names loaded;  /* which each reload of TensorFlow Serving names */

    pthread_mutex_t lock; /* of the fields below */
    pthread_cond_t more;
    struct adapter_task *fresh; /* not seen by home yet */
    struct adapter_task *files; /* for the thread */
    struct adapter_task *filed; /* for home */
    bool is_stopping;
    pthread_t thread;
};

/* ---- tasks.c ---- */

void tasks_append(struct adapter_task **list, struct adapter_task *task);
void files_append(struct adapter_task **list, struct adapter_task *task);
/* NULL: the list is empty. */
struct adapter_task *files_take(struct adapter_task **list);
/* Any thread: home does what is due. */
void adapter_wake(struct adapter *adapter);
/* Home: has the thread do the step's work with files. */
void adapter_files(struct adapter_task *task, enum task_step step);
/* Home: answers the request and frees the task; `answer` NULL: an empty message. */
void task_end(struct adapter_task *task, const struct bytes *answer);
/* Parts of task_end, for a task that is in no list any more. */
void task_notify_end(const struct adapter_task *task, const struct bytes *answer);
void task_free(struct adapter_task *task);

/* ---- steps.c ---- */

/* Home: the task's turn has come. */
void task_begin(struct adapter_task *task);
/* The thread: does the step's work. */
void task_do_files(struct adapter_task *task);
/* Home: that work is done. */
void task_on_files(struct adapter_task *task);

/* ---- server.c ---- */

/* Writes a request; returns its method. */
const char *server_request(struct adapter_task *task, enum server_call call, const char *name,
                           struct bytes *out);
/* The meaning of an answer, with the server's text. */
enum status server_judge(const struct adapter *adapter, enum server_call call,
                         const struct rpc_client_end *end, struct error *error) WARN_UNUSED;
/* Returns whether it reports which models it has; if not, its probe makes it empty. */
bool server_has_index(const struct adapter *adapter);
/* False: malformed. */
bool server_read_index(const struct wire_message *message, struct model_names *names) WARN_UNUSED;
/* Returns whether one load or unload must wait for all earlier ones. */
bool server_is_serial(const struct adapter *adapter);
/* An answer to runtimeStatus. */
void server_write_status(const struct adapter *adapter, struct bytes *out);

/* ---- layout.c: the thread ---- */

/* The folder's name for a model: its id, or a digest of one that is no safe name of a file. */
const char *layout_name(const char *id, char name[EXTERNAL_NAME_BYTES]);
/* Deletes what earlier loads left in the repository. */
enum status layout_clear(const struct adapter *adapter, struct error *error) WARN_UNUSED;
/* Lays a model out; `*bytes` is the size of its files. */
enum status layout_make(const struct adapter *adapter, const struct adapter_model *model,
                        uint64_t *bytes, struct error *error) WARN_UNUSED;
void layout_remove(const struct adapter *adapter, const struct adapter_model *model);
/* The size of the model's files; 0: unknown. */
uint64_t layout_measure(const struct adapter *adapter, const struct adapter_model *model);

/* ---- layout_files.c ---- */

enum { LAYOUT_FOLDER_MODE = 0755 };

/* A model that is being laid out. */
struct layout {
    const struct adapter_model *model;
    char folder[PATH_MAX]; /* being filled */
    char source[PATH_MAX]; /* without links */
    bool is_folder;
    char format[64];       /* the model's type: "sklearn" */
    char schema[PATH_MAX]; /* "": none */
};

/* Names in the source folder, without those that begin with a point; sorted. */
enum status layout_list(const char *folder, struct model_names *names,
                        struct error *error) WARN_UNUSED;
/* "folder/name". */
enum status layout_join(char path[PATH_MAX], const char *folder, const char *name,
                        struct error *error) WARN_UNUSED;
/* Links `source` as `name` (may contain one "/") in the layout's folder. */
enum status layout_link(const struct layout *layout, const char *source, const char *name,
                        struct error *error) WARN_UNUSED;
/* Links all of the source folder but `except`. */
enum status layout_link_all(const struct layout *layout, const char *except,
                            struct error *error) WARN_UNUSED;
/* The largest of folders that are all numbers; "": there are none. */
enum status layout_version(const char *folder, const struct model_names *names,
                           char version[NAME_MAX + 1], struct error *error) WARN_UNUSED;
bool layout_is_folder(const char *path);
bool layout_exists(const char *folder, const char *name);

/* ---- layout_*.c ---- */

enum status layout_triton(const struct layout *layout, struct error *error) WARN_UNUSED;
enum status layout_mlserver(const struct layout *layout, struct error *error) WARN_UNUSED;
enum status layout_tfserving(const struct layout *layout, struct error *error) WARN_UNUSED;

/* ---- pbtxt.c ---- */

/* A copy of a message in protobuf's text format without its field `name`; NULL: it is malformed. */
char *pbtxt_without_name(const char *text);
