/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by scale and shift: one number from the configuration and one tensor "x" of one of four
 * datatypes. A whole number applies to integers too, exactly; a fraction only to floating point.
 */
#pragma once

#include <errno.h>
#include <shoal/modelet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct number {
    double real;
    int64_t whole; /* meaningful if is_whole */
    int is_whole;
};

/* False if `text` is not a number, or does not fit the type. */
static inline int
number_parse(const char *text, struct number *number)
{
    char *end;
    errno = 0;
    number->whole = strtoll(text, &end, 10);
    number->is_whole = end != text && *end == '\0' && errno == 0;
    errno = 0;
    number->real = strtod(text, &end);
    return end != text && *end == '\0' && errno == 0;
}

/* Reads the optional parameter `name` into `*number`; any other parameter is an error. */
static inline int
number_from_params(const struct shoal_open *open, const char *name, struct number *number,
                   struct shoal_error *error)
{
    for (uint32_t i = 0; i < open->param_count; i++) {
        const struct shoal_param *param = &open->params[i];
        if (strcmp(param->name, name) != 0) {
            snprintf(error->text, sizeof error->text,
                     "unknown parameter \"%s\"; the only one is \"%s\"", param->name, name);
            return SHOAL_INVALID_ARGUMENT;
        }
        if (!number_parse(param->value, number)) {
            snprintf(error->text, sizeof error->text, "parameter \"%s\": \"%s\" is not a number",
                     name, param->value);
            return SHOAL_INVALID_ARGUMENT;
        }
    }
    return SHOAL_OK;
}

/* Returns the tensor "x", if `number` can be applied to its datatype. NULL: the item has failed. */
static inline const struct shoal_tensor *
number_input(const struct number *number, const char *number_name, const struct shoal_host *host,
             struct shoal_item *item)
{
    const struct shoal_tensor *x = NULL;
    for (uint32_t i = 0; i < item->input_count && x == NULL; i++) {
        if (strcmp(item->inputs[i].name, "x") == 0)
            x = &item->inputs[i];
    }
    if (x == NULL) {
        host->fail(item, SHOAL_INVALID_ARGUMENT, "there is no input tensor \"x\"");
        return NULL;
    }
    switch (x->datatype) {
    case SHOAL_FP32:
    case SHOAL_FP64: return x;
    case SHOAL_INT32:
    case SHOAL_INT64:
        if (number->is_whole)
            return x;
        host->fail(item, SHOAL_INVALID_ARGUMENT,
                   "tensor \"x\" has integers, but the %s is configured as %g", number_name,
                   number->real);
        return NULL;
    default:
        host->fail(item, SHOAL_INVALID_ARGUMENT,
                   "tensor \"x\" must be of datatype FP32, FP64, INT32 or INT64");
        return NULL;
    }
}
