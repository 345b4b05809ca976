/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The xgboost modelet serves every booster that XGBoost saves: each kind is trained here on a few
 * rows, saved in both forms under names that say nothing, and must answer bit by bit what the
 * library itself predicts, with names and shapes that follow from its objective. A classifier's
 * labels are the classes that the library itself chooses. Values may be missing.
 * Broken files, among them every one that is cut short, are refused with the reason before the
 * library sees them. So are files whose base score an older library would misread: data/ATTRIBUTION
 * says where those come from.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xgboost/c_api.h>

#include "../test.h"
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

enum { PARAMETERS_MAX = 5, COLUMNS_MAX = 2 };

struct kind {
    const char *parameters[PARAMETERS_MAX][2]; /* pairs of a parameter's name and its value */
    const char *output;
    int64_t outputs;
    uint32_t label_rank; /* 0: it has none */
    uint32_t columns;    /* of the targets it is trained on; 0: 1 */
};

static const char *
parameter(const struct kind *kind, const char *name)
{
    for (size_t i = 0; i < PARAMETERS_MAX && kind->parameters[i][0] != NULL; i++)
        if (strcmp(kind->parameters[i][0], name) == 0)
            return kind->parameters[i][1];
    return NULL;
}

/* One column of targets: classes from 0 if the kind has a number of them, 0 and 1 if it is binary,
 * else numbers above 0. */
static float
target_of(const struct kind *kind, size_t row, size_t column)
{
    float sum = rows[row][column] + rows[row][column + 1];
    const char *classes = parameter(kind, "num_class");
    if (classes != NULL)
        return (float)((int)(sum * 2) % atoi(classes));
    bool is_large = sum > 4;
    return strncmp(parameter(kind, "objective"), "binary:", 7) == 0 ||
                   strcmp(parameter(kind, "objective"), "reg:logistic") == 0
               ? is_large
               : 1 + (float)is_large;
}

static void
set_targets(DMatrixHandle matrix, const struct kind *kind)
{
    static float targets[ROWS * COLUMNS_MAX];
    static const char *const fields[] = {"label", "label_lower_bound", "label_upper_bound"};
    uint32_t columns = kind->columns > 0 ? kind->columns : 1;
    char array[160];
    for (size_t i = 0; i < (size_t)ROWS * columns; i++)
        targets[i] = target_of(kind, i / columns, i % columns);
    snprintf(array, sizeof array,
             "{\"data\":[%zu,true],\"shape\":[%d,%u],\"typestr\":\"<f4\",\"version\":3}",
             (size_t)(uintptr_t)targets, ROWS, columns);
    bool has_bounds = strcmp(parameter(kind, "objective"), "survival:aft") == 0;
    for (size_t i = has_bounds ? 1 : 0; i < (has_bounds ? 3 : 1); i++)
        check(columns > 1 ? XGDMatrixSetInfoFromInterface(matrix, fields[i], array)
                          : XGDMatrixSetFloatInfo(matrix, fields[i], targets, ROWS));
}

static BoosterHandle
train(const struct kind *kind)
{
    BoosterHandle booster;
    uint32_t word = 7;
    for (size_t i = 0; i < ROWS; i++)
        for (size_t k = 0; k < FEATURES; k++)
            rows[i][k] = (float)((word = word * 1664525 + 1013904223) >> 24) / 64;
    DMatrixHandle fresh = matrix_create(NAN);
    set_targets(fresh, kind);
    check(XGBoosterCreate(&fresh, 1, &booster));
    check(XGBoosterSetParam(booster, "nthread", "1"));
    check(XGBoosterSetParam(booster, "verbosity", "0"));
    for (size_t i = 0; i < PARAMETERS_MAX && kind->parameters[i][0] != NULL; i++)
        check(XGBoosterSetParam(booster, kind->parameters[i][0], kind->parameters[i][1]));
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
predict(BoosterHandle booster, float missing, bool is_margin, const float **wanted)
{
    DMatrixHandle matrix = matrix_create(missing);
    const bst_ulong *shape;
    bst_ulong rank;
    char how[160];
    snprintf(how, sizeof how,
             "{\"type\":%d,\"training\":false,\"strict_shape\":true,\"iteration_begin\":0,"
             "\"iteration_end\":0}",
             is_margin);
    check(XGBoosterPredictFromDMatrix(booster, matrix, how, &shape, &rank, wanted));
    XGDMatrixFree(matrix);
    assert_int_equal(rank, 2);
    return shape[1];
}

/* multi:softmax predicts a class, and its probabilities are those of its margins. */
static size_t
wanted_of(const struct kind *kind, BoosterHandle booster, float missing, float *wanted)
{
    const float *predicted;
    bool softmax = strcmp(parameter(kind, "objective"), "multi:softmax") == 0;
    size_t outputs = predict(booster, missing, softmax, &predicted);
    assert_int_equal(outputs, kind->outputs);
    memcpy(wanted, predicted, ROWS * outputs * sizeof *wanted);
    for (size_t i = 0; softmax && i < ROWS * outputs; i += outputs) {
        double sum = 0;
        for (size_t k = 0; k < outputs; k++)
            sum += exp((double)wanted[i + k]);
        for (size_t k = 0; k < outputs; k++)
            wanted[i + k] = (float)(exp((double)wanted[i + k]) / sum);
    }
    return outputs;
}

static void
is_right(const struct kind *kind, const float *got, const float *wanted, size_t count)
{
    float tolerance = strcmp(parameter(kind, "objective"), "multi:softmax") == 0 ? 1e-6F : 0;
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(got[i] - wanted[i]) <= tolerance))
            fail_msg("%s: %g is answered, not %g", parameter(kind, "objective"), (double)got[i],
                     (double)wanted[i]);
}

