/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/rest_route.h"

#include <string.h>

#include "base/percent.h"

enum { WORDS_MAX = 6 };

/* Requests without a schema have no body, or one that is not looked at. */
const struct rest_row rest_rows[] = {
    {"/v2/models/{model}/infer", REST_INFER, 0, "Call a model", "InferRequest", "InferResponse"},
    {"/v2/models/{model}/versions/{version}/infer", REST_INFER, 0, "Call a version of a model",
     "InferRequest", "InferResponse"},
    {"/v1/models/{model}:predict", REST_PREDICT, 0, "Call a model by KServe's v1 protocol",
     "PredictRequest", "PredictResponse"},
    {"/v2/models/{model}/generate", REST_GENERATE, 0, "Call a model by its inputs' names",
     "GenerateRequest", "GenerateResponse"},
    {"/v2/models/{model}/versions/{version}/generate", REST_GENERATE, 0,
     "Call a version of a model by its inputs' names", "GenerateRequest", "GenerateResponse"},
    {"/v2/models/{model}/generate_stream", REST_GENERATE_STREAM, 0,
     "Call a model; the answer comes in pieces", "GenerateRequest", "GenerateResponse"},
    {"/v2/models/{model}/versions/{version}/generate_stream", REST_GENERATE_STREAM, 0,
     "Call a version of a model; the answer comes in pieces", "GenerateRequest",
     "GenerateResponse"},
    {"/v2", REST_SERVER, 0, "Describe the server", NULL, "Server"},
    {"/v2/openapi.json", REST_OPENAPI, TRITON_INDEX, "This document", NULL, "Object"},
    {"/v2/health/live", REST_LIVE, 0, "Check that the node lives", NULL, "Health"},
    {"/v2/health/ready", REST_READY, 0, "Check that the node is ready", NULL, "Health"},
    {"/v2/models/stats", REST_TRITON, TRITON_STATISTICS, "Statistics of all models", NULL,
     "Object"},
    {"/v2/models/{model}", REST_MODEL, 0, "Describe a model", NULL, "Model"},
    {"/v2/models/{model}/versions/{version}", REST_MODEL, 0, "Describe a version of a model", NULL,
     "Model"},
    {"/v2/models/{model}/ready", REST_MODEL_READY, 0, "Check that a model is ready", NULL, "Ready"},
    {"/v2/models/{model}/versions/{version}/ready", REST_MODEL_READY, 0,
     "Check that a version of a model is ready", NULL, "Ready"},
    {"/v1/models/{model}", REST_MODEL_READY, 0, "Check that a model is ready", NULL, "Ready"},
    {"/v1/models", REST_MODELS, TRITON_INDEX, "List the models", NULL, "Models"},
    {"/v2/models", REST_MODELS, TRITON_INDEX, "List the models", NULL, "Models"},
    {"/v2/models/{model}/config", REST_TRITON, TRITON_CONFIG, "Triton's configuration of a model",
     NULL, "Object"},
    {"/v2/models/{model}/versions/{version}/config", REST_TRITON, TRITON_CONFIG,
     "Triton's configuration of a version of a model", NULL, "Object"},
    {"/v2/models/{model}/stats", REST_TRITON, TRITON_STATISTICS, "Statistics of a model", NULL,
     "Object"},
    {"/v2/models/{model}/versions/{version}/stats", REST_TRITON, TRITON_STATISTICS,
     "Statistics of a version of a model", NULL, "Object"},
    {"/v2/repository/index", REST_TRITON, TRITON_INDEX, "List the models with their states",
     "IndexRequest", "Index"},
    {"/v2/repository/models/{model}/load", REST_TRITON, TRITON_LOAD, "Load a model", "Object",
     "Object"},
    {"/v2/repository/models/{model}/unload", REST_TRITON, TRITON_UNLOAD, "Unload a model", "Object",
     "Object"},
    {"/v2/systemsharedmemory/status", REST_TRITON, TRITON_SHARED_STATUS,
     "List the regions of shared memory", NULL, "Regions"},
    {"/v2/systemsharedmemory/region/{region}/status", REST_TRITON, TRITON_SHARED_STATUS,
     "Describe a region of shared memory", NULL, "Regions"},
    {"/v2/systemsharedmemory/region/{region}/register", REST_TRITON, TRITON_SHARED_REGISTER,
     "Register a region of shared memory", "RegisterRequest", "Object"},
    {"/v2/systemsharedmemory/unregister", REST_TRITON, TRITON_SHARED_UNREGISTER,
     "Forget all regions of shared memory", NULL, "Object"},
    {"/v2/systemsharedmemory/region/{region}/unregister", REST_TRITON, TRITON_SHARED_UNREGISTER,
     "Forget a region of shared memory", NULL, "Object"},
    {"/v2/cudasharedmemory/status", REST_TRITON, TRITON_CUDA_STATUS,
     "List the regions of CUDA memory: none", NULL, "Regions"},
    {"/v2/cudasharedmemory/region/{region}/status", REST_TRITON, TRITON_CUDA_STATUS,
     "Describe a region of CUDA memory: there is none", NULL, "Regions"},
    {"/v2/cudasharedmemory/region/{region}/register", REST_TRITON, TRITON_CUDA_REGISTER,
     "Refused: there is no CUDA memory", "Object", "Object"},
    {"/v2/cudasharedmemory/unregister", REST_TRITON, TRITON_CUDA_UNREGISTER,
     "Forget all regions of CUDA memory: none", NULL, "Object"},
    {"/v2/cudasharedmemory/region/{region}/unregister", REST_TRITON, TRITON_CUDA_UNREGISTER,
     "Forget a region of CUDA memory: there is none", NULL, "Object"},
};
const size_t rest_row_count = sizeof(rest_rows) / sizeof(rest_rows[0]);

