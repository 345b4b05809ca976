/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The repository folder. A model is filled in `.shoal-new-NAME` and appears by one rename; it
 * leaves by a rename to `.shoal-old-NAME`. A file `.shoal` marks what is ours: anything else in the
 * folder is left alone.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "serving/adapter/inside.h"
#include "serving/storage/cache_tree.h"
#include "serving/storage/digest.h"
#include "serving/storage/storage.h"

#define MARK ".shoal"
#define NEW MARK "-new-"
#define OLD MARK "-old-"
#define DIGEST_NAME "id-sha256-"

enum { NAME_BYTES_MAX = 64 };

/* ---- names ---- */

/* The server finds its folder by it, so it must not lead elsewhere, hide, or look like a digest. */
static bool
is_safe(const char *id)
{
    size_t bytes = strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
    return id[bytes] == '\0' && bytes <= NAME_BYTES_MAX && id[0] != '\0' && id[0] != '.' &&
           id[0] != '-' && strncmp(id, DIGEST_NAME, strlen(DIGEST_NAME)) != 0;
}

const char *
layout_name(const char *id, char name[EXTERNAL_NAME_BYTES])
{
    static_assert(sizeof(DIGEST_NAME) + DIGEST_BYTES <= EXTERNAL_NAME_BYTES, "room for a digest");
    static_assert((int)NAME_BYTES_MAX < (int)EXTERNAL_NAME_BYTES, "room for an id");
    if (is_safe(id))
        return id;
    char text[DIGEST_BYTES];
    struct digest *digest = digest_begin();
    digest_add(digest, id, strlen(id));
    digest_end(digest, text);
    snprintf(name, EXTERNAL_NAME_BYTES, DIGEST_NAME "%s", text);
    return name;
}

/* ---- the repository ---- */

static bool
is_ours(const char *path)
{
    return layout_exists(path, MARK);
}

static void
discard(const struct adapter *adapter, const char *name)
{
    char path[PATH_MAX];
    char old[PATH_MAX];
    char old_name[NAME_MAX + 1];
    struct error error;
    snprintf(old_name, sizeof(old_name), OLD "%.200s", name);
    if (layout_join(path, adapter->repository, name, &error) != STATUS_OK ||
        layout_join(old, adapter->repository, old_name, &error) != STATUS_OK || !is_ours(path))
        return;
    tree_remove(old); /* of a removal that failed */
    if (rename(path, old) != 0) {
        (void)error_set_errno(&error, "removing %.300s", path);
        log_warn_limited("adapter_folder_stays error=\"%s\"", error.text);
        return;
    }
    tree_remove(old);
}

enum status
layout_clear(const struct adapter *adapter, struct error *error)
{
    if (tree_make(adapter->repository, error) != STATUS_OK)
        return error_prefix(error, "model_repository");
    DIR *opened = opendir(adapter->repository);
    const struct dirent *entry;
    struct model_names names = {.count = 0};
    if (opened == NULL)
        return error_set_errno(error, "model_repository %.300s", adapter->repository);
    while ((entry = readdir(opened)) != NULL)
        model_names_add(&names, entry->d_name);
    closedir(opened);
    for (uint32_t i = 0; i < names.count; i++) {
        char path[PATH_MAX];
        const char *name = names.at[i];
        if (layout_join(path, adapter->repository, name, error) != STATUS_OK)
            break;
        if (strncmp(name, NEW, strlen(NEW)) == 0 || strncmp(name, OLD, strlen(OLD)) == 0)
            tree_remove(path);
        else if (name[0] != '.')
            discard(adapter, name);
    }
    model_names_fini(&names);
    if (access(adapter->repository, W_OK | X_OK) != 0)
        return error_set_errno(error, "model_repository %.300s", adapter->repository);
    return STATUS_OK;
}

void
layout_remove(const struct adapter *adapter, const struct adapter_model *model)
{
    discard(adapter, model->name);
}

/* ---- a model ---- */

/* A root may be made, or become a link, later than the node. */
static bool
is_beneath(const char *path, const char *root)
{
    char real[PATH_MAX];
    if (root[0] == '\0' || realpath(root, real) == NULL)
        return false;
    size_t bytes = strlen(real);
    return strncmp(path, real, bytes) == 0 &&
           (path[bytes] == '/' || path[bytes] == '\0' || bytes == 1);
}

/* A path, relative ones beneath `files_root`, without links; it must be beneath a root. */
static enum status
resolve(const struct adapter *adapter, const char *path, char real[PATH_MAX], struct error *error)
{
    char whole[PATH_MAX];
    if (path[0] == '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT, "the model has no path");
    if (storage_is_uri(path))
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "this node fetches no models: give it disk space, `models_cache_gib`");
    if (adapter->roots[0][0] == '\0' && path[0] != '/')
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "%.200s: no folder has it: set `files_root`, or name an URI", path);
    if (path[0] == '/')
        snprintf(whole, sizeof(whole), "%s", path);
    else if (layout_join(whole, adapter->roots[0], path, error) != STATUS_OK)
        return error->status;
    if (realpath(whole, real) == NULL)
        return error_set_errno(error, "%.300s", whole);
    if (is_beneath(real, adapter->roots[0]) || is_beneath(real, adapter->roots[1]))
        return STATUS_OK;
    return error_set(error, STATUS_PERMISSION_DENIED, "%.200s is not beneath `files_root`", whole);
}

