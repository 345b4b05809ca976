/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/manifest/model.h"

#include <openssl/evp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/json.h"
#include "serving/manifest/check.h"

enum { PARAMETERS_MAX = 64, URI_PARAMETERS_MAX = 3, ID_DIGEST_BYTES = 5 };

struct model_parameter {
    const char *name;
    const char *value;
};

/* The spec of ModelMesh Serving's Predictor. Texts that are not given are NULL. */
struct spec {
    const char *format;
    const char *version;
    const char *runtime;
    const char *protocol;
    const char *path;   /* of the Predictor itself, outdated */
    const char *schema; /* likewise */
    bool has_storage;
    const char *storage_path;
    const char *storage_schema;
    const char *storage_key;
    bool has_parameters;
    struct model_parameter parameters[PARAMETERS_MAX + URI_PARAMETERS_MAX]; /* sorted by name */
    uint32_t parameter_count;
    const char *s3_key; /* outdated; NULL: no s3 */
    const char *s3_bucket;
};

/* ---- parameters ---- */

/* Later ones win. */
static void
put_parameter(struct spec *spec, const char *name, const char *value)
{
    uint32_t at = 0;
    while (at < spec->parameter_count && strcmp(spec->parameters[at].name, name) < 0)
        at++;
    bool same = at < spec->parameter_count && strcmp(spec->parameters[at].name, name) == 0;
    if (!same) {
        CHECK(spec->parameter_count < PARAMETERS_MAX + URI_PARAMETERS_MAX);
        memmove(&spec->parameters[at + 1], &spec->parameters[at],
                (spec->parameter_count++ - at) * sizeof(struct model_parameter));
    }
    spec->parameters[at] = (struct model_parameter){name, value};
}

static void
read_parameters(struct spec *spec, const struct tree_node *parameters, struct tree_report *report)
{
    if (parameters == NULL)
        return;
    spec->has_parameters = true;
    if (parameters->count > PARAMETERS_MAX) {
        report_add(report, parameters->line,
                   "storage.parameters: has %u entries: must be at most "
                   "%d",
                   parameters->count, PARAMETERS_MAX);
        return;
    }
    for (const struct tree_node *one = parameters->first; one != NULL; one = one->next)
        put_parameter(spec, one->key, one->text);
}

/* ---- storageUri ---- */

/* "SCHEME://HOST/PATH" in pieces, which spec's texts point into. */
struct uri {
    char *scheme; /* the memory of all three */
    char *host;
    char *path; /* without its first slash */
    char *url;  /* "SCHEME://HOST" */
};

static void
uri_fini(struct uri *uri)
{
    free(uri->scheme);
    free(uri->url);
}

/* Cuts the text at the first `mark` and returns what follows; "": there is none. */
static char *
cut(char *text, const char *mark)
{
    char *at = strstr(text, mark);
    if (at == NULL)
        return strchr(text, '\0');
    *at = '\0';
    return at + strlen(mark);
}

/* False: not of that form, or with parts that would need decoding. */
static bool
uri_split(const char *text, struct uri *uri)
{
    if (text[strcspn(text, "?#%@")] != '\0')
        return false;
    uri->scheme = must_copy(text);
    uri->host = cut(uri->scheme, "://");
    uri->path = cut(uri->host, "/");
    uri->url = must_format("%s://%s", uri->scheme, uri->host);
    return uri->scheme[0] != '\0' && uri->host[0] != '\0';
}

/* "https://ACCOUNT.blob.core.windows.net/CONTAINER/PATH" */
static void
put_azure(struct spec *spec, struct uri *uri)
{
    char *path = cut(uri->path, "/");
    (void)cut(uri->host, ".");
    put_parameter(spec, "type", "azure");
    put_parameter(spec, "account_name", uri->host);
    put_parameter(spec, "container", uri->path);
    spec->storage_path = path;
}

static void
put_http(struct spec *spec, struct uri *uri)
{
    static const char azure[] = ".blob.core.windows.net";
    size_t bytes = strlen(uri->host);
    size_t ending = strlen(azure);
    if (bytes > ending && strcmp(uri->host + bytes - ending, azure) == 0) {
        put_azure(spec, uri);
        return;
    }
    put_parameter(spec, "type", "http");
    put_parameter(spec, "url", uri->url);
}

