/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The xgboost modelet serves every booster that XGBoost saves: each kind is trained here on a few
 * rows, saved in both forms under names that say nothing, and must answer bit by bit what the
 * library itself predicts, with the shapes that follow from its objective. Values may be missing.
 * Broken files, among them every one that is cut short, are refused with the reason before the
 * library sees them. So are files whose base score an older library would misread: data/ATTRIBUTION
 * says where those come from.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <xgboost/c_api.h>

#include "model_rig.h"

enum { ROWS = 60, FEATURES = 5, SHORT_ROWS = 3, FILE_ROOM = 1 << 20 };
#define MODELET "xgboost_modelet"

static const int64_t row_shape[] = {1, FEATURES};
static float rows[ROWS][FEATURES];
static char file[FILE_ROOM];
static size_t file_size;

static void
check(int result)
{
    if (result != 0)
        fail_msg("%s", XGBGetLastError());
}

static DMatrixHandle
matrix_create(float missing)
{
    DMatrixHandle matrix;
    check(XGDMatrixCreateFromMat(rows[0], ROWS, FEATURES, missing, &matrix));
    return matrix;
}

/* Trains a booster of this kind: pairs of a parameter's name and its value. */
static BoosterHandle
train(const char *const parameters[][2])
{
    BoosterHandle booster;
    float labels[ROWS];
    uint32_t word = 7;
    for (size_t i = 0; i < ROWS; i++) {
        for (size_t k = 0; k < FEATURES; k++)
            rows[i][k] = (float)((word = word * 1664525 + 1013904223) >> 24) / 64;
        labels[i] = rows[i][0] + rows[i][1] > 4 ? 1 : 0;
    }
    DMatrixHandle fresh = matrix_create(NAN);
    check(XGDMatrixSetFloatInfo(fresh, "label", labels, ROWS));
    check(XGBoosterCreate(&fresh, 1, &booster));
    check(XGBoosterSetParam(booster, "nthread", "1"));
    check(XGBoosterSetParam(booster, "verbosity", "0"));
    for (size_t i = 0; parameters[i][0] != NULL; i++)
        check(XGBoosterSetParam(booster, parameters[i][0], parameters[i][1]));
    for (int round = 0; round < 4; round++)
        check(XGBoosterUpdateOneIter(booster, round, fresh));
    XGDMatrixFree(fresh);
    return booster;
}

static void
save(BoosterHandle booster, const char *form)
{
    char config[64];
    bst_ulong size;
    const char *bytes;
    snprintf(config, sizeof config, "{\"format\":\"%s\"}", form);
    check(XGBoosterSaveModelToBuffer(booster, config, &size, &bytes));
    assert_true(size <= sizeof file);
    memcpy(file, bytes, size);
    file_size = size;
}

/* The library's results for all rows; returns how many outputs a row has. */
static size_t
wanted_of(BoosterHandle booster, float missing, const float **wanted)
{
    DMatrixHandle matrix = matrix_create(missing);
    const bst_ulong *shape;
    bst_ulong rank;
    check(XGBoosterPredictFromDMatrix(booster, matrix,
                                      "{\"type\":0,\"training\":false,\"strict_shape\":true,"
                                      "\"iteration_begin\":0,\"iteration_end\":0}",
                                      &shape, &rank, wanted));
    XGDMatrixFree(matrix);
    assert_int_equal(rank, 2);
    return shape[1];
}

/* All rows as items of one row, three and the rest, in one batch. */
static void
answers_right(struct shoal_harness *harness, BoosterHandle booster, float missing)
{
    const float *wanted;
    size_t outputs = wanted_of(booster, missing, &wanted);
    const size_t counts[] = {1, SHORT_ROWS, 0, ROWS - SHORT_ROWS - 1};
    struct shoal_harness_item *items[4];
    size_t row = 0;
    for (size_t i = 0; i < 4; row += counts[i++]) {
        int64_t shape[] = {(int64_t)counts[i], FEATURES};
        items[i] = shoal_harness_item(harness);
        shoal_harness_input(items[i], "any", SHOAL_FP32, 2, shape, rows[row % ROWS]);
    }
    uint64_t runs = shoal_harness_runs(harness);
    shoal_harness_run(harness, items, 4);
    assert_int_equal(shoal_harness_runs(harness), runs + 1);
    for (size_t i = 0; i < 4; wanted += counts[i++] * outputs) {
        const float *got = rig_floats(items[i], "probabilities", counts[i] * outputs);
        if (memcmp(got, wanted, counts[i] * outputs * sizeof *got) != 0)
            fail_msg("item %zu of %zu rows differs: %g, not %g", i, counts[i], (double)got[0],
                     (double)wanted[0]);
    }
}

