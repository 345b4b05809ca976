/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/oip_contents.h"
#include "coordinator/oip_request.h"

enum status
oip_check_version(const char *version, const struct oip_model_info *model, struct error *error)
{
    if (version[0] == '\0' || strcmp(version, model->version) == 0)
        return STATUS_OK;
    return error_set(error, STATUS_NOT_FOUND, "model \"%s\": no version \"%.32s\", only \"%s\"",
                     model->name, version, model->version);
}

static const struct oip_spec *
find_spec(const struct oip_spec *specs, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(specs[i].name, name) == 0)
            return &specs[i];
    return NULL;
}

/* "[1,-1,64]"; SHOAL_RANK_MAX numbers of at most 20 characters fit. */
enum { SHAPE_TEXT_BYTES = SHOAL_RANK_MAX * 21 + 3 };

static void
format_shape(char text[SHAPE_TEXT_BYTES], uint32_t rank, const int64_t *shape)
{
    size_t at = 0;
    text[at++] = '[';
    for (uint32_t i = 0; i < rank && i < SHOAL_RANK_MAX; i++)
        at += (size_t)snprintf(text + at, SHAPE_TEXT_BYTES - at, i == 0 ? "%lld" : ",%lld",
                               (long long)shape[i]);
    CHECK(at + 2 <= SHAPE_TEXT_BYTES);
    text[at++] = ']';
    text[at] = '\0';
}

static bool
shape_fits(const struct shoal_tensor *tensor, const struct oip_spec *spec)
{
    if (spec->rank == SHOAL_RANK_ANY)
        return true;
    bool fits = tensor->rank == spec->rank;
    for (uint32_t i = 0; fits && i < spec->rank; i++)
        fits = spec->shape[i] == -1 || spec->shape[i] == tensor->shape[i];
    return fits;
}

static enum status
check_input(const struct shoal_tensor *tensor, const struct oip_model_info *model,
            struct error *error)
{
    const struct oip_spec *spec = find_spec(model->inputs, model->input_count, tensor->name);
    if (spec == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "tensor \"%s\": model \"%s\" has no such input", tensor->name,
                         model->name);
    if (spec->datatype != SHOAL_DATATYPE_ANY && tensor->datatype != spec->datatype)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "tensor \"%s\": datatype %s, the model takes %s", tensor->name,
                         oip_datatype_name(tensor->datatype), oip_datatype_name(spec->datatype));
    if (shape_fits(tensor, spec))
        return STATUS_OK;
    char given[SHAPE_TEXT_BYTES];
    char wanted[SHAPE_TEXT_BYTES];
    format_shape(given, tensor->rank, tensor->shape);
    format_shape(wanted, spec->rank, spec->shape);
    return error_set(error, STATUS_INVALID_ARGUMENT, "tensor \"%s\": shape %s, the model takes %s",
                     tensor->name, given, wanted);
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
check_inputs(const struct oip_request *request, const struct oip_model_info *model,
             struct error *error)
{
    for (uint32_t i = 0; i < request->message->n_inputs; i++) {
        enum status status = check_input(&request->inputs[i].tensor, model, error);
        if (status != STATUS_OK)
            return status;
    }
    for (uint32_t i = 0; i < model->input_count; i++)
        if (!input_given(request, model->inputs[i].name))
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "tensor \"%s\": missing, model \"%s\" takes it", model->inputs[i].name,
                             model->name);
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
        if (find_spec(model->outputs, model->output_count, message->outputs[i]->name) == NULL)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "requested output \"%s\": model \"%s\" has no such output",
                             message->outputs[i]->name, model->name);
    return STATUS_OK;
}
