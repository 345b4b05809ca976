/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a URL's query, or of a form's body, which may be any bytes. Pure. */
#pragma once

#include <stddef.h>

enum query_find {
    QUERY_FOUND,
    QUERY_ABSENT,
    QUERY_WRONG, /* does not fit, or has a bad escape or a NUL */
};

/* Decodes the first value of that name into `value`, terminated; "" unless it is found. */
enum query_find query_value(const char *query, const char *name, char *value, size_t room);
