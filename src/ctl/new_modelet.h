/* SPDX-License-Identifier: Apache-2.0 */
/* The files of `shoalctl new modelet`, as they lie in new_modelet/, compiled into the program. */
#pragma once

#include <stddef.h>

extern const unsigned char new_modelet_build[], new_modelet_source[], new_modelet_test[],
    new_modelet_config[], new_modelet_readme[];
extern const size_t new_modelet_build_size, new_modelet_source_size, new_modelet_test_size,
    new_modelet_config_size, new_modelet_readme_size;
