/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CHECK asserts our own invariants, in every build: a violation ends the process at once, naming
 * the place and the condition, instead of continuing with corrupt state. Never CHECK data that
 * another process, a peer, a file or a caller wrote: validate and refuse it.
 */
#pragma once

#include <stdnoreturn.h>

noreturn void check_failed(const char *file, int line, const char *function, const char *condition);

#define CHECK(condition)                                                                           \
    ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, __func__, #condition))

#define UNREACHABLE() check_failed(__FILE__, __LINE__, __func__, "unreachable")

#define ARRAY_COUNT(array) (sizeof(array) / sizeof((array)[0]))
