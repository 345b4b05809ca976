/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

static const char *const status_names[STATUS_COUNT] = {
    [STATUS_OK] = "OK",
    [STATUS_CANCELLED] = "CANCELLED",
    [STATUS_UNKNOWN] = "UNKNOWN",
    [STATUS_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
    [STATUS_DEADLINE_EXCEEDED] = "DEADLINE_EXCEEDED",
    [STATUS_NOT_FOUND] = "NOT_FOUND",
    [STATUS_ALREADY_EXISTS] = "ALREADY_EXISTS",
    [STATUS_PERMISSION_DENIED] = "PERMISSION_DENIED",
    [STATUS_RESOURCE_EXHAUSTED] = "RESOURCE_EXHAUSTED",
    [STATUS_FAILED_PRECONDITION] = "FAILED_PRECONDITION",
    [STATUS_ABORTED] = "ABORTED",
    [STATUS_OUT_OF_RANGE] = "OUT_OF_RANGE",
    [STATUS_UNIMPLEMENTED] = "UNIMPLEMENTED",
    [STATUS_INTERNAL] = "INTERNAL",
    [STATUS_UNAVAILABLE] = "UNAVAILABLE",
    [STATUS_DATA_LOSS] = "DATA_LOSS",
    [STATUS_UNAUTHENTICATED] = "UNAUTHENTICATED",
};

const char *
status_name(enum status status)
{
    unsigned number = (unsigned)status;
    return number < STATUS_COUNT ? status_names[number] : status_names[STATUS_UNKNOWN];
}

enum status
status_from_number(long number)
{
    return number >= 0 && number < STATUS_COUNT ? (enum status)number : STATUS_UNKNOWN;
}

static enum status
status_from_errno(int code)
{
    switch (code) {
    case ENOENT: return STATUS_NOT_FOUND;
    case EACCES:
    case EPERM: return STATUS_PERMISSION_DENIED;
    case EEXIST: return STATUS_ALREADY_EXISTS;
    case ENOMEM:
    case ENOSPC:
    case EMFILE:
    case ENFILE: return STATUS_RESOURCE_EXHAUSTED;
    case EADDRINUSE: return STATUS_FAILED_PRECONDITION;
    case EINVAL: return STATUS_INVALID_ARGUMENT;
    case ETIMEDOUT: return STATUS_DEADLINE_EXCEEDED;
    default: return STATUS_INTERNAL;
    }
}

enum status
error_set(struct error *error, enum status status, const char *format, ...)
{
    CHECK(status != STATUS_OK);
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof(error->text), format, args);
    va_end(args);
    error->status = status;
    return status;
}

enum status
error_set_errno(struct error *error, const char *format, ...)
{
    int code = errno;
    va_list args;
    va_start(args, format);
    int written = vsnprintf(error->text, sizeof(error->text), format, args);
    va_end(args);
    size_t used = written < 0 ? 0 : (size_t)written;
    if (used < sizeof(error->text))
        snprintf(error->text + used, sizeof(error->text) - used, ": %s", strerror(code));
    error->status = status_from_errno(code);
    return error->status;
}

/* Half of the text is for the context, the other half, minus ": ", for the cause. */
enum { PREFIX_MAX = ERROR_TEXT_MAX / 2 };

enum status
error_prefix(struct error *error, const char *format, ...)
{
    CHECK(error->status != STATUS_OK);
    char before[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(before, sizeof(before), format, args);
    va_end(args);
    char after[ERROR_TEXT_MAX];
    memcpy(after, error->text, sizeof(after));
    snprintf(error->text, sizeof(error->text), "%.*s: %.*s", PREFIX_MAX, before,
             ERROR_TEXT_MAX - PREFIX_MAX - 3, after);
    return error->status;
}
