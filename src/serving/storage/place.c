/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules.
 *  P1. A path with a scheme is an URI. Another one is a path in the storage that the key names:
 *      `storage_key`, else the entry `default_TYPE` of its `model_type`, else `default`.
 *  P2. `storage_params`, and the older `bucket`, override members of the entry.
 *  P3. An entry's credentials go to the entry's own origin (`endpoint_url`, `url`) and nowhere
 *      else: a URI or parameter that leads elsewhere is refused if the key names the entry. Those
 *      of the variables do not go to an endpoint that a key names.
 *  P4. An URI of s3:// whose key names no entry takes `default_s3` or a `default` of type s3, else
 *      the variables of AWS' tools, else the node's role, else requests are not signed.
 *  P5. An entry of type s3 has keys, or a role, or neither. A role is `role_arn`, of the node's web
 *      identity, or `credential_source`, the machine. The entry says nothing of the services that
 *      give keys: they get the node's token, and are the node's alone.
 */
#include "serving/storage/place.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/memory.h"
#include "base/percent.h"
#include "serving/storage/sigv4.h"

enum { ENTRY_NAME_BYTES_MAX = 253 };

static const char *const schemes[] = {"http://", "https://", "s3://", "pvc://", "file://"};

/* The storage that a key asks for. */
struct wish {
    const struct storage_source *source;
    const char *metadata;
    const char *entries;
    const struct storage_entries *given;
    json_t *key;                         /* an object, or NULL */
    json_t *entry;                       /* of storage-config; NULL: none */
    char name[ENTRY_NAME_BYTES_MAX + 1]; /* the entry's */
};

static const char *
scheme_of(const char *path)
{
    for (size_t i = 0; i < ARRAY_COUNT(schemes); i++)
        if (strncasecmp(path, schemes[i], strlen(schemes[i])) == 0)
            return schemes[i];
    return NULL;
}

static bool
has_scheme(const char *path)
{
    size_t bytes =
        strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+.-");
    return bytes > 0 && strncmp(path + bytes, "://", 3) == 0;
}

bool
storage_is_uri(const char *path)
{
    return has_scheme(path);
}

void
storage_show_path(const char *path, char *shown, size_t room)
{
    const char *rest = has_scheme(path) ? strstr(path, "://") + 3 : path;
    size_t bytes = has_scheme(path) ? strcspn(rest, "?#") : strlen(rest);
    const char *at = has_scheme(path) ? memchr(rest, '@', strcspn(rest, "/?#")) : NULL;
    size_t user = at != NULL ? (size_t)(at + 1 - rest) : 0;
    snprintf(shown, room, "%.*s%.*s", (int)(rest - path), path, (int)(bytes - user), rest + user);
}

bool
storage_is_named(const struct storage_source *source)
{
    if (has_scheme(source->path))
        return true;
    json_t *key = json_loads(source->key, 0, NULL);
    bool named = json_object_get(key, "storage_key") != NULL ||
                 json_object_get(key, "storage_params") != NULL ||
                 json_object_get(key, "bucket") != NULL;
    if (source->path[0] == '/' && json_object_get(key, "disk_size_bytes") != NULL)
        named = false;
    json_decref(key);
    return named;
}

static char *
copy(const char *text)
{
    char *copied = strdup(text);
    CHECK(copied != NULL);
    return copied;
}

/* ---- entries of storage-config ---- */

static bool
is_entry_name(const char *name)
{
    size_t bytes = strlen(name);
    return bytes > 0 && bytes <= ENTRY_NAME_BYTES_MAX && name[0] != '.' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
               bytes;
}

/* The entry's JSON, of the folder or else of those given; NULL: there is none, or it cannot be
 * read, which the error or the mistake says. */
static json_t *
load_entry(const struct wish *wish, const char *name, json_error_t *mistake, struct error *error)
{
    char path[PATH_MAX];
    const char *text = entries_find(wish->given, name);
    mistake->line = 0;
    if (wish->entries != NULL) {
        snprintf(path, sizeof(path), "%.3000s/%s", wish->entries, name);
        FILE *file = fopen(path, "re");
        if (file == NULL && errno != ENOENT)
            error_set_errno(error, "entry \"%s\" of storage-config", name);
        else if (file == NULL && text == NULL)
            error_set(error, STATUS_NOT_FOUND,
                      "storage key \"%s\" is not in storage-config: add it, or name another", name);
        json_t *entry = file != NULL ? json_loadf(file, JSON_REJECT_DUPLICATES, mistake) : NULL;
        if (file != NULL)
            fclose(file);
        if (file != NULL || error->status != STATUS_OK)
            return entry;
    }
    return json_loads(text, JSON_REJECT_DUPLICATES, mistake);
}

