/* SPDX-License-Identifier: Apache-2.0 */
/* cmocka with the headers it needs before it, and the head of a test; most read no `state`. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TEST_CASE(name) static void name(__attribute__((unused)) void **state)
