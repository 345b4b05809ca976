/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_files_check.h"

#include <stdlib.h>

#include "base/check.h"
#include "coordinator/mesh/mesh_dataplane.h"
#include "coordinator/mesh/mesh_file.h"
#include "coordinator/mesh/mesh_listed.h"
#include "coordinator/mesh/mesh_store.h"
#include "mesh/record/record.h"

static enum status
check_types(const char *text, size_t bytes, struct error *error)
{
    struct record_types *types = NULL;
    enum status status = record_types_read(text, bytes, &types, error);
    free(types);
    return status;
}

static enum status
check_dataplane(const char *text, size_t bytes, struct error *error)
{
    struct dataplane *dataplane = dataplane_create();
    struct dataplane_size size;
    enum status status = dataplane_set(dataplane, text, bytes, &size, error);
    dataplane_destroy(dataplane);
    return status;
}

static enum status
check_listed(const char *text, size_t bytes, struct error *error)
{
    struct mesh_listed *listed = NULL;
    enum status status = mesh_listed_read(text, bytes, &listed, error);
    mesh_listed_destroy(listed);
    return status;
}

typedef enum status check_text(const char *text, size_t bytes, struct error *error);

static enum status
check_file(const char *key, const char *given, check_text *check, struct error *error)
{
    struct mesh_file file = {.given = given};
    char *text;
    size_t bytes;
    if (given == NULL)
        return STATUS_OK;
    enum status status = mesh_file_read(&file, &text, &bytes, error);
    if (status == STATUS_OK)
        status = check(text, bytes, error);
    free(text);
    return status == STATUS_OK ? STATUS_OK : mesh_file_blame(&file, key, error);
}

static enum status
check_store(const struct config_mesh *mesh, struct error *error)
{
    struct etcd_place place;
    enum status status = mesh_store_place(mesh, &place, error);
    etcd_place_fini(&place);
    return status == STATUS_OK ? STATUS_OK : error_prefix(error, "mesh: store");
}

static uint32_t
say_failure(enum status status, const struct error *error, void (*say)(const char *mistake))
{
    if (status == STATUS_OK)
        return 0;
    say(error->text);
    return 1;
}

uint32_t
mesh_files_check(const struct config_mesh *mesh, void (*say)(const char *mistake))
{
    const struct {
        const char *key;
        const char *given;
        check_text *check;
    } files[] = {
        {"type_constraints", mesh->type_constraints, check_types},
        {"dataplane", mesh->dataplane, check_dataplane},
        {"register", mesh->registered, check_listed},
    };
    struct error error = ERROR_NONE;
    if (!mesh->on)
        return 0;
    uint32_t mistakes = say_failure(check_store(mesh, &error), &error, say);
    for (size_t i = 0; i < ARRAY_COUNT(files); i++) {
        error_clear(&error);
        mistakes += say_failure(check_file(files[i].key, files[i].given, files[i].check, &error),
                                &error, say);
    }
    return mistakes;
}