/* NOT_FOUND: there is no such entry. */
static enum status
read_entry(struct wish *wish, const char *name, struct error *error)
{
    json_error_t mistake;
    if (wish->entries == NULL && entries_find(wish->given, name) == NULL)
        return error_set(error, STATUS_NOT_FOUND,
                         "storage key \"%.100s\": there is no `storage_config`, and no Secret "
                         "storage-config with it: name its folder in the node's configuration, or "
                         "apply one",
                         name);
    if (!is_entry_name(name))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "storage key \"%.100s\" is no name of an entry of storage-config", name);
    json_decref(wish->entry);
    wish->entry = load_entry(wish, name, &mistake, error);
    if (error->status != STATUS_OK)
        return error->status;
    snprintf(wish->name, sizeof(wish->name), "%s", name);
    if (json_is_object(wish->entry))
        return STATUS_OK;
    json_decref(wish->entry);
    wish->entry = NULL; /* the parser's text may quote a secret */
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "entry \"%s\" of storage-config is no JSON object: line %d", name,
                     mistake.line);
}

/* The text of a member of the key's parameters, else of the entry; NULL: not given. */
static const char *
member(const struct wish *wish, const char *name)
{
    const json_t *params = json_object_get(wish->key, "storage_params");
    const char *text = json_string_value(json_object_get(params, name));
    if (text == NULL && strcmp(name, "bucket") == 0)
        text = json_string_value(json_object_get(wish->key, "bucket"));
    if (text == NULL)
        text = json_string_value(json_object_get(wish->entry, name));
    return text != NULL && text[0] != '\0' ? text : NULL;
}

/* Returns a text of the entry alone: secrets are never in keys. */
static char *
entry_text(const struct wish *wish, const char *name)
{
    const char *text = json_string_value(json_object_get(wish->entry, name));
    return text != NULL && text[0] != '\0' ? copy(text) : NULL;
}

static const char *
type_of_model(const struct wish *wish)
{
    const json_t *type = json_object_get(wish->key, "model_type");
    if (json_is_object(type))
        type = json_object_get(type, "name");
    return json_string_value(type);
}

/* The first entry of these that there is; of that type, unless `type` is NULL. */
static enum status
read_default(struct wish *wish, const char *type, const char *suffix, struct error *error)
{
    char names[2][ENTRY_NAME_BYTES_MAX + 1] = {"", "default"};
    if (suffix != NULL)
        snprintf(names[0], sizeof(names[0]), "default_%.200s", suffix);
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        if (names[i][0] == '\0' || !is_entry_name(names[i]))
            continue;
        error_clear(error);
        enum status status = read_entry(wish, names[i], error);
        const char *is = json_string_value(json_object_get(wish->entry, "type"));
        bool fits = type == NULL || (is != NULL && strcmp(is, type) == 0);
        if (status == STATUS_OK && fits)
            return STATUS_OK;
        if (status != STATUS_OK && status != STATUS_NOT_FOUND)
            return status;
        json_decref(wish->entry);
        wish->entry = NULL;
    }
    error_clear(error);
    return error_set(error, STATUS_NOT_FOUND,
                     "the key has no `storage_key`, and storage-config has no `default`%s%.64s: "
                     "name one of its entries",
                     suffix != NULL ? " or `default_TYPE` of type " : "",
                     suffix != NULL ? suffix : "");
}

/* ---- URLs ---- */

size_t
place_origin_bytes(const char *url)
{
    const char *colon = strstr(url, "://");
    if (colon == NULL || colon == url)
        return 0;
    size_t bytes = strcspn(colon + 3, "/?#");
    return bytes == 0 ? 0 : (size_t)(colon + 3 - url) + bytes;
}

static bool
same_origin(const char *one, const char *other)
{
    size_t bytes = place_origin_bytes(one);
    return bytes > 0 && bytes == place_origin_bytes(other) && strncasecmp(one, other, bytes) == 0;
}

