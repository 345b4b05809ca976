/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loader judges a plug-in before it calls anything in it. Each
 * tests/modelets/modelet_wrong_<what>.c is right but for one thing, and is refused with a text that
 * names the file and the field; the right ones are taken. Then what a right one must suit: batch
 * size, workers, model. test_worker_life.c has the same from outside, with real processes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../test.h"
#include "worker/modelet.h"

static const char *
modelet_path(const char *name)
{
    static char path[512];
    const char *build = getenv("SHOAL_BUILD_DIR");
    assert_non_null(build);
    snprintf(path, sizeof(path), "%s/tests/modelets/lib%s.so", build, name);
    return path;
}

static void
assert_text(const struct error *error, const char *text)
{
    if (strstr(error->text, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error->text, text);
}

static void
assert_refused(const char *name, const char *text)
{
    const char *path = modelet_path(name);
    assert_int_equal(access(path, R_OK), 0); /* refused for what it is, not for its absence */
    struct modelet modelet;
    struct error error = ERROR_NONE;
    assert_int_equal(modelet_load_file(&modelet, path, &error), STATUS_FAILED_PRECONDITION);
    assert_text(&error, modelet_file_name(path));
    assert_text(&error, text);
}

TEST_CASE(test_wrong_variants)
{
    char text[128];
    assert_refused("wrong_abi_version", "shoal_modelet.abi_version is 2, this worker speaks 1");
    assert_refused("wrong_no_header", "shoal_modelet.struct_size is 0");
    snprintf(text, sizeof(text), "shoal_modelet.struct_size is %zu, this worker knows %zu",
             sizeof(struct shoal_modelet) + 8, sizeof(struct shoal_modelet));
    assert_refused("wrong_struct_size_newer", text);
    snprintf(text, sizeof(text), "shoal_modelet.struct_size is %zu, at least",
             offsetof(struct shoal_modelet, describe_model) - 8);
    assert_refused("wrong_struct_size_older", text);
    snprintf(text, sizeof(text), "shoal_modelet.host_size is %zu, this worker knows %zu",
             sizeof(struct shoal_host) + 8, sizeof(struct shoal_host));
    assert_refused("wrong_host_size", text);
    assert_refused("wrong_batch_size", "shoal_modelet.batch_size is ");
    assert_refused("wrong_item_size", "shoal_modelet.item_size is ");
    assert_refused("wrong_tensor_size_newer", "shoal_modelet.tensor_size is ");
    assert_refused("wrong_tensor_size_older", "shoal_modelet.tensor_size is ");
    assert_refused("wrong_abilities", "shoal_modelet.abilities has bits 0x40000000");
    assert_refused("wrong_name", "shoal_modelet.name is missing");
    assert_refused("wrong_name_long", "shoal_modelet.name has 75 bytes; at most 63");
    assert_refused("wrong_run", "shoal_modelet.run is missing");
    assert_refused("wrong_symbol", "no symbol \"shoal_modelet\"");
    assert_refused("wrong_function", "\"shoal_modelet\" is not a struct shoal_modelet");
    assert_refused("wrong_cut", "but the symbol has 24 bytes");
}

/* It has only the functions that its header knew, even if more follow. */
TEST_CASE(test_first_header)
{
    struct modelet modelet;
    struct error error = ERROR_NONE;
    if (modelet_load_file(&modelet, modelet_path("first_header"), &error) != STATUS_OK)
        fail_msg("%s", error.text);
    assert_non_null(modelet.table.run);
    assert_null(modelet.table.describe_model);
}

TEST_CASE(test_files_that_are_none)
{
    struct modelet modelet;
    struct error error = ERROR_NONE;
    assert_int_equal(modelet_load_file(&modelet, modelet_path("nothing"), &error),
                     STATUS_FAILED_PRECONDITION);
    assert_text(&error, "libnothing.so");
    assert_int_equal(modelet_load_file(&modelet, "/etc/passwd", &error),
                     STATUS_FAILED_PRECONDITION);
    assert_text(&error, "/etc/passwd");
    assert_int_equal(modelet_load_file(&modelet, "/", &error), STATUS_FAILED_PRECONDITION);
    /* never searched for by the linker's rules */
    assert_int_equal(modelet_load_file(&modelet, "libc.so.6", &error), STATUS_INVALID_ARGUMENT);
    assert_text(&error, "not absolute");
}

TEST_CASE(test_modelet_that_does_not_suit_its_stage)
{
    struct modelet modelet;
    struct error error = ERROR_NONE;
    assert_int_equal(modelet_load_file(&modelet, modelet_path("wrong_workers_max"), &error),
                     STATUS_OK);
    assert_string_equal(modelet.table.name, "wrong");
    struct handshake_start start = {.worker_count = 1, .batch_size = 1};
    assert_int_equal(modelet_suits(&modelet, &start, &error), STATUS_OK);
    start.batch_size = 2;
    assert_int_equal(modelet_suits(&modelet, &start, &error), STATUS_FAILED_PRECONDITION);
    assert_text(&error, "SHOAL_RUNS_BATCHES");
    start.batch_size = 0;
    start.worker_count = 2;
    assert_int_equal(modelet_suits(&modelet, &start, &error), STATUS_FAILED_PRECONDITION);
    assert_text(&error, "workers_max is 1");
    start.worker_count = 1;
    snprintf(start.model_id, sizeof(start.model_id), "m");
    assert_int_equal(modelet_suits(&modelet, &start, &error), STATUS_FAILED_PRECONDITION);
    assert_text(&error, "shoal_modelet.load is missing");

    assert_int_equal(modelet_load_file(&modelet, modelet_path("probe"), &error), STATUS_OK);
    start = (struct handshake_start){.worker_count = 64, .batch_size = 64, .model_id = "m"};
    assert_int_equal(modelet_suits(&modelet, &start, &error), STATUS_OK);
}

/* Without `open`, `describe`, `load` and `close` there is still something to say to the
 * coordinator. */
TEST_CASE(test_the_smallest_starts)
{
    struct modelet modelet;
    struct error error = ERROR_NONE;
    assert_int_equal(modelet_load_file(&modelet, modelet_path("wrong_workers_max"), &error),
                     STATUS_OK);
    static struct handshake_start start;
    static struct handshake_ready ready;
    const struct shoal_host host = {.abi_version = SHOAL_ABI_VERSION};
    assert_int_equal(modelet_start(&modelet, &start, &host, &ready, &error), STATUS_OK);
    assert_string_equal(ready.name, "wrong");
    assert_string_equal(ready.modelet_version, "");
    assert_int_equal(ready.workers_max, 1);
    assert_int_equal(ready.input_count, 0);
    modelet_stop(&modelet);
}

TEST_CASE(test_stopped_once)
{
    struct modelet modelet;
    struct error error = ERROR_NONE;
    assert_int_equal(modelet_load_file(&modelet, modelet_path("probe"), &error), STATUS_OK);
    static struct handshake_start start;
    static struct handshake_ready ready;
    const struct shoal_host host = {.abi_version = SHOAL_ABI_VERSION};
    assert_int_equal(modelet_start(&modelet, &start, &host, &ready, &error), STATUS_OK);
    modelet_stop(&modelet);
    modelet_stop(&modelet); /* frees nothing twice */
}

TEST_MAIN()
