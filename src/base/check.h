/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CHECK guards our own promises and is on in every build: a broken promise ends the process at
 * once, with the place and the condition, instead of going on with a corrupt state. Never CHECK
 * what another process, a peer, a file or a caller has written: that is validated and refused.
 */
#pragma once

#include <stdnoreturn.h>

noreturn void check_failed(const char *file, int line, const char *function, const char *condition);

#define CHECK(condition)                                                                           \
    ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, __func__, #condition))

#define UNREACHABLE() check_failed(__FILE__, __LINE__, __func__, "unreachable")

#define ARRAY_COUNT(array) (sizeof(array) / sizeof((array)[0]))
