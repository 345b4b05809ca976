/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model files for the tests of modelets that read them: a folder that goes away with what is in it,
 * and files that no modelet may take, each with what it must say. The files are small; `path` is
 * valid until the next call.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <shoal/harness.h>

/* cmocka's group fixtures: the folder. */
int rig_setup(void **state);
int rig_teardown(void **state);

const char *rig_path(const char *name);
const char *rig_write(const char *name, const void *bytes, size_t size);

/* The modelet of the build, by name, with these parameters and batches of SHOAL_HARNESS_BATCH_MAX.
 */
int rig_try(const char *modelet, uint32_t param_count, const struct shoal_param *params,
            struct shoal_harness **harness, struct shoal_error *error);
struct shoal_harness *rig_open(const char *modelet, uint32_t param_count,
                               const struct shoal_param *params);

/* The modelet takes the file neither as its parameter `model` nor by `load`, and both say `words`
 * and the file's name. */
void rig_refuses(const char *modelet, const char *path, const char *words);
/* The same for paths that can never be models: nothing there, empty, a folder, a FIFO that
 * nobody writes to, a device. */
void rig_refuses_what_is_no_file(const char *modelet);

void rig_failed(const struct shoal_harness_item *item, int32_t status, const char *words);
const float *rig_floats(const struct shoal_harness_item *item, const char *name, size_t count);