static enum status
check_url(const char *url, const char *what, struct error *error)
{
    size_t origin = place_origin_bytes(url);
    bool is_http = strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0;
    if (!is_http || origin == 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s is no http:// or https:// URL", what);
    if (memchr(url, '@', origin) != NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s has a user's name: put credentials into an entry of storage-config",
                         what);
    for (const char *at = url; *at != '\0'; at++)
        if ((unsigned char)*at <= ' ' || (unsigned char)*at >= 0x7f)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "%s has a byte that must be percent-encoded", what);
    return STATUS_OK;
}

/* ---- the schemes ---- */

static enum status
take_headers(const struct wish *wish, struct storage_place *place, struct error *error)
{
    const json_t *headers = json_object_get(wish->entry, "headers");
    json_t *parsed = NULL;
    if (json_is_string(headers)) /* KServe has them as JSON in a text */
        headers = parsed = json_loads(json_string_value(headers), 0, NULL);
    const char *name;
    json_t *value;
    enum status status = STATUS_OK;
    json_object_foreach((json_t *)(uintptr_t)headers, name, value)
    {
        const char *text = json_string_value(value);
        if (text == NULL || strpbrk(text, "\r\n") != NULL || strpbrk(name, "\r\n: ") != NULL ||
            place->header_count == PLACE_HEADERS_MAX) {
            status =
                error_set(error, STATUS_FAILED_PRECONDITION,
                          "entry \"%s\" of storage-config: `headers` must be at most %d strings "
                          "without line breaks",
                          wish->name, PLACE_HEADERS_MAX);
            break;
        }
        size_t room = strlen(name) + strlen(text) + 3;
        char *header = malloc(room);
        CHECK(header != NULL);
        snprintf(header, room, "%s: %s", name, text);
        place->headers[place->header_count++] = header;
    }
    json_decref(parsed);
    return status;
}

static enum status
leads_elsewhere(const struct wish *wish, const char *name, struct error *error)
{
    return error_set(
        error, STATUS_INVALID_ARGUMENT,
        "this is another server than the `%s` of entry \"%s\" of storage-config, whose "
        "credentials are for that one alone: name no entry, or another",
        name, wish->name);
}

static enum status
resolve_http(struct wish *wish, const char *path, bool is_uri, struct storage_place *place,
             struct error *error)
{
    char *base = entry_text(wish, "url");
    enum status status = STATUS_OK;
    if (is_uri) {
        place->url = copy(path);
    } else {
        const char *given = member(wish, "url");
        if (given == NULL)
            status = error_set(error, STATUS_FAILED_PRECONDITION,
                               "entry \"%s\" of storage-config has no `url`", wish->name);
        struct bytes url = {0};
        bytes_put_text(&url, given != NULL ? given : "");
        while (url.used > 0 && url.data[url.used - 1] == '/')
            url.used--;
        if (path[0] != '\0')
            bytes_put_char(&url, '/');
        sigv4_encode(&url, path + strspn(path, "/"), SIGV4_KEEP_SLASH);
        bytes_put_char(&url, '\0');
        CHECK(!url.failed);
        place->url = url.data;
    }
    if (status == STATUS_OK)
        status = check_url(place->url, is_uri ? "the URI" : "`url`", error);
    bool is_entrys = base != NULL && same_origin(base, place->url);
    if (status == STATUS_OK && wish->entry != NULL && !is_entrys)
        status = leads_elsewhere(wish, "url", error);
    if (status == STATUS_OK && wish->entry != NULL) {
        status = take_headers(wish, place, error);
        place->authority = entry_text(wish, "certificate");
        place->client_certificate = entry_text(wish, "client_certificate");
        place->client_key = entry_text(wish, "client_key");
    }
    free(base);
    return status;
}

static char *
variable(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? copy(text) : NULL;
}