static const struct {
    const char *parameters[4][2];
    int64_t outputs;
} kinds[] = {
    {{{"objective", "reg:squarederror"}}, 1},
    {{{"objective", "binary:logistic"}}, 1},
    {{{"objective", "multi:softprob"}, {"num_class", "3"}}, 3},
    {{{"objective", "multi:softmax"}, {"num_class", "3"}}, 1},
    {{{"objective", "rank:pairwise"}}, 1},
    {{{"objective", "count:poisson"}, {"num_parallel_tree", "3"}}, 1},
    {{{"objective", "binary:logistic"}, {"booster", "dart"}, {"rate_drop", "0.5"}}, 1},
    {{{"objective", "reg:squarederror"}, {"booster", "gblinear"}}, 1},
};

static void
test_any_booster(void **state)
{
    (void)state;
    static const char *const forms[] = {"json", "ubj"};
    const struct shoal_param params[] = {{"model", "a-model"}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        BoosterHandle booster = train(kinds[k].parameters);
        for (size_t f = 0; f < 2; f++) {
            save(booster, forms[f]);
            rig_write("a-model", file, file_size);
            struct shoal_harness *harness = rig_open(MODELET, 1, params);
            struct shoal_io io = shoal_harness_describe(harness);
            assert_int_equal(io.inputs[0].shape[1], FEATURES);
            assert_int_equal(io.outputs[0].shape[1], kinds[k].outputs);
            answers_right(harness, booster, NAN);
            shoal_harness_close(harness);
        }
        XGBoosterFree(booster);
    }
}

static void
test_models_are_loaded_and_unloaded(void **state)
{
    (void)state;
    struct shoal_error error;
    struct shoal_harness *harness = rig_open(MODELET, 0, NULL);
    assert_int_equal(shoal_harness_describe(harness).input_count, 0);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        BoosterHandle booster = train(kinds[k].parameters);
        save(booster, "ubj");
        if (shoal_harness_load(harness, rig_write("loaded", file, file_size), &error) != SHOAL_OK)
            fail_msg("%s", error.text);
        answers_right(harness, booster, NAN);
        XGBoosterFree(booster);
    }
    struct shoal_harness_item *item = shoal_harness_item(harness);
    shoal_harness_input(item, "any", SHOAL_FP32, 2, row_shape, rows[0]);
    assert_int_equal(shoal_harness_load(harness, NULL, &error), SHOAL_OK);
    shoal_harness_run(harness, &item, 1);
    rig_failed(item, SHOAL_FAILED_PRECONDITION, "there is no model");
    shoal_harness_close(harness);
}

/* NaN always; another number if the stage says so. Trees and linear boosters, the latter by way of
 * a matrix. */
static void
test_missing_values(void **state)
{
    (void)state;
    static const char *const numbers[] = {"nan", "100"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        BoosterHandle booster = train(kinds[k].parameters);
        save(booster, "json");
        rig_write("a-model", file, file_size);
        for (size_t n = 0; n < 2; n++) {
            for (size_t i = 0; i < ROWS; i++)
                rows[i][i % FEATURES] = n == 0 || i % 2 == 0 ? NAN : 100;
            const struct shoal_param params[] = {{"model", "a-model"}, {"missing", numbers[n]}};
            struct shoal_harness *harness = rig_open(MODELET, 2, params);
            answers_right(harness, booster, n == 0 ? NAN : 100);
            shoal_harness_close(harness);
        }
        XGBoosterFree(booster);
    }
    static const char *const wrong[] = {"", "none", "1x", "inf"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct shoal_param params[] = {{"missing", wrong[i]}};
        struct shoal_harness *harness;
        struct shoal_error error;
        assert_int_equal(rig_try(MODELET, 1, params, &harness, &error), SHOAL_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, "no number"));
    }
}

