/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_dataplane.h"

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "mesh/record/json.h"

#define METHODS "rpcConfigs"
#define OTHERS "allowOtherRpcs"
#define PATH "idExtractionPath"
#define VMODEL "vModelId"

enum { FIELD_NUMBER_MAX = (1 << 29) - 1 };

struct dataplane_method {
    char name[DATAPLANE_METHOD_BYTES_MAX + 1]; /* "package.Service/Method" */
    struct dataplane_rule rule;
};

/* The content of one text. */
struct dataplane_table {
    bool others;
    uint32_t count;
    struct dataplane_method methods[]; /* by name */
};

struct dataplane {
    /* Held for a search, some 100 ns, by calls of a node with such a configuration. Without a lock
     * each call would have to count its use of the table. */
    pthread_mutex_t lock;
    struct dataplane_table *table; /* NULL: no method may be called */
};

/* ---- reading ---- */

static enum status
refuse_others(json_t *object, const char *const *known, size_t count, struct error *error)
{
    const struct record_fields fields = {known, count};
    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at))
        if (!record_json_known(&fields, json_object_iter_key(at)))
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "\"%.60s\" is not a member of it: \"%s\" and \"%s\" are",
                             json_object_iter_key(at), known[0], known[1]);
    return STATUS_OK;
}

static enum status
read_path(json_t *value, struct dataplane_rule *rule, struct error *error)
{
    json_t *path;
    if (record_json_array(value, PATH, &path, error) != STATUS_OK)
        return error->status;
    if (json_array_size(path) > FIELD_PATH_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, PATH ": %zu fields; at most %d are taken",
                         json_array_size(path), FIELD_PATH_MAX);
    for (size_t i = 0; i < json_array_size(path); i++) {
        json_t *number = json_array_get(path, i);
        json_int_t field = json_integer_value(number);
        if (!json_is_integer(number) || field < 1 || field > FIELD_NUMBER_MAX)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             PATH ": element %zu is not a field number (1 to %d)", i,
                             FIELD_NUMBER_MAX);
        rule->numbers[rule->depth++] = (uint32_t)field;
    }
    return STATUS_OK;
}

/* "package.Service/Method": one slash, something on either side. */
static bool
is_method(const char *name)
{
    const char *slash = strchr(name, '/');
    return slash != NULL && slash != name && slash[1] != '\0' && strchr(slash + 1, '/') == NULL &&
           strlen(name) <= DATAPLANE_METHOD_BYTES_MAX;
}

static enum status
read_method(const char *name, json_t *value, struct dataplane_method *method, struct error *error)
{
    static const char *const known[] = {PATH, VMODEL};
    bool vmodel = false;
    if (!is_method(name))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "it is not a method: \"package.Service/Method\" of at most %d bytes is",
                         DATAPLANE_METHOD_BYTES_MAX);
    memcpy(method->name, name, strlen(name) + 1);
    if (!json_is_object(value))
        return error_set(error, STATUS_INVALID_ARGUMENT, "expected an object");
    if (refuse_others(value, known, ARRAY_COUNT(known), error) != STATUS_OK ||
        read_path(value, &method->rule, error) != STATUS_OK ||
        record_json_bool(value, VMODEL, &vmodel, error) != STATUS_OK)
        return error->status;
    method->rule.name = vmodel ? RUNNER_NAME_VMODEL : RUNNER_NAME_MODEL;
    return STATUS_OK;
}

static int
compare_methods(const void *a, const void *b)
{
    return strcmp(((const struct dataplane_method *)a)->name,
                  ((const struct dataplane_method *)b)->name);
}

static enum status
read_methods(json_t *methods, struct dataplane_table *table, struct error *error)
{
    for (void *at = json_object_iter(methods); at != NULL;
         at = json_object_iter_next(methods, at)) {
        const char *name = json_object_iter_key(at);
        if (read_method(name, json_object_iter_value(at), &table->methods[table->count++], error) !=
            STATUS_OK)
            return error_prefix(error, METHODS ": \"%.100s\"", name);
    }
    qsort(table->methods, table->count, sizeof(table->methods[0]), compare_methods);
    return STATUS_OK;
}

static enum status
read_root(json_t *root, struct dataplane_table **made, struct error *error)
{
    static const char *const known[] = {METHODS, OTHERS};
    json_t *methods;
    if (refuse_others(root, known, ARRAY_COUNT(known), error) != STATUS_OK ||
        record_json_object(root, METHODS, &methods, error) != STATUS_OK)
        return error->status;
    size_t count = json_object_size(methods);
    if (count > DATAPLANE_METHODS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         METHODS ": %zu of them; at most %d are "
                                 "taken",
                         count, DATAPLANE_METHODS_MAX);
    struct dataplane_table *table = calloc(1, sizeof(*table) + count * sizeof(table->methods[0]));
    CHECK(table != NULL);
    *made = table;
    if (record_json_bool(root, OTHERS, &table->others, error) != STATUS_OK)
        return error->status;
    return read_methods(methods, table, error);
}

enum status
dataplane_set(struct dataplane *dataplane, const char *json, size_t bytes,
              struct dataplane_size *size, struct error *error)
{
    json_t *root = NULL;
    struct dataplane_table *table = NULL;
    enum status status = record_json_parse(json, bytes, &root, error);
    if (status == STATUS_OK)
        status = read_root(root, &table, error);
    json_decref(root);
    if (status == STATUS_OK) {
        *size = (struct dataplane_size){table->count, table->others};
        pthread_mutex_lock(&dataplane->lock);
        struct dataplane_table *former = dataplane->table;
        dataplane->table = table;
        pthread_mutex_unlock(&dataplane->lock);
        table = former;
    }
    free(table);
    return status;
}

/* ---- looking ---- */

static int
compare_name(const void *name, const void *method)
{
    return strcmp(name, ((const struct dataplane_method *)method)->name);
}

/* Locked. */
static bool
find(const struct dataplane_table *table, const char *name, struct dataplane_rule *rule)
{
    if (table == NULL)
        return false;
    const struct dataplane_method *method =
        bsearch(name, table->methods, table->count, sizeof(table->methods[0]), compare_name);
    if (method != NULL)
        *rule = method->rule;
    return method != NULL || table->others;
}

enum status
dataplane_find(struct dataplane *dataplane, const char *method, struct dataplane_rule *rule,
               struct error *error)
{
    *rule = (struct dataplane_rule){.depth = 0};
    if (dataplane == NULL)
        return STATUS_OK;
    pthread_mutex_lock(&dataplane->lock);
    bool permitted = find(dataplane->table, method + 1, rule);
    pthread_mutex_unlock(&dataplane->lock);
    if (permitted)
        return STATUS_OK;
    return error_set(error, STATUS_UNIMPLEMENTED, "Method not found or not permitted: %.300s",
                     method + 1);
}

/* ---- life ---- */

struct dataplane *
dataplane_create(void)
{
    struct dataplane *dataplane = calloc(1, sizeof(*dataplane));
    CHECK(dataplane != NULL && pthread_mutex_init(&dataplane->lock, NULL) == 0);
    return dataplane;
}

void
dataplane_destroy(struct dataplane *dataplane)
{
    if (dataplane == NULL)
        return;
    pthread_mutex_destroy(&dataplane->lock);
    free(dataplane->table);
    free(dataplane);
}
