/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/models/model_format.h"

#include <stdbool.h>
#include <string.h>

#include "base/check.h"

enum { FORMAT_XGBOOST, FORMAT_ONNX, FORMAT_MLP };

const struct model_format model_formats[FORMAT_COUNT] = {
    [FORMAT_XGBOOST] = {"xgboost", "libxgboost_modelet.so", ".json, .ubj", "labels: on"},
    [FORMAT_ONNX] = {"onnx", "libonnx_modelet.so", ".onnx", NULL},
    [FORMAT_MLP] = {"mlp", "libmlp.so", ".mlp", NULL},
};

/* XGBoost writes one object in JSON or UBJSON, both of which begin with a brace; its first key is
 * "learner", or "version" with the numbers of a release before it. */
static bool
is_xgboost(const unsigned char *bytes, size_t size)
{
    static const char key[] = "learner";
    return bytes[0] == '{' && memmem(bytes, size, key, sizeof(key) - 1) != NULL;
}

/* ONNX is a protobuf message: first its `ir_version`, a small number, then a field whose number and
 * wire type fit: producer's name and version, domain, model version, documentation, graph, opset.
 */
static bool
is_onnx(const unsigned char *bytes, size_t size)
{
    static const unsigned char next[] = {0x12, 0x1a, 0x22, 0x28, 0x32, 0x3a, 0x42, 0x72};
    return size > 2 && bytes[0] == 0x08 && bytes[1] > 0 && bytes[1] < 0x40 &&
           memchr(next, bytes[2], sizeof(next)) != NULL;
}

static bool
is_mlp(const unsigned char *bytes, size_t size)
{
    static const char magic[] = "SHOALMLP";
    return size >= sizeof(magic) - 1 && memcmp(bytes, magic, sizeof(magic) - 1) == 0;
}

const struct model_format *
model_format_of(const void *bytes, size_t size)
{
    if (size == 0)
        return NULL;
    if (is_mlp(bytes, size))
        return &model_formats[FORMAT_MLP];
    if (is_xgboost(bytes, size))
        return &model_formats[FORMAT_XGBOOST];
    return is_onnx(bytes, size) ? &model_formats[FORMAT_ONNX] : NULL;
}

enum model_format_name
model_format_name(const char *name)
{
    static const char *const endings[] = {".ubj", ".onnx", ".mlp"};
    size_t length = strlen(name);
    for (size_t i = 0; i < ARRAY_COUNT(endings); i++) {
        size_t bytes = strlen(endings[i]);
        if (length > bytes && strcmp(name + length - bytes, endings[i]) == 0)
            return FORMAT_NAME_MODEL;
    }
    return FORMAT_NAME_NONE;
}