/* All rows as items of one row, three and the rest, in one batch. */
static void
answers_right(struct shoal_harness *harness, const struct kind *kind, BoosterHandle booster,
              float missing)
{
    static float all[ROWS * 4];
    const float *wanted = all;
    size_t outputs = wanted_of(kind, booster, missing, all);
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
    for (size_t i = 0; i < 4; wanted += counts[i++] * outputs)
        is_right(kind, rig_floats(items[i], kind->output, counts[i] * outputs), wanted,
                 counts[i] * outputs);
}

static const struct kind kinds[] = {
    {{{"objective", "reg:squarederror"}}, "prediction", 1, 0, 0},
    {{{"objective", "binary:logistic"}, {"base_score", "0.8"}}, "probabilities", 1, 1, 0},
    {{{"objective", "multi:softprob"}, {"num_class", "3"}}, "probabilities", 3, 1, 0},
    {{{"objective", "multi:softmax"}, {"num_class", "3"}}, "probabilities", 3, 1, 0},
    {{{"objective", "multi:softmax"}, {"num_class", "4"}, {"booster", "gblinear"}},
     "probabilities",
     4,
     1,
     0},
    {{{"objective", "multi:softmax"}, {"num_class", "3"}, {"booster", "dart"}},
     "probabilities",
     3,
     1,
     0},
    {{{"objective", "binary:logitraw"}}, "prediction", 1, 1, 0},
    {{{"objective", "binary:hinge"}}, "prediction", 1, 1, 0},
    {{{"objective", "binary:logistic"}, {"tree_method", "hist"}}, "probabilities", 2, 2, 2},
    {{{"objective", "reg:squarederror"}, {"base_score", "3.5"}}, "prediction", 2, 0, 2},
    {{{"objective", "reg:logistic"}}, "prediction", 1, 0, 0},
    {{{"objective", "reg:gamma"}}, "prediction", 1, 0, 0},
    {{{"objective", "reg:tweedie"}}, "prediction", 1, 0, 0},
    {{{"objective", "reg:absoluteerror"}}, "prediction", 1, 0, 0},
    {{{"objective", "rank:pairwise"}}, "prediction", 1, 0, 0},
    {{{"objective", "rank:ndcg"}}, "prediction", 1, 0, 0},
    {{{"objective", "count:poisson"}, {"num_parallel_tree", "3"}}, "prediction", 1, 0, 0},
    {{{"objective", "survival:cox"}}, "prediction", 1, 0, 0},
    {{{"objective", "survival:aft"}}, "prediction", 1, 0, 0},
    {{{"objective", "binary:logistic"}, {"booster", "dart"}, {"rate_drop", "0.5"}},
     "probabilities",
     1,
     1,
     0},
    {{{"objective", "reg:squarederror"}, {"booster", "gblinear"}}, "prediction", 1, 0, 0},
};
enum { KINDS = sizeof kinds / sizeof *kinds };
static const struct kind *const squared = &kinds[0], *const classes = &kinds[2];

