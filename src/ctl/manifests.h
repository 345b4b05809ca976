/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands on manifests, in the words of kubectl: apply, diff, get, describe, delete, wait. This
 * file has their options, files and calls to a node.
 */
#pragma once

#include "ctl/mesh_call.h"
#include "serving/manifest/manifest.h"
#include "shoal/manifests.pb-c.h"

enum { MANIFESTS_FILES_MAX = 64, MANIFESTS_WORDS_MAX = 2 };

struct manifests_settings {
    const struct ctl_command *command;
    struct mesh_call_settings call;
    const char *files[MANIFESTS_FILES_MAX];
    size_t file_count;
    const char *words[MANIFESTS_WORDS_MAX]; /* a kind and a name; "KIND/NAME" is split */
    size_t word_count;
    char kind_word[64]; /* the memory of a split kind */
    bool dry_run;
    bool as_json;
    const char *wait_for;
    int64_t deadline_ns;
};

/* Rows of their tables of options. */
enum status manifests_take_file(void *settings, const char *value, struct error *error);
enum status manifests_take_output(void *settings, const char *value, struct error *error);
#define MANIFESTS_FILE                                                                             \
    {                                                                                              \
        "filename", "FILE", "YAML or JSON; - is stdin. May be repeated",                           \
            .take = manifests_take_file                                                            \
    }
#define MANIFESTS_OUTPUT                                                                           \
    {                                                                                              \
        "output", "FORM", "json: the whole objects, a line each", .take = manifests_take_output    \
    }
#define MANIFESTS_CALL MESH_CALL_OPTIONS(offsetof(struct manifests_settings, call))

/* Reads the command's options and words. -1: continue; otherwise the program's exit code. */
int manifests_settings_read(struct manifests_settings *settings, int argc, char **argv);
/* Calls a node: runs `act`, whose error is printed. Returns the exit code. */
int manifests_call(struct manifests_settings *settings,
                   enum ctl_exit (*act)(struct manifests_settings *settings, struct client *client,
                                        struct error *error));

/* ---- files ---- */

/* Reads all files; prints their mistakes. Returns the exit code, CTL_OK if there are none. The list
 * is freed with manifests_files_free. */
int manifests_files_read(const struct manifests_settings *settings, struct manifest_file **files);
void manifests_files_free(const struct manifests_settings *settings, struct manifest_file *files);

/* ---- the node ---- */

struct manifests_list {
    Shoal__Manifests__ListResponse *pages[1024];
    size_t page_count;
};

typedef Shoal__Manifests__Object manifests_object;

enum status manifests_list_read(struct manifests_settings *settings, struct client *client,
                                struct manifests_list *list, struct error *error) WARN_UNUSED;
void manifests_list_free(struct manifests_list *list);
/* The next object after `position`, from 0, of a kind (NULL: any) and name (NULL: any); NULL: there
 * are no more. */
const manifests_object *manifests_next(const struct manifests_list *list, size_t *position,
                                       const char *kind, const char *name);
/* One call. `*done` is freed with shoal__manifests__done__free_unpacked. */
enum status manifests_ask(struct manifests_settings *settings, struct client *client,
                          const ProtobufCMessage *request, Shoal__Manifests__Done **done,
                          struct error *error) WARN_UNUSED;

/* Prints "RESOURCE/NAME DONE", in JSON as {"object", "done"}. */
void manifests_notify(const struct manifests_settings *settings, enum manifest_kind kind,
                      const char *name, const char *done);
/* The kind of the settings' first word. */
enum status manifests_kind(const struct manifests_settings *settings, enum manifest_kind *kind,
                           struct error *error) WARN_UNUSED;
