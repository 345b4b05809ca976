/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error handling. A function that can fail for a reason outside the program returns `enum status`
 * and fills a `struct error`. The failing function writes the first text; each caller on the way up
 * may prefix what it was doing, so that one line tells the whole path:
 *
 *     pipeline digits: stage classify: libxgboost_modelet.so: no symbol "shoal_modelet"
 *
 * One place logs it or sends it to the caller. The codes are gRPC's numbers, so that a status
 * crosses the wire and the plug-in boundary without translation.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>

enum status {
    STATUS_OK = 0,
    STATUS_CANCELLED = 1,
    STATUS_UNKNOWN = 2,
    STATUS_INVALID_ARGUMENT = 3,
    STATUS_DEADLINE_EXCEEDED = 4,
    STATUS_NOT_FOUND = 5,
    STATUS_ALREADY_EXISTS = 6,
    STATUS_PERMISSION_DENIED = 7,
    STATUS_RESOURCE_EXHAUSTED = 8,
    STATUS_FAILED_PRECONDITION = 9,
    STATUS_ABORTED = 10,
    STATUS_OUT_OF_RANGE = 11,
    STATUS_UNIMPLEMENTED = 12,
    STATUS_INTERNAL = 13,
    STATUS_UNAVAILABLE = 14,
    STATUS_DATA_LOSS = 15,
    STATUS_UNAUTHENTICATED = 16,
    STATUS_COUNT,
};

#define WARN_UNUSED __attribute__((warn_unused_result))
#define PRINTF_LIKE(format_index, first_index)                                                     \
    __attribute__((format(printf, format_index, first_index)))

enum { ERROR_TEXT_MAX = 512 };

struct error {
    enum status status;
    char text[ERROR_TEXT_MAX]; /* always terminated; longer texts are cut */
};

#define ERROR_NONE ((struct error){.status = STATUS_OK})

/* Like ERROR_NONE, but cheap enough for each request: ERROR_NONE also writes the whole text. */
static inline void
error_clear(struct error *error)
{
    error->status = STATUS_OK;
    error->text[0] = '\0';
}

/* Returns "NOT_FOUND" for STATUS_NOT_FOUND; "UNKNOWN" for an unknown number. */
const char *status_name(enum status status);

/* Converts a number from outside; an unknown number becomes STATUS_UNKNOWN. */
enum status status_from_number(long number);

/* Sets status and text, and returns the status: `return error_set(error, STATUS_NOT_FOUND, …)`. */
enum status error_set(struct error *error, enum status status, const char *format, ...)
    PRINTF_LIKE(3, 4);

/* Like error_set(), with ": <strerror(errno)>" appended; the status follows from errno. */
enum status error_set_errno(struct error *error, const char *format, ...) PRINTF_LIKE(2, 3);

/* Prefixes the text with "<text>: ". Returns the error's status. */
enum status error_prefix(struct error *error, const char *format, ...) PRINTF_LIKE(2, 3);