static void
read_uri(struct spec *spec, const struct tree_node *given, struct uri *uri,
         struct tree_report *report)
{
    static const struct {
        const char *scheme, *type, *host;
    } rows[] = {{"s3", "s3", "bucket"}, {"gs", "gcs", "bucket"}, {"pvc", "pvc", "name"}};
    char shown[REPORT_VALUE_BYTES];
    bool split = uri_split(given->text, uri);
    spec->has_parameters = true;
    spec->storage_path = split ? uri->path : "";
    for (size_t i = 0; split && i < ARRAY_COUNT(rows); i++)
        if (strcmp(uri->scheme, rows[i].scheme) == 0) {
            put_parameter(spec, "type", rows[i].type);
            put_parameter(spec, rows[i].host, uri->host);
            return;
        }
    if (split && (strcmp(uri->scheme, "http") == 0 || strcmp(uri->scheme, "https") == 0))
        put_http(spec, uri);
    else
        report_add(report, given->line,
                   "spec.predictor.model.storageUri: must be s3:, gs:, pvc:, http: or https: with "
                   "//HOST/PATH and without ?, #, %% and @, not %s: write storage.path and "
                   "storage.parameters instead",
                   node_show(given, shown));
}

/* ---- kinds ---- */

static const char *
annotation(const struct tree_node *document, const char *name)
{
    return manifest_text(manifest_find(manifest_find(document, "metadata"), "annotations"), name);
}

static const char *
first_of(const char *one, const char *other)
{
    return one != NULL ? one : other;
}

static void
read_service(struct spec *spec, const struct tree_node *document, struct uri *uri,
             struct tree_report *report)
{
    const struct tree_node *model =
        manifest_find(manifest_find(manifest_find(document, "spec"), "predictor"), "model");
    const struct tree_node *format = manifest_find(model, "modelFormat");
    const struct tree_node *storage = manifest_find(model, "storage");
    const struct tree_node *given = manifest_find(model, "storageUri");
    spec->format = manifest_text(format, "name");
    spec->version = manifest_text(format, "version");
    spec->runtime = first_of(manifest_text(model, "runtime"),
                             annotation(document, "serving.kserve.io/servingRuntime"));
    spec->protocol = manifest_text(model, "protocolVersion");
    spec->path = "";
    spec->has_storage = spec->has_parameters = true;
    spec->storage_path = manifest_text(storage, "path");
    spec->storage_key = first_of(manifest_text(storage, "key"),
                                 annotation(document, "serving.kserve.io/secretKey"));
    spec->storage_schema = first_of(manifest_text(storage, "schemaPath"),
                                    annotation(document, "serving.kserve.io/schemaPath"));
    read_parameters(spec, manifest_find(storage, "parameters"), report);
    if ((given == NULL) == (spec->storage_path == NULL))
        report_add(report, model->line,
                   "spec.predictor.model: must have either storageUri or storage.path");
    else if (given != NULL)
        read_uri(spec, given, uri, report);
}

static void
read_predictor(struct spec *spec, const struct tree_node *document, struct tree_report *report)
{
    const struct tree_node *from = manifest_find(document, "spec");
    const struct tree_node *format = manifest_find(from, "modelType");
    const struct tree_node *storage = manifest_find(from, "storage");
    const struct tree_node *s3 = manifest_find(storage, "s3");
    spec->format = manifest_text(format, "name");
    spec->version = manifest_text(format, "version");
    spec->runtime = manifest_text(manifest_find(from, "runtime"), "name");
    spec->protocol = manifest_text(from, "protocolVersion");
    spec->path = first_of(manifest_text(from, "path"), "");
    spec->schema = manifest_text(from, "schemaPath");
    spec->has_storage = storage != NULL;
    spec->storage_path = manifest_text(storage, "path");
    spec->storage_key = manifest_text(storage, "key");
    spec->storage_schema = manifest_text(storage, "schemaPath");
    spec->s3_key = manifest_text(s3, "secretKey");
    spec->s3_bucket = manifest_text(s3, "bucket");
    read_parameters(spec, manifest_find(storage, "parameters"), report);
    if (storage != NULL && spec->storage_path != NULL && spec->path[0] != '\0')
        report_add(report, storage->line,
                   "Only one of spec.path and spec.storage.path can be specified");
    if (storage != NULL && spec->storage_schema != NULL && spec->schema != NULL)
        report_add(report, storage->line,
                   "Only one of spec.schemaPath and spec.storage.schemaPath can be specified");
    if (storage != NULL && s3 != NULL && storage->count > 1)
        report_add(report, s3->line,
                   "spec.storage.s3 cannot be specified with any other keys in spec.storage");
}

