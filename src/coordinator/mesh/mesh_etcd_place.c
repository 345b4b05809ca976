/* SPDX-License-Identifier: Apache-2.0 */
/* etcd's place, from a line of text or from a JSON file (KV_STORE of KServe's deployments). */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory.h"
#include "coordinator/mesh/mesh_store.h"
#include "rpc/rpc.h"

enum { KEY_BYTES_MAX = 64 << 10, PASSWORD_BYTES_MAX = 1023 };

static char *
join(const char *first, size_t first_bytes, const char *second)
{
    char *joined = NULL;
    CHECK(asprintf(&joined, "%.*s%s", (int)first_bytes, first, second) >= 0);
    return joined;
}

void
etcd_place_fini(struct etcd_place *place)
{
    for (uint32_t i = 0; i < place->endpoint_count; i++)
        free(place->endpoints[i]);
    free(place->root);
    free(place->user);
    free(place->password);
    free(place->ca_file);
    free(place->cert_file);
    free(place->key_file);
    free(place->ca_pem);
    free(place->cert_pem);
    free(place->key_pem);
    free(place->key_password_file);
    memory_free_secret(place->key_password);
    *place = (struct etcd_place){0};
}

/* ---- endpoints ---- */

static enum status
add_endpoint(struct etcd_place *place, const char *text, size_t bytes, bool tls,
             struct error *error)
{
    if (bytes == 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "an endpoint is empty");
    if (place->endpoint_count == MESH_ENDPOINTS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "more than %d endpoints",
                         MESH_ENDPOINTS_MAX);
    char *endpoint = strndup(text, bytes);
    CHECK(endpoint != NULL);
    if (strstr(endpoint, "://") == NULL) {
        char *whole = join(tls ? "https://" : "http://", 8, endpoint);
        free(endpoint);
        endpoint = whole;
    }
    place->endpoints[place->endpoint_count++] = endpoint;
    return STATUS_OK;
}

static enum status
add_endpoints(struct etcd_place *place, const char *text, size_t bytes, bool tls,
              struct error *error)
{
    const char *end = text + bytes;
    for (;;) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        const char *stop = comma != NULL ? comma : end;
        while (text < stop && *text == ' ')
            text++;
        const char *last = stop;
        while (last > text && last[-1] == ' ')
            last--;
        if (add_endpoint(place, text, (size_t)(last - text), tls, error) != STATUS_OK)
            return error->status;
        if (comma == NULL)
            return STATUS_OK;
        text = comma + 1;
    }
}

enum status
etcd_place_parse(const char *text, struct etcd_place *place, struct error *error)
{
    static const char option[] = ";rootPrefix=";
    *place = (struct etcd_place){0};
    const char *more = strchr(text, ';');
    size_t bytes = more != NULL ? (size_t)(more - text) : strlen(text);
    if (more != NULL && strncmp(more, option, sizeof(option) - 1) != 0)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "behind the endpoints only \"%sPREFIX\" may follow, not \"%.100s\"",
                         option, more);
    place->root = memory_copy_text(more != NULL ? more + sizeof(option) - 1 : "");
    return add_endpoints(place, text, bytes, false, error);
}

/* ---- a file ---- */

/* Texts in the file; paths are relative to it. */
struct etcd_place_member {
    const char *name;
    size_t offset;
    bool path;
};

static const struct etcd_place_member members[] = {
    {"root_prefix", offsetof(struct etcd_place, root), false},
    {"userid", offsetof(struct etcd_place, user), false},
    {"password", offsetof(struct etcd_place, password), false},
    {"certificate_file", offsetof(struct etcd_place, ca_file), true},
    {"client_certificate_file", offsetof(struct etcd_place, cert_file), true},
    {"client_key_file", offsetof(struct etcd_place, key_file), true},
    {"certificate", offsetof(struct etcd_place, ca_pem), false},
    {"client_certificate", offsetof(struct etcd_place, cert_pem), false},
    {"client_key", offsetof(struct etcd_place, key_pem), false},
    {"client_key_password_file", offsetof(struct etcd_place, key_password_file), true},
};

static enum status
read_member(const json_t *file, const struct etcd_place_member *member, const char *path,
            struct etcd_place *place, struct error *error)
{
    const json_t *value = json_object_get(file, member->name);
    if (value == NULL || json_is_null(value))
        return STATUS_OK;
    if (!json_is_string(value))
        return error_set(error, STATUS_INVALID_ARGUMENT, "\"%s\" must be a string", member->name);
    const char *text = json_string_value(value);
    if (text[0] == '\0')
        return STATUS_OK;
    const char *slash = strrchr(path, '/');
    size_t folder =
        member->path && text[0] != '/' && slash != NULL ? (size_t)(slash + 1 - path) : 0;
    *(char **)(void *)((char *)place + member->offset) = join(path, folder, text);
    return STATUS_OK;
}

