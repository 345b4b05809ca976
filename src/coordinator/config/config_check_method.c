/* SPDX-License-Identifier: Apache-2.0 */
/* `method` and `id_path` of a pipeline: their form, and that no method is answered twice. */
#include <string.h>

#include "coordinator/config/config_tree.h"

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
#define DIGITS "0123456789"

/* The position after an identifier of protobuf; NULL: there is none. */
static const char *
skip_identifier(const char *text)
{
    size_t bytes = strspn(text, LETTERS);
    return bytes == 0 ? NULL : text + bytes + strspn(text + bytes, LETTERS DIGITS);
}

/* "/package.Service/Method", where the package may have several parts, or none. */
static bool
is_method(const char *text)
{
    if (*text != '/')
        return false;
    do
        text = skip_identifier(text + 1);
    while (text != NULL && *text == '.');
    if (text == NULL || *text != '/')
        return false;
    text = skip_identifier(text + 1);
    return text != NULL && *text == '\0';
}

/* The node's own services, and those that belong to them. */
static bool
is_own(const char *method)
{
    static const char *const own[] = {"/inference.GRPCInferenceService/", "/grpc.health.",
                                      "/grpc.reflection.", "/mmesh."};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (strncmp(method, own[i], strlen(own[i])) == 0)
            return true;
    return false;
}

static void
check_unique(struct config_reader *reader, const struct config_pipeline *pipeline, int line)
{
    const struct config *config = reader->config;
    for (uint32_t i = 0; i < config->pipeline_count; i++) {
        const struct config_pipeline *other = &config->pipelines[i];
        if (other->method != NULL && strcmp(other->method, pipeline->method) == 0)
            report_add(reader->report, line,
                       "`method`: %s is answered by the pipeline that begins on line %d: a method "
                       "has one pipeline",
                       pipeline->method, other->line);
    }
}

void
config_check_method(struct config_reader *reader, const struct config_pipeline *pipeline,
                    const struct config_given *given)
{
    char shown[REPORT_VALUE_BYTES];
    const struct tree_node *method = given->nodes[KEY_METHOD];
    const struct tree_node *id_path =
        given->refused[KEY_ID_PATH] ? NULL : given->nodes[KEY_ID_PATH];
    if (id_path != NULL && method == NULL)
        report_add(reader->report, id_path->key_line,
                   "`id_path` without a `method`: a request of the Open Inference Protocol names "
                   "its model in `model_name`");
    else if (id_path != NULL && given->nodes[KEY_MODELS] == NULL)
        report_add(reader->report, id_path->key_line,
                   "`id_path` without `models`: the pipeline answers all requests of its method");
    if (method == NULL || pipeline->method == NULL)
        return;
    if (!is_method(pipeline->method))
        report_add(reader->report, method->line,
                   "`method` must be like \"/package.Service/Method\", not %s",
                   text_show(pipeline->method, shown));
    else if (is_own(pipeline->method))
        report_add(reader->report, method->line,
                   "`method`: %s is of a service that this node has itself: no pipeline can be "
                   "bound to it",
                   pipeline->method);
    else
        check_unique(reader, pipeline, method->line);
    if (pipeline->local_clients > 0)
        report_add(reader->report, given->nodes[KEY_LOCAL_CLIENTS]->key_line,
                   "`local_clients` with a `method`: a local client sends tensors, and this "
                   "pipeline takes messages");
}