/* ---- bounds ---- */

static const struct {
    const char *name;
    uint32_t least, most;
    size_t offset;
} bounds[] = {
    {"shoal.dev/min-copies", 0, MANIFEST_COPIES_MAX, offsetof(struct serving_bounds, copies_min)},
    {"shoal.dev/max-copies", 1, MANIFEST_COPIES_MAX, offsetof(struct serving_bounds, copies_max)},
    {"shoal.dev/size-mib", 1, MANIFEST_SIZE_MIB_MAX, offsetof(struct serving_bounds, size_mib)},
};

bool
manifest_is_bound(const char *name)
{
    for (size_t i = 0; i < ARRAY_COUNT(bounds); i++)
        if (strcmp(bounds[i].name, name) == 0)
            return true;
    return false;
}

static struct serving_bounds
read_bounds(const struct tree_node *document, struct tree_report *report)
{
    struct serving_bounds read = {0};
    char shown[REPORT_VALUE_BYTES];
    const struct tree_node *annotations =
        manifest_find(manifest_find(document, "metadata"), "annotations");
    const struct tree_node *most = NULL;
    for (size_t i = 0; i < ARRAY_COUNT(bounds); i++) {
        const struct tree_node *one = manifest_find(annotations, bounds[i].name);
        if (one == NULL)
            continue;
        size_t digits = strspn(one->text, "0123456789");
        uint64_t value = digits <= 9 ? strtoull(one->text, NULL, 10) : UINT64_MAX;
        if (digits == 0 || one->text[digits] != '\0' || value < bounds[i].least ||
            value > bounds[i].most)
            report_add(report, one->line,
                       "metadata.annotations.%s: must be a number from %u to %u, not %s",
                       bounds[i].name, bounds[i].least, bounds[i].most, node_show(one, shown));
        else
            *(uint32_t *)(void *)((char *)&read + bounds[i].offset) = (uint32_t)value;
        most = bounds[i].offset == offsetof(struct serving_bounds, copies_max) ? one : most;
    }
    if (read.copies_max != 0 && read.copies_max < read.copies_min)
        report_add(report, most->line,
                   "metadata.annotations.shoal.dev/max-copies: must be at least min-copies (%u), "
                   "not %u",
                   read.copies_min, read.copies_max);
    return read;
}

/* ---- as Go writes JSON ---- */

static void
put_text(struct json *json, const char *text)
{
    static const struct {
        const char *from, *to;
    } rows[] = {{"<", "\\u003c"},
                {">", "\\u003e"},
                {"&", "\\u0026"},
                {"\xe2\x80\xa8", "\\u2028"},
                {"\xe2\x80\xa9", "\\u2029"}};
    struct bytes plain = {0};
    struct bytes escaped = {0};
    json_quote(&plain, text, strlen(text), JSON_STYLE_SHORT);
    for (size_t i = 0; i < plain.used;) {
        size_t row = 0;
        size_t length = 0;
        for (; row < ARRAY_COUNT(rows); row++) {
            length = strlen(rows[row].from);
            if (i + length <= plain.used && memcmp(plain.data + i, rows[row].from, length) == 0)
                break;
        }
        if (row < ARRAY_COUNT(rows))
            bytes_put_text(&escaped, rows[row].to);
        else
            bytes_put_char(&escaped, plain.data[i]);
        i += row < ARRAY_COUNT(rows) ? length : 1;
    }
    CHECK(!plain.failed && !escaped.failed);
    json_put_raw(json, escaped.data, escaped.used);
    bytes_fini(&plain);
    bytes_fini(&escaped);
}

static void
put_field(struct json *json, const char *name, const char *text)
{
    if (text == NULL)
        return;
    json_name(json, name);
    put_text(json, text);
}

static void
put_format(struct json *json, const char *name, const struct spec *spec)
{
    json_field_open(json, name, '{');
    put_field(json, "name", spec->format);
    put_field(json, "version", spec->version);
    json_close(json, '}');
}

static void
put_parameters(struct json *json, const char *name, const struct spec *spec)
{
    json_field_open(json, name, '{');
    for (uint32_t i = 0; i < spec->parameter_count; i++)
        put_field(json, spec->parameters[i].name, spec->parameters[i].value);
    json_close(json, '}');
}