/* Cuts the path at its slashes; 0: too long, or too many words. */
static unsigned
split(char *path, char *words[WORDS_MAX])
{
    size_t bytes = strlen(path);
    if (bytes > 1 && path[bytes - 1] == '/')
        path[bytes - 1] = '\0';
    unsigned count = 0;
    for (char *slash = path; slash != NULL && *slash == '/'; slash = strchr(slash + 1, '/')) {
        if (count == WORDS_MAX)
            return 0;
        words[count++] = slash + 1;
    }
    for (unsigned i = 1; i < count; i++)
        words[i][-1] = '\0';
    for (unsigned i = 0; i < count; i++)
        percent_decode(words[i]);
    return count;
}

/* Returns whether a word is as the template's segment has it. Its variable part goes to the
 * route. */
static bool
match_word(struct rest_route *route, const char *segment, size_t bytes, char *word)
{
    static const char model[] = "{model}";
    static const char version[] = "{version}";
    static const char region[] = "{region}";
    size_t word_bytes = strlen(word);
    bool is_region = bytes == sizeof(region) - 1 && memcmp(segment, region, bytes) == 0;
    bool is_version = bytes == sizeof(version) - 1 && memcmp(segment, version, bytes) == 0;
    bool is_model = bytes >= sizeof(model) - 1 && memcmp(segment, model, sizeof(model) - 1) == 0;
    if (is_region) {
        route->region = word;
        return true;
    }
    if (!is_version && !is_model)
        return word_bytes == bytes && memcmp(word, segment, bytes) == 0;
    if (is_version) {
        route->version = word;
        return true;
    }
    size_t end_bytes = bytes - (sizeof(model) - 1); /* ":predict" */
    if (word_bytes < end_bytes ||
        memcmp(word + word_bytes - end_bytes, segment + bytes - end_bytes, end_bytes) != 0)
        return false;
    word[word_bytes - end_bytes] = '\0'; /* no other row has such an end */
    route->model = word;
    return true;
}

static bool
match(struct rest_route *route, const char *path, char *words[WORDS_MAX], unsigned count)
{
    route->model = "";
    route->version = "";
    route->region = "";
    for (unsigned i = 0; i < count; i++) {
        if (*path != '/')
            return false;
        size_t bytes = strcspn(path + 1, "/");
        if (!match_word(route, path + 1, bytes, words[i]))
            return false;
        path += 1 + bytes;
    }
    return *path == '\0';
}

void
rest_route(struct rest_route *route, const char *path)
{
    char *words[WORDS_MAX];
    size_t bytes = strlen(path);
    *route = (struct rest_route){.what = REST_NOWHERE};
    if (bytes > REST_PATH_BYTES_MAX)
        path = "";
    memcpy(route->path, path, strlen(path) + 1);
    unsigned count = split(route->path, words);
    for (size_t i = 0; count > 0 && i < rest_row_count; i++) {
        if (!match(route, rest_rows[i].path, words, count))
            continue;
        route->what = rest_rows[i].what;
        route->row = &rest_rows[i];
        return;
    }
    route->model = "";
    route->version = "";
    route->region = "";
}

const char *
rest_route_allows(const struct rest_row *row, enum http_method method)
{
    static const bool posts[TRITON_METHOD_COUNT] = {
        [TRITON_INDEX] = true,
        [TRITON_LOAD] = true,
        [TRITON_UNLOAD] = true,
        [TRITON_SHARED_REGISTER] = true,
        [TRITON_SHARED_UNREGISTER] = true,
        [TRITON_CUDA_REGISTER] = true,
        [TRITON_CUDA_UNREGISTER] = true,
    };
    bool is_posted = row->what == REST_TRITON && posts[row->method];
    bool infers = row->what >= REST_INFER && row->what <= REST_GENERATE_STREAM;
    if (infers || is_posted)
        return method == HTTP_POST ? NULL : "POST";
    return method == HTTP_GET || method == HTTP_HEAD ? NULL : "GET, HEAD";
}

int
rest_code(enum status status)
{
    static const short codes[STATUS_COUNT] = {
        [STATUS_OK] = 200,
        [STATUS_CANCELLED] = 499,
        [STATUS_UNKNOWN] = 500,
        [STATUS_INVALID_ARGUMENT] = 400,
        [STATUS_DEADLINE_EXCEEDED] = 504,
        [STATUS_NOT_FOUND] = 404,
        [STATUS_ALREADY_EXISTS] = 409,
        [STATUS_PERMISSION_DENIED] = 403,
        [STATUS_RESOURCE_EXHAUSTED] = 429,
        [STATUS_FAILED_PRECONDITION] = 503, /* the operator's to mend: a model's file is broken */
        [STATUS_ABORTED] = 409,
        [STATUS_OUT_OF_RANGE] = 400,
        [STATUS_UNIMPLEMENTED] = 501,
        [STATUS_INTERNAL] = 500,
        [STATUS_UNAVAILABLE] = 503,
        [STATUS_DATA_LOSS] = 500,
        [STATUS_UNAUTHENTICATED] = 401,
    };
    return (unsigned)status < STATUS_COUNT ? codes[status] : 500;
}