static void
describes_right(const struct shoal_io *io, const struct kind *kind, bool with_labels)
{
    assert_int_equal(io->inputs[0].shape[1], FEATURES);
    assert_string_equal(io->outputs[0].name, kind->output);
    assert_int_equal(io->outputs[0].shape[1], kind->outputs);
    assert_int_equal(io->output_count, with_labels && kind->label_rank > 0 ? 2 : 1);
    if (io->output_count == 1)
        return;
    assert_string_equal(io->outputs[1].name, "label");
    assert_int_equal(io->outputs[1].datatype, SHOAL_INT64);
    assert_int_equal(io->outputs[1].rank, kind->label_rank);
    assert_int_equal(io->outputs[1].shape[0], -1);
    if (kind->label_rank == 2)
        assert_int_equal(io->outputs[1].shape[1], kind->outputs);
}

TEST_CASE(test_any_booster)
{
    static const char *const forms[] = {"json", "ubj"};
    const struct shoal_param params[] = {{"model", "a-model"}};
    for (size_t k = 0; k < KINDS; k++) {
        BoosterHandle booster = train(&kinds[k]);
        for (size_t f = 0; f < 2; f++) {
            save(booster, forms[f]);
            rig_write("a-model", file, file_size);
            struct shoal_harness *harness = rig_open(MODELET, 1, params);
            struct shoal_io io = shoal_harness_describe(harness);
            describes_right(&io, &kinds[k], false);
            answers_right(harness, &kinds[k], booster, NAN);
            shoal_harness_close(harness);
        }
        XGBoosterFree(booster);
    }
}

/* ---- labels ---- */

/* Of several classes the library chooses one if the objective is multi:softmax, for which the trees
 * of multi:softprob do as well. A yes is a margin above 0. */
static size_t
chosen_of(BoosterHandle booster, const struct kind *kind, const float **chosen)
{
    bool multi = parameter(kind, "num_class") != NULL;
    if (multi)
        check(XGBoosterSetParam(booster, "objective", "multi:softmax"));
    return predict(booster, NAN, !multi, chosen);
}

static void
labels_right(struct shoal_harness *harness, BoosterHandle booster, const struct kind *kind)
{
    const float *chosen;
    uint32_t seen[4] = {0};
    size_t labels = chosen_of(booster, kind, &chosen);
    struct shoal_harness_item *item = shoal_harness_item(harness);
    shoal_harness_input(item, "any", SHOAL_FP32, 2, (const int64_t[]){ROWS, FEATURES}, rows[0]);
    shoal_harness_run(harness, &item, 1);
    (void)rig_floats(item, kind->output, ROWS * (size_t)kind->outputs);
    const struct shoal_tensor *got = shoal_harness_output(item, "label");
    assert_non_null(got);
    assert_int_equal(got->rank, kind->label_rank);
    assert_int_equal(got->bytes, ROWS * labels * sizeof(int64_t));
    for (size_t i = 0; i < ROWS * labels; i++) {
        int64_t label = ((const int64_t *)got->data)[i];
        float wanted = parameter(kind, "num_class") != NULL ? chosen[i] : (float)(chosen[i] > 0);
        assert_int_equal(label, (int64_t)wanted);
        seen[label]++;
    }
    assert_true(seen[0] > 0 && seen[1] > 0); /* else a constant would pass */
}

TEST_CASE(test_labels_are_the_librarys)
{
    const struct shoal_param params[] = {{"labels", "on"}, {"model", "a-model"}};
    for (size_t k = 0; k < KINDS; k++) {
        BoosterHandle booster = train(&kinds[k]);
        save(booster, k % 2 == 0 ? "json" : "ubj");
        rig_write("a-model", file, file_size);
        struct shoal_harness *harness = rig_open(MODELET, 2, params);
        struct shoal_io io = shoal_harness_describe(harness);
        describes_right(&io, &kinds[k], true);
        answers_right(harness, &kinds[k], booster, NAN);
        if (kinds[k].label_rank > 0)
            labels_right(harness, booster, &kinds[k]);
        shoal_harness_close(harness);
        XGBoosterFree(booster);
    }
}

