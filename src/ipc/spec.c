/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/spec.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

const char *
datatype_name(uint32_t datatype)
{
    static const char *const names[SHOAL_DATATYPE_END] = {
        [SHOAL_BOOL] = "BOOL",     [SHOAL_UINT8] = "UINT8",   [SHOAL_UINT16] = "UINT16",
        [SHOAL_UINT32] = "UINT32", [SHOAL_UINT64] = "UINT64", [SHOAL_INT8] = "INT8",
        [SHOAL_INT16] = "INT16",   [SHOAL_INT32] = "INT32",   [SHOAL_INT64] = "INT64",
        [SHOAL_FP16] = "FP16",     [SHOAL_FP32] = "FP32",     [SHOAL_FP64] = "FP64",
        [SHOAL_BYTES] = "BYTES",   [SHOAL_BF16] = "BF16",
    };
    bool known = datatype > 0 && datatype < SHOAL_DATATYPE_END;
    return known ? names[datatype] : "unknown";
}

const struct handshake_tensor *
spec_find(const struct handshake_tensor *specs, uint32_t count, const char *name)
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
shape_fits(const struct shoal_tensor *tensor, const struct handshake_tensor *spec)
{
    if (spec->rank == SHOAL_RANK_ANY)
        return true;
    bool fits = tensor->rank == spec->rank;
    for (uint32_t i = 0; fits && i < spec->rank; i++)
        fits = spec->shape[i] == -1 || spec->shape[i] == tensor->shape[i];
    return fits;
}

enum status
spec_check_input(const struct shoal_tensor *tensor, const struct handshake_tensor *specs,
                 uint32_t count, const char *model, struct error *error)
{
    const struct handshake_tensor *spec = spec_find(specs, count, tensor->name);
    if (spec == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "tensor \"%s\": model \"%s\" has no such input", tensor->name, model);
    if (spec->datatype != SHOAL_DATATYPE_ANY && tensor->datatype != spec->datatype)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "tensor \"%s\": datatype %s, the model takes %s", tensor->name,
                         datatype_name(tensor->datatype), datatype_name(spec->datatype));
    if (shape_fits(tensor, spec))
        return STATUS_OK;
    char given[SHAPE_TEXT_BYTES];
    char wanted[SHAPE_TEXT_BYTES];
    format_shape(given, tensor->rank, tensor->shape);
    format_shape(wanted, spec->rank, spec->shape);
    return error_set(error, STATUS_INVALID_ARGUMENT, "tensor \"%s\": shape %s, the model takes %s",
                     tensor->name, given, wanted);
}

enum status
spec_missing(const struct handshake_tensor *spec, const char *model, struct error *error)
{
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "tensor \"%s\": missing, model \"%s\" takes it", spec->name, model);
}

static bool
is_given(const struct shoal_tensor *tensors, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(tensors[i].name, name) == 0)
            return true;
    return false;
}

enum status
spec_check(const struct handshake_tensor *specs, uint32_t count, const struct shoal_tensor *tensors,
           uint32_t tensor_count, const char *model, struct error *error)
{
    for (uint32_t i = 0; i < tensor_count; i++) {
        enum status status = spec_check_input(&tensors[i], specs, count, model, error);
        if (status != STATUS_OK)
            return status;
        if (is_given(tensors, i, tensors[i].name))
            return error_set(error, STATUS_INVALID_ARGUMENT, "tensor \"%s\": given twice",
                             tensors[i].name);
    }
    for (uint32_t i = 0; i < count; i++)
        if (!is_given(tensors, tensor_count, specs[i].name))
            return spec_missing(&specs[i], model, error);
    return STATUS_OK;
}