/* As a program that lays JSON out for people writes it. */
static void
test_json_with_space(void **state)
{
    (void)state;
    BoosterHandle booster = train(kinds[2].parameters);
    save(booster, "json");
    memmove(file + 4, file + 1, file_size - 1);
    memcpy(file, "{\n  ", 4);
    memcpy(file + file_size + 3, " \n", 2);
    const struct shoal_param params[] = {{"model", "a-model"}};
    rig_write("a-model", file, file_size + 5);
    struct shoal_harness *harness = rig_open(MODELET, 1, params);
    answers_right(harness, booster, NAN);
    shoal_harness_close(harness);
    XGBoosterFree(booster);
}

static void
test_files_that_are_cut_short(void **state)
{
    (void)state;
    static const char *const forms[] = {"json", "ubj"};
    BoosterHandle booster = train(kinds[0].parameters);
    for (size_t f = 0; f < 2; f++) {
        save(booster, forms[f]);
        size_t step = file_size / 100;
        for (size_t size = 2; size < file_size; size += step)
            rig_refuses(MODELET, rig_write("cut", file, size), "it is truncated");
        rig_refuses(MODELET, rig_write("cut", file, file_size - 1), "it is truncated");
        file[file_size] = 'x';
        rig_refuses(MODELET, rig_write("cut", file, file_size + 1), "continues after its end");
    }
    XGBoosterFree(booster);
}

static void
test_broken_files(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        const char *bytes;
        size_t size;
    } files[] = {
#define BYTES(text) text, sizeof text - 1
        {"neither JSON nor UBJSON", BYTES("binf\0\0\0\0")},
        {"neither JSON nor UBJSON", BYTES("{")},
        {"neither JSON nor UBJSON", BYTES("SHOALMLP")},
        {"XGBoost says", BYTES("{\"learner\": 7}")},
        {"XGBoost says", BYTES("{L\0\0\0\0\0\0\0\1ai\7}")},
        {"a length is not an integer", BYTES("{Sa}")},
        {"a length is negative", BYTES("{L\377\377\377\377\377\377\377\377a}")},
        {"a value has no type", BYTES("{i\1a?}")},
        {"claims more than it has", BYTES("{i\1a[$d#L\0\0\0\2\200\0\0\0}")}, /* 10 GiB */
        {"claims more than it has", BYTES("{i\1a[$d#L\100\0\0\0\0\0\0\0}")}, /* × 4 is 0 */
        {"claims more than it has", BYTES("{i\1aSL\0\0\0\2\200\0\0\0}")},
        {"claims more than it has", BYTES("{i\1a[#l\177\377\377\377ZZ")},
        {"an array has no type or no count", BYTES("{i\1a[$dLi\1}")},
        {"an array has no type or no count", BYTES("{i\1a[$Z#l\177\377\377\377}")},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        rig_refuses(MODELET, rig_write("broken", files[i].bytes, files[i].size), files[i].words);
    memcpy(file, "{\"a\":", 5);
    memset(file + 5, '[', sizeof file - 5);
    rig_refuses(MODELET, rig_write("deep", file, sizeof file), "nested too deeply");
    memcpy(file, "{i\1a[", 5);
    rig_refuses(MODELET, rig_write("deep", file, sizeof file), "nested too deeply");
    rig_refuses_what_is_no_file(MODELET);
}

/* ---- base scores of XGBoost 3.1 and later ---- */

static bool
library_reads_vectors(void)
{
    int major;
    int minor;
    int patch;
    XGBoostVersion(&major, &minor, &patch);
    return major > 3 || (major == 3 && minor >= 1);
}

