/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "coordinator/protocol/oip_request.h"
#include "ipc/spec.h"

enum status
oip_check_version(const char *version, const struct oip_model_info *model, struct error *error)
{
    if (version[0] == '\0' || model->version == NULL || strcmp(version, model->version) == 0)
        return STATUS_OK;
    return error_set(error, STATUS_NOT_FOUND, "model \"%s\": no version \"%.32s\", but \"%s\"",
                     model->name, version,
                     model->versions != NULL ? model->versions : model->version);
}

static bool
input_given(const struct oip_request *request, const char *name)
{
    for (uint32_t i = 0; i < request->message->n_inputs; i++)
        if (strcmp(request->inputs[i].tensor.name, name) == 0)
            return true;
    return false;
}

static enum status
check_rows(const struct shoal_tensor *tensor, const struct oip_model_info *model,
           struct error *error)
{
    const struct handshake_tensor *spec =
        spec_find(model->inputs, model->input_count, tensor->name);
    bool has_rows =
        spec != NULL && spec->rank != SHOAL_RANK_ANY && spec->rank > 0 && spec->shape[0] == -1;
    if (model->rows_max == 0 || !has_rows || tensor->shape[0] <= (int64_t)model->rows_max)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "tensor \"%s\": %lld rows, but model \"%s\" takes at most %u in a request "
                     "(max_batch_size)",
                     tensor->name, (long long)tensor->shape[0], model->name,
                     (unsigned)model->rows_max);
}

static enum status
check_inputs(const struct oip_request *request, const struct oip_model_info *model,
             struct error *error)
{
    for (uint32_t i = 0; i < request->message->n_inputs; i++) {
        enum status status = spec_check_input(&request->inputs[i].tensor, model->inputs,
                                              model->input_count, model->name, error);
        if (status == STATUS_OK)
            status = check_rows(&request->inputs[i].tensor, model, error);
        if (status != STATUS_OK)
            return status;
    }
    for (uint32_t i = 0; i < model->input_count; i++)
        if (!input_given(request, model->inputs[i].name))
            return spec_missing(&model->inputs[i], model->name, error);
    return STATUS_OK;
}

enum status
oip_check_model(const struct oip_request *request, const struct oip_model_info *model,
                struct error *error)
{
    const Inference__ModelInferRequest *message = request->message;
    CHECK(message != NULL);
    enum status status = oip_check_version(message->model_version, model, error);
    if (status == STATUS_OK && model->input_count > 0)
        status = check_inputs(request, model, error);
    if (status != STATUS_OK || model->output_count == 0)
        return status;
    for (size_t i = 0; i < message->n_outputs; i++)
        if (spec_find(model->outputs, model->output_count, message->outputs[i]->name) == NULL)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "requested output \"%s\": model \"%s\" has no such output",
                             message->outputs[i]->name, model->name);
    return STATUS_OK;
}