/* P5 */
static enum status
take_entry_role(const struct wish *wish, struct storage_place *place, struct error *error)
{
    char *arn = entry_text(wish, "role_arn");
    char *source = entry_text(wish, "credential_source");
    char *file = variable("AWS_WEB_IDENTITY_TOKEN_FILE");
    const char *wrong = NULL;
    bool has_role = arn != NULL || source != NULL;
    if (has_role && (place->key_id != NULL || place->secret != NULL || place->token != NULL))
        wrong = "has keys and a role: remove one of them";
    else if (arn != NULL && source != NULL)
        wrong = "has `role_arn` and `credential_source`: remove one of them";
    else if (arn != NULL && file == NULL)
        wrong = "has `role_arn`, and the node has no web identity: set its variable "
                "AWS_WEB_IDENTITY_TOKEN_FILE";
    else if (source != NULL && strcmp(source, "Ec2InstanceMetadata") != 0)
        wrong =
            "has a `credential_source` other than Ec2InstanceMetadata: name that, or `role_arn`";
    else if (source != NULL && wish->metadata == NULL)
        wrong = "has `credential_source`, and the node may ask no metadata service: set its "
                "`storage_metadata`";
    else if (has_role)
        place->role = copy(arn != NULL ? arn : wish->metadata);
    place->is_web_role = arn != NULL;
    free(arn);
    free(source);
    free(file);
    return wrong == NULL ? STATUS_OK
                         : error_set(error, STATUS_FAILED_PRECONDITION,
                                     "entry \"%s\" of storage-config %s", wish->name, wrong);
}

/* Takes the role of the node, which has no keys (role.c). */
static void
take_role(const struct wish *wish, struct storage_place *place)
{
    char *arn = variable("AWS_ROLE_ARN");
    char *file = variable("AWS_WEB_IDENTITY_TOKEN_FILE");
    place->is_web_role = arn != NULL && file != NULL;
    if (place->is_web_role)
        place->role = copy(arn);
    else if (wish->metadata != NULL)
        place->role = copy(wish->metadata);
    free(arn);
    free(file);
}

static enum status
take_s3_credentials(const struct wish *wish, struct storage_place *place, struct error *error)
{
    bool is_entry = wish->entry != NULL;
    if (!is_entry && member(wish, "endpoint_url") != NULL)
        return STATUS_OK; /* P3 */
    place->key_id = is_entry ? entry_text(wish, "access_key_id") : variable("AWS_ACCESS_KEY_ID");
    place->secret =
        is_entry ? entry_text(wish, "secret_access_key") : variable("AWS_SECRET_ACCESS_KEY");
    place->token = is_entry ? entry_text(wish, "session_token") : variable("AWS_SESSION_TOKEN");
    place->authority = is_entry ? entry_text(wish, "certificate") : NULL;
    if ((place->key_id == NULL) != (place->secret == NULL))
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "of `access_key_id` and `secret_access_key` only one is given");
    if (is_entry)
        return take_entry_role(wish, place, error);
    if (place->key_id == NULL)
        take_role(wish, place);
    return STATUS_OK;
}

/* It becomes part of a host's name and of a header, and a key may give it. */
static enum status
check_region(const char *region, struct error *error)
{
    static const char kept[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    size_t bytes = strlen(region);
    if (bytes < PLACE_REGION_BYTES && strspn(region, kept) == bytes)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "`region` must be at most %d letters, digits, `-` and `_`",
                     PLACE_REGION_BYTES - 1);
}

static enum status
take_s3_endpoint(const struct wish *wish, struct storage_place *place, struct error *error)
{
    char *own = entry_text(wish, "endpoint_url");
    const char *given = member(wish, "endpoint_url");
    const char *region = member(wish, "region");
    enum status status = STATUS_OK;
    if (wish->entry != NULL && given != NULL && (own == NULL || !same_origin(own, given)))
        status = leads_elsewhere(wish, "endpoint_url", error);
    place->region = region != NULL ? copy(region) : NULL;
    if (wish->entry == NULL && place->region == NULL)
        place->region = variable("AWS_REGION");
    if (wish->entry == NULL && place->region == NULL)
        place->region = variable("AWS_DEFAULT_REGION");
    if (place->region == NULL)
        place->region = copy("us-east-1");
    if (status == STATUS_OK)
        status = check_region(place->region, error);
    place->url = given != NULL ? copy(given) : NULL;
    if (wish->entry == NULL && place->url == NULL)
        place->url = variable("AWS_ENDPOINT_URL_S3");
    if (wish->entry == NULL && place->url == NULL)
        place->url = variable("AWS_ENDPOINT_URL");
    if (place->url == NULL) {
        char url[128];
        snprintf(url, sizeof(url), "https://s3.%s.amazonaws.com", place->region);
        place->url = copy(url);
    }
    size_t bytes = strlen(place->url);
    while (bytes > 0 && place->url[bytes - 1] == '/')
        place->url[--bytes] = '\0';
    free(own);
    return status == STATUS_OK ? check_url(place->url, "`endpoint_url`", error) : status;
}