static void
sample_read(const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/modelets/data/%s", getenv("SHOAL_SOURCE_DIR"), name);
    FILE *sample = fopen(path, "rb");
    if (sample == NULL)
        fail_msg("%s does not open", path);
    file_size = fread(file, 1, sizeof file, sample);
    fclose(sample);
    assert_in_range(file_size, 1000, sizeof file - 1);
}

static void
sample_predicts_right(void)
{
    static const float features[] = {0, 1, 2, 3};
    static const float wanted[] = {203.75F, 204.75F, 207.15625F, 209.78125F};
    static const int64_t shape[] = {4, 1};
    const struct shoal_param params[] = {{"model", "a-model"}};
    struct shoal_harness *harness = rig_open(MODELET, 1, params);
    struct shoal_harness_item *item = shoal_harness_item(harness);
    shoal_harness_input(item, "any", SHOAL_FP32, 2, shape, features);
    shoal_harness_run(harness, &item, 1);
    assert_memory_equal(rig_floats(item, "probabilities", 4), wanted, sizeof wanted);
    shoal_harness_close(harness);
}

/* An older library takes such a file, and adds another base score to each prediction. */
static void
test_a_newer_file_is_refused_or_predicts_the_same(void **state)
{
    (void)state;
    static const char *const names[] = {"xgboost-3.2.json", "xgboost-3.2.ubj"};
    for (size_t i = 0; i < 2; i++) {
        sample_read(names[i]);
        const char *path = rig_write("a-model", file, file_size);
        if (library_reads_vectors())
            sample_predicts_right();
        else
            rig_refuses(MODELET, path, "written by XGBoost 3.2, this library is ");
    }
}

/* `from` and `to` have the same length. */
static void
sample_edit(const char *from, const char *to)
{
    size_t length = strlen(from);
    char *at = memmem(file, file_size, from, length);
    assert_non_null(at);
    memcpy(at, to, length);
}

/* The base score alone decides: in the model's parameters, for any version of the file.
 */
static void
test_a_vector_is_refused_however_it_is_written(void **state)
{
    (void)state;
    if (library_reads_vectors())
        return;
    const char *const words = "save it with an older version or upgrade libxgboost";
    sample_read("xgboost-3.2.json");
    sample_edit("[3,2,0]", "[1,7,4]");
    rig_refuses(MODELET, rig_write("a-model", file, file_size), words);
    sample_edit("\"version\":[", "\"VERSION\":[");
    rig_refuses(MODELET, rig_write("a-model", file, file_size), "written by a newer XGBoost");
    sample_edit("\"[2.065E2]\"", "[\"2.065E2\"]");
    rig_refuses(MODELET, rig_write("a-model", file, file_size), words);
    sample_edit("\"base_score\":[\"2.065E2\"]", "\"base_score\" : [20.65E2]");
    rig_refuses(MODELET, rig_write("a-model", file, file_size), words);
}

/* An attribute of the caller's own with that name says nothing. */
static void
test_another_base_score_is_no_matter(void **state)
{
    (void)state;
    static const char *const forms[] = {"json", "ubj"};
    const struct shoal_param params[] = {{"model", "a-model"}};
    BoosterHandle booster = train(kinds[0].parameters);
    check(XGBoosterSetAttr(booster, "base_score", "[5E-1]"));
    check(XGBoosterSetAttr(booster, "learner_model_param", "{\"base_score\":\"[5E-1]\"}"));
    for (size_t f = 0; f < 2; f++) {
        save(booster, forms[f]);
        rig_write("a-model", file, file_size);
        struct shoal_harness *harness = rig_open(MODELET, 1, params);
        answers_right(harness, booster, NAN);
        shoal_harness_close(harness);
    }
    XGBoosterFree(booster);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_booster),
        cmocka_unit_test(test_models_are_loaded_and_unloaded),
        cmocka_unit_test(test_missing_values),
        cmocka_unit_test(test_json_with_space),
        cmocka_unit_test(test_files_that_are_cut_short),
        cmocka_unit_test(test_broken_files),
        cmocka_unit_test(test_a_newer_file_is_refused_or_predicts_the_same),
        cmocka_unit_test(test_a_vector_is_refused_however_it_is_written),
        cmocka_unit_test(test_another_base_score_is_no_matter),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
