/* SPDX-License-Identifier: Apache-2.0 */
/* Python source that is compiled in; see cmake/embed.cmake. */
#pragma once

#include <stddef.h>

extern const unsigned char python_errors[]; /* clients/python/shoal/_errors.py */
extern const size_t python_errors_size;
extern const unsigned char python_modelet[]; /* clients/python/shoal/_modelet.py */
extern const size_t python_modelet_size;
extern const unsigned char python_worker[]; /* worker.py */
extern const size_t python_worker_size;
