/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads protobuf's text format without a schema: reports each message and each value with the names
 * that lead to it. Pure; depth, names and values are bounded. Not read: extensions (`[a.b]`).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { PBTXT_DEPTH_MAX = 16, PBTXT_PATH_BYTES = 256, PBTXT_TEXT_BYTES = 256 };

struct pbtxt_item {
    enum { PBTXT_MESSAGE, PBTXT_VALUE } kind;
    const char *path; /* "version_policy.latest.num_versions" */
    const char *text; /* of a value, without quotes; a longer one is cut. "" of a message */
};

/* Called at the beginning of each message, and for each value; may refuse it. */
typedef enum status pbtxt_visit(void *context, const struct pbtxt_item *item, struct error *error);

/* INVALID_ARGUMENT names the line. */
enum status pbtxt_read(const char *text, size_t bytes, pbtxt_visit *visit, void *context,
                       struct error *error) WARN_UNUSED;