static enum status
resolve_s3(struct wish *wish, const char *path, bool is_uri, struct storage_place *place,
           struct error *error)
{
    enum status status = STATUS_OK;
    if (is_uri) {
        const char *slash = strchr(path, '/');
        size_t bytes = slash != NULL ? (size_t)(slash - path) : strlen(path);
        place->bucket = strndup(path, bytes);
        place->path = copy(slash != NULL ? slash + 1 : "");
        if (wish->entry == NULL)
            status = read_default(wish, "s3", "s3", error);
        if (status == STATUS_NOT_FOUND) {
            error_clear(error);
            status = STATUS_OK;
        }
    } else {
        const char *bucket = member(wish, "bucket");
        bucket = bucket != NULL ? bucket : member(wish, "default_bucket");
        place->bucket = copy(bucket != NULL ? bucket : "");
        place->path = copy(path + strspn(path, "/"));
    }
    CHECK(place->bucket != NULL);
    if (status == STATUS_OK && place->bucket[0] == '\0')
        status = error_set(error, STATUS_INVALID_ARGUMENT,
                           "no bucket is named: give `bucket` in the key's `storage_params` or in "
                           "the entry of storage-config");
    if (status != STATUS_OK)
        return status;
    size_t bytes = strlen(place->path);
    while (bytes > 0 && place->path[bytes - 1] == '/')
        place->path[--bytes] = '\0';
    status = take_s3_credentials(wish, place, error);
    return status == STATUS_OK ? take_s3_endpoint(wish, place, error) : status;
}

static enum status
resolve_pvc(struct wish *wish, const char *path, bool is_uri, struct storage_place *place,
            struct error *error)
{
    const char *slash = strchr(path, '/');
    size_t bytes = is_uri ? (slash != NULL ? (size_t)(slash - path) : strlen(path)) : 0;
    const char *name = member(wish, "name");
    place->bucket = is_uri ? strndup(path, bytes) : copy(name != NULL ? name : "");
    place->path = copy(is_uri ? (slash != NULL ? slash + 1 : "") : path + strspn(path, "/"));
    CHECK(place->bucket != NULL);
    if (place->bucket[0] == '\0' || place->bucket[0] == '.' || strchr(place->bucket, '/') != NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "no claim is named: pvc://CLAIM/PATH, or `name` in storage-config");
    return STATUS_OK;
}

static enum status
resolve_file(struct wish *wish, const char *path, bool is_uri, struct storage_place *place,
             struct error *error)
{
    (void)wish, (void)is_uri;
    if (path[0] != '/')
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "file:// names files of this machine: file:///PATH");
    place->path = copy(path);
    percent_decode(place->path);
    return STATUS_OK;
}

static const struct {
    const char *type; /* of an entry, and of URIs */
    enum place_kind kind;
    enum status (*resolve)(struct wish *wish, const char *path, bool is_uri,
                           struct storage_place *place, struct error *error);
} kinds[] = {
    {"s3", PLACE_S3, resolve_s3},        {"http", PLACE_HTTP, resolve_http},
    {"https", PLACE_HTTP, resolve_http}, {"pvc", PLACE_PVC, resolve_pvc},
    {"file", PLACE_FILE, resolve_file},
};

/* ---- the whole ---- */

static void
show(const struct wish *wish, struct storage_place *place)
{
    const char *path = wish->source->path;
    char shown[ERROR_TEXT_MAX / 2];
    if (has_scheme(path))
        storage_show_path(path, shown, sizeof(shown));
    else if (place->kind == PLACE_S3 && place->bucket != NULL)
        snprintf(shown, sizeof(shown), "s3://%.63s/%.180s", place->bucket, path);
    else
        snprintf(shown, sizeof(shown), "%.60s:%.180s", wish->name, path);
    free(place->shown);
    place->shown = copy(shown);
}