static enum status
read_file(const json_t *file, const char *path, struct etcd_place *place, struct error *error)
{
    /* It matters, so it must not be ignored silently. */
    if (json_object_get(file, "override_authority") != NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "\"override_authority\" is not taken: the endpoints must have the names "
                         "that etcd's certificate has");
    for (size_t i = 0; i < ARRAY_COUNT(members); i++)
        if (read_member(file, &members[i], path, place, error) != STATUS_OK)
            return error->status;
    if (place->root == NULL)
        place->root = memory_copy_text("");
    const char *mode = json_string_value(json_object_get(file, "tls_mode"));
    bool tls = mode != NULL && strcmp(mode, "TLS") == 0;
    bool trusts = place->ca_file != NULL || place->ca_pem != NULL;
    tls = tls || (trusts && (mode == NULL || strcmp(mode, "PLAINTEXT") != 0));
    const char *endpoints = json_string_value(json_object_get(file, "endpoints"));
    if (endpoints == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "\"endpoints\" must be a string, commas between: \"http://host:2379\"");
    return add_endpoints(place, endpoints, strlen(endpoints), tls, error);
}

/* ---- the key ---- */

/* Reads the first line, as openssl's commands do. */
static enum status
read_password(struct etcd_place *place, struct error *error)
{
    char line[PASSWORD_BYTES_MAX + 2];
    FILE *stream = fopen(place->key_password_file, "re");
    if (stream == NULL)
        return error_set_errno(error, "%s", place->key_password_file);
    line[fread(line, 1, sizeof(line) - 1, stream)] = '\0';
    fclose(stream);
    size_t bytes = strcspn(line, "\r\n");
    line[bytes] = '\0';
    enum status status = STATUS_OK;
    if (bytes == 0)
        status = error_set(error, STATUS_INVALID_ARGUMENT,
                           "%s: no password in it: it is to be the first line",
                           place->key_password_file);
    else if (bytes > PASSWORD_BYTES_MAX)
        status = error_set(error, STATUS_INVALID_ARGUMENT, "%s: a password has at most %d bytes",
                           place->key_password_file, PASSWORD_BYTES_MAX);
    else
        place->key_password = memory_copy_text(line);
    explicit_bzero(line, sizeof(line));
    return status;
}

/* The connection reports a key that cannot be read. */
static enum status
check_pem(const struct etcd_place *place, const char *pem, struct error *error)
{
    switch (rpc_key_look(pem, place->key_password)) {
    case RPC_KEY_LOCKED:
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the key is encrypted: name a file with its password, "
                         "\"client_key_password_file\", or decrypt it with `openssl pkey`");
    case RPC_KEY_REFUSED:
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the key is encrypted, and %s does not open it", place->key_password_file);
    case RPC_KEY_OPEN:
    case RPC_KEY_NONE: break;
    }
    return STATUS_OK;
}

static enum status
check_key_file(const struct etcd_place *place, struct error *error)
{
    static char pem[KEY_BYTES_MAX + 1]; /* the loop thread's */
    FILE *stream = fopen(place->key_file, "re");
    if (stream == NULL)
        return STATUS_OK;
    pem[fread(pem, 1, KEY_BYTES_MAX, stream)] = '\0';
    fclose(stream);
    enum status status = check_pem(place, pem, error);
    explicit_bzero(pem, sizeof(pem));
    return status == STATUS_OK ? STATUS_OK : error_prefix(error, "%s", place->key_file);
}

static enum status
check_key(struct etcd_place *place, struct error *error)
{
    bool in_file = place->key_file != NULL;
    if (!in_file && place->key_pem == NULL)
        return STATUS_OK;
    enum status status = place->key_password_file != NULL ? read_password(place, error) : STATUS_OK;
    if (status == STATUS_OK)
        status = in_file ? check_key_file(place, error) : check_pem(place, place->key_pem, error);
    return status == STATUS_OK
               ? STATUS_OK
               : error_prefix(error, in_file ? "\"client_key_file\"" : "\"client_key\"");
}

enum status
etcd_place_load(const char *path, struct etcd_place *place, struct error *error)
{
    *place = (struct etcd_place){0};
    json_error_t why;
    json_t *file = json_load_file(path, 0, &why);
    int failure = errno;
    enum status status;
    if (file == NULL && json_error_code(&why) == json_error_cannot_open_file)
        status =
            error_set(error, STATUS_INVALID_ARGUMENT, "it cannot be opened: %s", strerror(failure));
    else if (file == NULL)
        status = error_set(error, STATUS_INVALID_ARGUMENT, "line %d: %s", why.line, why.text);
    else if (!json_is_object(file))
        status = error_set(error, STATUS_INVALID_ARGUMENT, "it is not a JSON object");
    else
        status = read_file(file, path, place, error);
    if (status == STATUS_OK)
        status = check_key(place, error);
    json_decref(file);
    return status == STATUS_OK ? STATUS_OK : error_prefix(error, "%s", path);
}