static void
put_storage(struct json *json, const struct spec *spec)
{
    json_field_open(json, "storage", '{');
    put_field(json, "path", spec->storage_path);
    put_field(json, "schemaPath", spec->storage_schema);
    if (spec->has_parameters)
        put_parameters(json, "parameters", spec);
    put_field(json, "key", spec->storage_key);
    if (spec->s3_key != NULL) {
        json_field_open(json, "s3", '{');
        put_field(json, "secretKey", spec->s3_key);
        put_field(json, "bucket", spec->s3_bucket);
        json_close(json, '}');
    }
    json_close(json, '}');
}

/* The spec, whose digest ends the id. */
static void
put_spec(struct bytes *to, const struct spec *spec)
{
    struct json json = json_begin(to, JSON_STYLE_SHORT);
    json_open(&json, '{');
    put_format(&json, "modelType", spec);
    put_field(&json, "path", spec->path);
    put_field(&json, "schemaPath", spec->schema);
    if (spec->has_storage)
        put_storage(&json, spec);
    if (spec->runtime != NULL) {
        json_field_open(&json, "runtime", '{');
        put_field(&json, "name", spec->runtime);
        json_close(&json, '}');
    }
    put_field(&json, "protocolVersion", spec->protocol);
    json_close(&json, '}');
}

static void
put_key(struct bytes *to, const struct spec *spec)
{
    struct json json = json_begin(to, JSON_STYLE_SHORT);
    json_open(&json, '{');
    put_field(&json, "storage_key", first_of(spec->storage_key, spec->s3_key));
    if (spec->parameter_count > 0)
        put_parameters(&json, "storage_params", spec);
    else if (!spec->has_parameters && spec->s3_bucket != NULL) {
        json_field_open(&json, "storage_params", '{');
        put_field(&json, "bucket", spec->s3_bucket);
        json_close(&json, '}');
    }
    put_format(&json, "model_type", spec);
    if (spec->has_storage)
        put_field(&json, "schema_path", first_of(spec->storage_schema, spec->schema));
    json_close(&json, '}');
    bytes_put_char(to, '\0');
}

/* ---- the model ---- */

static char *
make_id(const char *name, const char *owner, const struct spec *spec)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    char hex[2 * ID_DIGEST_BYTES + 1];
    struct bytes json = {0};
    put_spec(&json, spec);
    CHECK(!json.failed && EVP_Digest(json.data, json.used, digest, NULL, EVP_sha1(), NULL) == 1);
    bytes_fini(&json);
    for (size_t i = 0; i < ID_DIGEST_BYTES; i++) {
        hex[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    hex[(size_t)2 * ID_DIGEST_BYTES] = '\0';
    return must_format("%s__%s-%s", name, owner, hex);
}

static char *
make_type(const struct spec *spec)
{
    if (spec->runtime != NULL && spec->runtime[0] != '\0')
        return must_format("rt:%s", spec->runtime);
    return must_format("mt:%s%s%s%s%s", spec->format, spec->version != NULL ? ":" : "",
                       first_of(spec->version, ""), spec->protocol != NULL ? "|pv:" : "",
                       first_of(spec->protocol, ""));
}

void
manifest_model_find(const struct tree_node *document, struct tree_report *report,
                    struct manifest *manifest)
{
    struct spec spec = {0};
    struct uri uri = {0};
    struct bytes key = {0};
    bool service = manifest->kind == MANIFEST_INFERENCE_SERVICE;
    uint32_t mistakes = report_total(report);
    if (!service && manifest->kind != MANIFEST_PREDICTOR)
        return;
    if (service)
        read_service(&spec, document, &uri, report);
    else
        read_predictor(&spec, document, report);
    struct serving_bounds read = read_bounds(document, report);
    if (report_total(report) == mistakes) {
        const char *owner = service ? "isvc" : "ksp";
        struct manifest_model *model = &manifest->model;
        put_key(&key, &spec);
        CHECK(!key.failed);
        model->id = make_id(manifest->name, owner, &spec);
        model->type = make_type(&spec);
        model->path = must_copy(spec.has_storage ? first_of(spec.storage_path, spec.path) : "");
        model->key = bytes_take(&key, &(size_t){0});
        manifest->wanted =
            (struct serving_wanted){.form = service ? SERVING_INFERENCE_SERVICE : SERVING_PREDICTOR,
                                    .owner = owner,
                                    .model = model->id,
                                    .format = spec.format,
                                    .version = spec.version,
                                    .protocol = spec.protocol,
                                    .runtime = spec.runtime,
                                    .bounds = read};
    }
    uri_fini(&uri);
}
