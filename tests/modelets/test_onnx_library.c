/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The onnx modelet and ONNX Runtime's library: without one it opens, and each model's load says how
 * to get one; what SHOAL_ONNXRUNTIME_DIR names must be the library, or have it, and not be too old.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../test.h"
#include "onnx_rig.h"

#define VARIABLE "SHOAL_ONNXRUNTIME_DIR"

/* A library of the build under another name. */
static void
put_library(const char *name, const char *library)
{
    char target[4096];
    snprintf(target, sizeof target, "%s/%s", getenv("SHOAL_BUILD_DIR"), library);
    unlink(rig_path(name));
    assert_int_equal(symlink(target, rig_path(name)), 0);
}

static void
opening_fails(const char *where, const char *words)
{
    struct shoal_harness *harness;
    struct shoal_error error;
    assert_int_equal(setenv(VARIABLE, where, 1), 0);
    assert_int_equal(rig_try(MODELET, 0, NULL, &harness, &error), SHOAL_FAILED_PRECONDITION);
    if (strstr(error.text, words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, error.text);
}

TEST_CASE(test_none)
{
    if (onnx_is_installed())
        skip();
    assert_int_equal(setenv(VARIABLE, "", 1), 0); /* as if it were not set */
    struct shoal_harness *harness = rig_open(MODELET, 0, NULL);
    struct shoal_error error;
    onnx_identity(ONNX_FLOAT, 1, (const int64_t[]){ONNX_BATCH});
    const char *path = onnx_write("one.onnx");
    assert_int_equal(shoal_harness_load(harness, path, &error), SHOAL_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "there is no ONNX Runtime: `pip install "
                                       "--no-deps --target DIR onnxruntime`, and start shoald "
                                       "with SHOAL_ONNXRUNTIME_DIR=DIR"));
    struct shoal_harness_item *item = onnx_ones(harness, 1);
    assert_int_equal(shoal_harness_load(harness, NULL, &error), SHOAL_OK);
    shoal_harness_run(harness, &item, 1);
    rig_failed(item, SHOAL_FAILED_PRECONDITION, "there is no model");
    shoal_harness_close(harness);
    const struct shoal_param own[] = {{"model", "one.onnx"}};
    assert_int_equal(rig_try(MODELET, 1, own, &harness, &error), SHOAL_FAILED_PRECONDITION);
    assert_non_null(strstr(error.text, "there is no ONNX Runtime"));
}

TEST_CASE(test_not_where_it_is_said_to_be)
{
    opening_fails("/no-such-folder", "/no-such-folder: no libonnxruntime.so in it");
    opening_fails(rig_path("."), "no libonnxruntime.so in it, capi or onnxruntime/capi");
}

TEST_CASE(test_not_the_library)
{
    put_library("libonnxruntime.so", "lib/shoal/libecho.so");
    opening_fails(rig_path("."), "libonnxruntime.so: it is not ONNX Runtime");
    opening_fails(rig_path("libonnxruntime.so"), "libonnxruntime.so: it is not ONNX Runtime");
    opening_fails(rig_write("text.so", "no library", 10), "text.so: ");
}

TEST_CASE(test_too_old)
{
    mkdir(rig_path("onnxruntime"), 0700);
    mkdir(rig_path("onnxruntime/capi"), 0700);
    unlink(rig_path("libonnxruntime.so"));
    put_library("onnxruntime/capi/libonnxruntime.so.1.9.0", "lib/shoal/libecho.so");
    put_library("onnxruntime/capi/libonnxruntime.so.1.14.1",
                "tests/modelets/libonnxruntime_old.so");
    opening_fails(rig_path("."),
                  "libonnxruntime.so.1.14.1: ONNX Runtime 1.14.1 is too old: 1.15 or "
                  "later is needed");
    unlink(rig_path("onnxruntime/capi/libonnxruntime.so.1.9.0"));
    unlink(rig_path("onnxruntime/capi/libonnxruntime.so.1.14.1"));
    rmdir(rig_path("onnxruntime/capi"));
    rmdir(rig_path("onnxruntime"));
}

TEST_MAIN(.group_setup = rig_setup, .group_teardown = rig_teardown)