/* Labels have no place in an answer that has their name already. */
TEST_CASE(test_the_parameters_of_the_outputs)
{
    BoosterHandle booster = train(classes);
    save(booster, "ubj");
    rig_write("a-model", file, file_size);
    static const char *const names[] = {"mine", "label"};
    for (size_t i = 0; i < 2; i++) {
        const struct shoal_param params[] = {
            {"labels", "on"}, {"output", names[i]}, {"model", "a-model"}};
        struct shoal_harness *harness = rig_open(MODELET, 3, params);
        struct shoal_io io = shoal_harness_describe(harness);
        assert_string_equal(io.outputs[0].name, names[i]);
        assert_int_equal(io.output_count, i == 0 ? 2 : 1);
        shoal_harness_close(harness);
    }
    XGBoosterFree(booster);
    const struct shoal_param wrong[] = {{"labels", "maybe"}};
    struct shoal_harness *harness;
    struct shoal_error error;
    assert_int_equal(rig_try(MODELET, 1, wrong, &harness, &error), SHOAL_INVALID_ARGUMENT);
    assert_string_equal(error.text, "parameter \"labels\" is \"maybe\": on or off");
}

TEST_CASE(test_models_are_loaded_and_unloaded)
{
    struct shoal_error error;
    struct shoal_harness *harness = rig_open(MODELET, 0, NULL);
    assert_int_equal(shoal_harness_describe(harness).input_count, 0);
    for (size_t k = 0; k < KINDS; k++) {
        BoosterHandle booster = train(&kinds[k]);
        save(booster, "ubj");
        if (shoal_harness_load(harness, rig_write("loaded", file, file_size), &error) != SHOAL_OK)
            fail_msg("%s", error.text);
        answers_right(harness, &kinds[k], booster, NAN);
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
TEST_CASE(test_missing_values)
{
    static const char *const numbers[] = {"nan", "100"};
    for (size_t k = 0; k < KINDS; k++) {
        BoosterHandle booster = train(&kinds[k]);
        save(booster, "json");
        rig_write("a-model", file, file_size);
        for (size_t n = 0; n < 2; n++) {
            for (size_t i = 0; i < ROWS; i++)
                rows[i][i % FEATURES] = n == 0 || i % 2 == 0 ? NAN : 100;
            const struct shoal_param params[] = {{"model", "a-model"}, {"missing", numbers[n]}};
            struct shoal_harness *harness = rig_open(MODELET, 2, params);
            answers_right(harness, &kinds[k], booster, n == 0 ? NAN : 100);
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
TEST_CASE(test_json_with_space)
{
    BoosterHandle booster = train(classes);
    save(booster, "json");
    memmove(file + 4, file + 1, file_size - 1);
    memcpy(file, "{\n  ", 4);
    memcpy(file + file_size + 3, " \n", 2);
    const struct shoal_param params[] = {{"model", "a-model"}};
    rig_write("a-model", file, file_size + 5);
    struct shoal_harness *harness = rig_open(MODELET, 1, params);
    answers_right(harness, classes, booster, NAN);
    shoal_harness_close(harness);
    XGBoosterFree(booster);
}

TEST_CASE(test_files_that_are_cut_short)
{
    static const char *const forms[] = {"json", "ubj"};
    BoosterHandle booster = train(squared);
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

TEST_CASE(test_broken_files)
{
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
    assert_memory_equal(rig_floats(item, "prediction", 4), wanted, sizeof wanted);
    shoal_harness_close(harness);
}

/* The oldest that writes JSON, the oldest that writes UBJSON, and the newest whose base score is a
 * number. */
TEST_CASE(test_files_of_other_versions_predict_the_same)
{
    static const char *const names[] = {"xgboost-1.0.json", "xgboost-1.6.ubj", "xgboost-3.0.json",
                                        "xgboost-3.0.ubj"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        sample_read(names[i]);
        rig_write("a-model", file, file_size);
        sample_predicts_right();
    }
}

/* An older library takes such a file, and adds another base score to each prediction. */
TEST_CASE(test_a_newer_file_is_refused_or_predicts_the_same)
{
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
TEST_CASE(test_a_vector_is_refused_however_it_is_written)
{
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
TEST_CASE(test_another_base_score_is_no_matter)
{
    static const char *const forms[] = {"json", "ubj"};
    const struct shoal_param params[] = {{"model", "a-model"}};
    BoosterHandle booster = train(squared);
    check(XGBoosterSetAttr(booster, "base_score", "[5E-1]"));
    check(XGBoosterSetAttr(booster, "learner_model_param", "{\"base_score\":\"[5E-1]\"}"));
    for (size_t f = 0; f < 2; f++) {
        save(booster, forms[f]);
        rig_write("a-model", file, file_size);
        struct shoal_harness *harness = rig_open(MODELET, 1, params);
        answers_right(harness, squared, booster, NAN);
        shoal_harness_close(harness);
    }
    XGBoosterFree(booster);
}

TEST_MAIN(.group_setup = rig_setup, .group_teardown = rig_teardown)