static enum status
resolve(struct wish *wish, struct storage_place *place, struct error *error)
{
    const char *path = wish->source->path;
    const char *scheme = scheme_of(path);
    const char *type = scheme;
    const char *named = json_string_value(json_object_get(wish->key, "storage_key"));
    enum status status = STATUS_OK;
    if (scheme == NULL && has_scheme(path))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "there is no storage of this scheme: http, https, s3, pvc and file are "
                         "known");
    if (named != NULL)
        status = read_entry(wish, named, error);
    else if (scheme == NULL && member(wish, "type") == NULL)
        status = read_default(wish, NULL, type_of_model(wish), error);
    if (status != STATUS_OK)
        return status;
    if (type == NULL)
        type = member(wish, "type");
    if (type == NULL)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "entry \"%s\" of storage-config has no `type`", wish->name);
    size_t bytes = scheme != NULL ? strlen(scheme) - 3 : strlen(type);
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        if (strlen(kinds[i].type) != bytes || strncmp(kinds[i].type, type, bytes) != 0)
            continue;
        place->kind = kinds[i].kind;
        bool is_whole = kinds[i].kind == PLACE_HTTP || scheme == NULL;
        const char *rest = is_whole ? path : path + strlen(scheme);
        return kinds[i].resolve(wish, rest, scheme != NULL, place, error);
    }
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "storage of type \"%.40s\" is not known: s3, http and pvc are", type);
}

static enum status
take_digests(const struct wish *wish, struct storage_place *place, struct error *error)
{
    json_t *stated = json_object_get(wish->key, "sha256");
    const char *name;
    json_t *digest;
    if (stated == NULL || json_is_object(stated)) {
        place->digests = json_incref(stated);
        json_object_foreach(stated, name, digest)
        {
            if (!json_is_string(digest))
                return error_set(error, STATUS_INVALID_ARGUMENT,
                                 "the key's `sha256` of \"%.100s\" is not a string", name);
        }
        return STATUS_OK;
    }
    const char *text = json_string_value(stated);
    if (text == NULL || strlen(text) != DIGEST_TEXT_BYTES - 1 ||
        strspn(text, "0123456789abcdefABCDEF") != DIGEST_TEXT_BYTES - 1)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the key's `sha256` is not %d hexadecimal digits", DIGEST_TEXT_BYTES - 1);
    for (size_t i = 0; i < DIGEST_TEXT_BYTES; i++)
        place->digest[i] = (char)tolower((unsigned char)text[i]);
    return STATUS_OK;
}

enum status
place_resolve(const struct place_options *options, const struct storage_source *source,
              struct storage_place *place, struct error *error)
{
    struct wish wish = {.source = source,
                        .metadata = options->metadata,
                        .entries = options->entries,
                        .given = options->given};
    json_t *key = json_loads(source->key, 0, NULL);
    if (json_is_object(key))
        wish.key = key;
    error_clear(error);
    enum status status = resolve(&wish, place, error);
    if (status == STATUS_OK)
        status = take_digests(&wish, place, error);
    show(&wish, place);
    json_decref(wish.entry);
    json_decref(key);
    return status;
}

/* Checks the digest of the one file, or those of all that are named. */
enum status
place_check_digests(const struct storage_place *place, storage_has_file *has, const void *context,
                    enum place_files files, struct error *error)
{
    const char *name;
    json_t *digest;
    if (place->digest[0] != '\0' && files == PLACE_FOLDER)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the key's `sha256` is of one file, and the model has several, or is an "
                         "archive: state an object of digests by file");
    json_object_foreach((json_t *)place->digests, name, digest)
    {
        if (has != NULL && !has(context, name))
            return error_set(error, STATUS_DATA_LOSS,
                             "the model's key states a sha256 of \"%.100s\", which is not there",
                             name);
    }
    return STATUS_OK;
}

const char *
place_digest(const struct storage_place *place, const char *name, enum place_files files)
{
    const char *text = json_string_value(json_object_get(place->digests, name));
    if (text != NULL)
        return text;
    return files == PLACE_ONE_FILE && place->digest[0] != '\0' ? place->digest : NULL;
}

char *
place_digests_text(const struct storage_place *place)
{
    char *text = place->digests != NULL ? json_dumps(place->digests, JSON_SORT_KEYS) : copy("");
    CHECK(text != NULL);
    return text;
}

void
place_fini(struct storage_place *place)
{
    free(place->shown);
    free(place->url);
    free(place->bucket);
    free(place->path);
    free(place->region);
    free(place->key_id);
    free(place->role);
    memory_free_secret(place->secret);
    memory_free_secret(place->token);
    for (unsigned i = 0; i < place->header_count; i++)
        memory_free_secret(place->headers[i]);
    free(place->authority);
    free(place->client_certificate);
    memory_free_secret(place->client_key);
    json_decref(place->digests);
    *place = (struct storage_place){0};
}
