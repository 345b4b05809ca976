/* SPDX-License-Identifier: Apache-2.0 */
/* Where etcd is, from a line of text or from a file of JSON (KV_STORE of KServe's deployments). */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/mesh/mesh_store.h"

enum { KEY_BYTES_MAX = 64 << 10 };

static char *
copy(const char *text)
{
    char *own = strdup(text);
    CHECK(own != NULL);
    return own;
}

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
                         "behind the endpoints only \"%sPREFIX\" may stand, not \"%.100s\"", option,
                         more);
    place->root = copy(more != NULL ? more + sizeof(option) - 1 : "");
    return add_endpoints(place, text, bytes, false, error);
}

/* ---- a file ---- */

/* Texts of the file; paths are relative to it. */
struct member {
    const char *name;
    size_t offset;
    bool path;
};

static const struct member members[] = {
    {"root_prefix", offsetof(struct etcd_place, root), false},
    {"userid", offsetof(struct etcd_place, user), false},
    {"password", offsetof(struct etcd_place, password), false},
    {"certificate_file", offsetof(struct etcd_place, ca_file), true},
    {"client_certificate_file", offsetof(struct etcd_place, cert_file), true},
    {"client_key_file", offsetof(struct etcd_place, key_file), true},
    {"certificate", offsetof(struct etcd_place, ca_pem), false},
    {"client_certificate", offsetof(struct etcd_place, cert_pem), false},
    {"client_key", offsetof(struct etcd_place, key_pem), false},
};

static enum status
read_member(const json_t *file, const struct member *member, const char *path,
            struct etcd_place *place, struct error *error)
{
    const json_t *value = json_object_get(file, member->name);
    if (value == NULL || json_is_null(value))
        return STATUS_OK;
    if (!json_is_string(value))
        return error_set(error, STATUS_INVALID_ARGUMENT, "\"%s\" must be a text", member->name);
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
    /* It would be left out without a word, and matters. */
    if (json_object_get(file, "override_authority") != NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "\"override_authority\" is not taken: the endpoints must have the names "
                         "that etcd's certificate has");
    for (size_t i = 0; i < ARRAY_COUNT(members); i++)
        if (read_member(file, &members[i], path, place, error) != STATUS_OK)
            return error->status;
    if (place->root == NULL)
        place->root = copy("");
    const char *mode = json_string_value(json_object_get(file, "tls_mode"));
    bool tls = mode != NULL && strcmp(mode, "TLS") == 0;
    bool trusts = place->ca_file != NULL || place->ca_pem != NULL;
    tls = tls || (trusts && (mode == NULL || strcmp(mode, "PLAINTEXT") != 0));
    const char *endpoints = json_string_value(json_object_get(file, "endpoints"));
    if (endpoints == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "\"endpoints\" must be a text, commas between: \"http://host:2379\"");
    return add_endpoints(place, endpoints, strlen(endpoints), tls, error);
}

/* Those of PKCS#8, and those of OpenSSL's older format. */
static bool
is_encrypted(const char *pem)
{
    return strstr(pem, "-----BEGIN ENCRYPTED PRIVATE KEY-----") != NULL ||
           strstr(pem, "Proc-Type: 4,ENCRYPTED") != NULL;
}

/* A file that cannot be read is the connection's to complain of. */
static bool
is_file_encrypted(const char *path)
{
    static char pem[KEY_BYTES_MAX + 1]; /* the loop thread's */
    FILE *stream = fopen(path, "re");
    if (stream == NULL)
        return false;
    pem[fread(pem, 1, KEY_BYTES_MAX, stream)] = '\0';
    fclose(stream);
    return is_encrypted(pem);
}

static enum status
check_key(const struct etcd_place *place, struct error *error)
{
    if (place->key_file != NULL && is_file_encrypted(place->key_file))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "\"client_key_file\": %s: the key is encrypted: decrypt it with `openssl "
                         "pkey -in %s -out FILE`, into a file that others cannot read",
                         place->key_file, place->key_file);
    if (place->key_file == NULL && place->key_pem != NULL && is_encrypted(place->key_pem))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "\"client_key\": the key is encrypted: decrypt it with `openssl pkey`");
    return STATUS_OK;
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
        status = error_set(error, STATUS_INVALID_ARGUMENT, "it is no JSON object");
    else
        status = read_file(file, path, place, error);
    if (status == STATUS_OK)
        status = check_key(place, error);
    json_decref(file);
    return status == STATUS_OK ? STATUS_OK : error_prefix(error, "%s", path);
}