static json_t *
read_key(const struct adapter_model *model)
{
    json_t *key = json_loads(model->key, 0, NULL);
    if (json_is_object(key))
        return key;
    json_decref(key);
    return json_object();
}

/* The key's `model_type`, which is a text or {name, version}; else the model's type as the mesh has
 * it: "mt:sklearn:1|pv:v2". Without the version, in lower case. */
static void
find_format(const struct adapter_model *model, const json_t *key, struct layout *layout)
{
    const json_t *type = json_object_get(key, "model_type");
    const char *text =
        json_string_value(json_is_object(type) ? json_object_get(type, "name") : type);
    if (text == NULL)
        text = model->type;
    if (strncmp(text, "mt:", 3) == 0)
        text += 3;
    size_t bytes = strcspn(text, ":|");
    if (bytes >= sizeof(layout->format))
        bytes = sizeof(layout->format) - 1;
    for (size_t i = 0; i < bytes; i++)
        layout->format[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] | 0x20 : text[i]);
    layout->format[bytes] = '\0';
}

/* A schema is not fetched: it must be in the model's folder, or in `files_root`. */
static enum status
find_schema(const struct adapter *adapter, const json_t *key, struct layout *layout,
            struct error *error)
{
    const char *schema = json_string_value(json_object_get(key, "schema_path"));
    char path[PATH_MAX];
    if (schema == NULL || schema[0] == '\0')
        return STATUS_OK;
    const char *slash = strrchr(schema, '/');
    const char *name = slash != NULL ? slash + 1 : schema;
    if (schema[0] != '/' && layout->is_folder && layout_exists(layout->source, name)) {
        if (layout_join(path, layout->source, name, error) != STATUS_OK)
            return error->status;
        schema = path;
    }
    if (resolve(adapter, schema, layout->schema, error) == STATUS_OK)
        return STATUS_OK;
    return error_prefix(error, "schema_path (put the file into the model's folder)");
}

static enum status
begin(const struct adapter *adapter, const struct adapter_model *model, const json_t *key,
      struct layout *layout, struct error *error)
{
    char name[NAME_MAX + 1];
    layout->model = model;
    if (resolve(adapter, model->path, layout->source, error) != STATUS_OK)
        return error->status;
    layout->is_folder = layout_is_folder(layout->source);
    find_format(model, key, layout);
    if (find_schema(adapter, key, layout, error) != STATUS_OK)
        return error->status;
    snprintf(name, sizeof(name), NEW "%s", model->name);
    if (layout_join(layout->folder, adapter->repository, name, error) != STATUS_OK)
        return error->status;
    tree_remove(layout->folder);
    if (mkdir(layout->folder, LAYOUT_FOLDER_MODE) != 0)
        return error_set_errno(error, "making %.300s", layout->folder);
    char mark[PATH_MAX];
    if (layout_join(mark, layout->folder, MARK, error) != STATUS_OK)
        return error->status;
    return tree_write(mark, model->id, error);
}

static enum status
commit(const struct adapter *adapter, const struct layout *layout, struct error *error)
{
    char path[PATH_MAX];
    const char *name = layout->model->name;
    if (layout_join(path, adapter->repository, name, error) != STATUS_OK)
        return error->status;
    discard(adapter, name);
    if (access(path, F_OK) == 0)
        return error_set(error, STATUS_ALREADY_EXISTS,
                         "%.300s is there and was not made by this node: remove it, or give the "
                         "node a folder of its own",
                         path);
    return rename(layout->folder, path) == 0 ? STATUS_OK
                                             : error_set_errno(error, "making %.300s", path);
}

static uint64_t
bytes_of(const struct layout *layout, const json_t *key)
{
    json_int_t reported = json_integer_value(json_object_get(key, "disk_size_bytes"));
    return reported > 0 ? (uint64_t)reported : tree_bytes(layout->source);
}

enum status
layout_make(const struct adapter *adapter, const struct adapter_model *model, uint64_t *bytes,
            struct error *error)
{
    static enum status (*const makers[])(const struct layout *, struct error *) = {
        [ADAPTER_TRITON] = layout_triton,
        [ADAPTER_MLSERVER] = layout_mlserver,
        [ADAPTER_TFSERVING] = layout_tfserving,
    };
    struct layout layout = {.model = NULL};
    json_t *key = read_key(model);
    enum status status = begin(adapter, model, key, &layout, error);
    if (status == STATUS_OK)
        status = makers[adapter->server.type](&layout, error);
    if (status == STATUS_OK)
        status = commit(adapter, &layout, error);
    if (status == STATUS_OK)
        *bytes = bytes_of(&layout, key);
    else if (layout.folder[0] != '\0')
        tree_remove(layout.folder);
    json_decref(key);
    return status;
}

uint64_t
layout_measure(const struct adapter *adapter, const struct adapter_model *model)
{
    struct layout layout = {.model = model};
    struct error error;
    json_t *key = read_key(model);
    uint64_t bytes = 0;
    if (resolve(adapter, model->path, layout.source, &error) == STATUS_OK)
        bytes = bytes_of(&layout, key);
    json_decref(key);
    return bytes;
}
