/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that the modelets of examples/ compute what their READMEs say, refuse what they say they
 * refuse, item by item, and give a batch the same answers as its items alone. Each is loaded by the
 * test host of harness.h, which also watches their memory; the last test sends every held-out digit
 * through the three stages of the digits pipeline and wants 95 % back right.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../random.h"
#include "../test.h"
#include <shoal/harness.h>

enum { PIXELS = 64, CLASSES = 10, BATCH = 64, PATH_ROOM = 4096 };

static const int64_t one_image[] = {1, PIXELS};

/* ---- starting stages ---- */

static const char *
build_path(char *room, const char *below, const char *name, const char *suffix)
{
    const char *folder = getenv("SHOAL_BUILD_DIR");
    assert_non_null(folder);
    int length = snprintf(room, PATH_ROOM, "%s/%s%s%s", folder, below, name, suffix);
    assert_in_range(length, 1, PATH_ROOM - 1);
    return room;
}

static int
stage_try(const char *name, uint32_t param_count, const struct shoal_param *params,
          struct shoal_harness **stage, struct shoal_error *error)
{
    char path[PATH_ROOM];
    char folder[PATH_ROOM];
    struct shoal_harness_options options = {
        .path = build_path(path, "lib/shoal/lib", name, ".so"),
        .folder = build_path(folder, "examples/digits", "", ""),
        .batch_size = BATCH,
        .params = params,
        .param_count = param_count,
    };
    return shoal_harness_open(&options, stage, error);
}

static struct shoal_harness *
stage_open(const char *name, uint32_t param_count, const struct shoal_param *params)
{
    struct shoal_harness *stage;
    struct shoal_error error;
    if (stage_try(name, param_count, params, &stage, &error) != SHOAL_OK)
        fail_msg("%s: %s", name, error.text);
    return stage;
}

static struct shoal_harness *
classify_open(void)
{
    const struct shoal_param params[] = {{"model", "digits.ubj"}};
    return stage_open("xgboost_modelet", 1, params);
}

/* The modelet must refuse to open, with a text that holds `words`. */
static void
stage_refuses(const char *name, const char *param, const char *value, const char *words)
{
    const struct shoal_param params[] = {{param, value}};
    struct shoal_harness *stage;
    struct shoal_error error;
    assert_int_not_equal(stage_try(name, param != NULL, params, &stage, &error), SHOAL_OK);
    if (strstr(error.text, words) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", name, error.text, words);
}

static void
item_failed(const struct shoal_harness_item *item, int32_t status, const char *words)
{
    assert_int_equal(item->item.status, status);
    if (strstr(item->error.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", item->error.text, words);
    assert_int_equal(item->output_count, 0);
}

static const void *
output_data(const struct shoal_harness_item *item, const char *name, uint32_t datatype,
            size_t bytes)
{
    if (item->item.status != SHOAL_OK)
        fail_msg("status %d: %s", item->item.status, item->error.text);
    const struct shoal_tensor *output = shoal_harness_output(item, name);
    assert_non_null(output);
    assert_int_equal(output->datatype, datatype);
    assert_int_equal(output->bytes, bytes);
    return output->data;
}

static struct shoal_harness_item *
item_with(struct shoal_harness *stage, const char *name, uint32_t datatype, int64_t length,
          const void *data)
{
    struct shoal_harness_item *item = shoal_harness_item(stage);
    shoal_harness_input(item, name, datatype, 1, &length, data);
    return item;
}

/* ---- echo ---- */

TEST_CASE(echo_returns_every_input)
{
    struct shoal_harness *echo = stage_open("echo", 0, NULL);
    const float numbers[] = {1, 2, 3, 4, 5, 6};
    const int64_t shape[] = {2, 3};
    const int64_t length = 1;
    struct shoal_harness_item *items[3] = {shoal_harness_item(echo), shoal_harness_item(echo),
                                           shoal_harness_item(echo)};
    shoal_harness_input(items[0], "numbers", SHOAL_FP32, 2, shape, numbers);
    shoal_harness_input_bytes(items[0], "text", 1, &length, "\2\0\0\0hi", 6);
    shoal_harness_input(items[2], "scalar", SHOAL_FP32, 0, NULL, numbers);
    shoal_harness_run(echo, items, 3);

    assert_int_equal(shoal_harness_runs(echo), 1);
    assert_memory_equal(output_data(items[0], "numbers", SHOAL_FP32, sizeof numbers), numbers,
                        sizeof numbers);
    assert_int_equal(shoal_harness_output(items[0], "numbers")->shape[1], 3);
    assert_memory_equal(output_data(items[0], "text", SHOAL_BYTES, 6), "\2\0\0\0hi", 6);
    assert_int_equal(items[1]->item.status, SHOAL_INVALID_ARGUMENT);
    assert_int_equal(shoal_harness_output(items[2], "scalar")->rank, 0);
    shoal_harness_close(echo);
}

/* ---- scale-shift ---- */

/* y = 2x + 3 through both stages, for one datatype. */
static void
seed_example(struct shoal_harness *scale, struct shoal_harness *shift, uint32_t datatype,
             const void *x, const void *y, size_t bytes)
{
    int64_t length = (int64_t)(bytes / shoal_datatype_bytes(datatype));
    struct shoal_harness_item *first = item_with(scale, "x", datatype, length, x);
    shoal_harness_run(scale, &first, 1);
    struct shoal_harness_item *second = shoal_harness_forward(first, shift);
    shoal_harness_run(shift, &second, 1);
    assert_memory_equal(output_data(second, "y", datatype, bytes), y, bytes);
}

TEST_CASE(scale_shift_is_2x_plus_3)
{
    struct shoal_harness *scale = stage_open("scale", 0, NULL);
    struct shoal_harness *shift = stage_open("shift", 0, NULL);
    const float x32[] = {-1.5f, 0, 100}, y32[] = {0, 3, 203};
    const double x64[] = {0.25, 1e300}, y64[] = {3.5, 2e300};
    const int32_t i32[] = {7, -7, 1073741822}, j32[] = {17, -11, 2147483647};
    const int64_t i64[] = {4611686018427387902}, j64[] = {INT64_MAX};
    seed_example(scale, shift, SHOAL_FP32, x32, y32, sizeof x32);
    seed_example(scale, shift, SHOAL_FP64, x64, y64, sizeof x64);
    seed_example(scale, shift, SHOAL_INT32, i32, j32, sizeof i32);
    seed_example(scale, shift, SHOAL_INT64, i64, j64, sizeof i64);
    seed_example(scale, shift, SHOAL_INT64, i64, j64, 0);
    shoal_harness_close(shift);
    shoal_harness_close(scale);
}

TEST_CASE(scale_keeps_shapes_and_runs_batches)
{
    const struct shoal_param params[] = {{"factor", "-0.5"}};
    struct shoal_harness *scale = stage_open("scale", 1, params);
    const float x[] = {2, 4, 6, 8};
    const int64_t shape[] = {2, 1, 2};
    struct shoal_harness_item *items[2] = {shoal_harness_item(scale), shoal_harness_item(scale)};
    shoal_harness_input(items[0], "x", SHOAL_FP32, 3, shape, x);
    shoal_harness_input(items[1], "x", SHOAL_FP32, 0, NULL, x);
    shoal_harness_run(scale, items, 2);
    assert_int_equal(shoal_harness_runs(scale), 1);
    const float y[] = {-1, -2, -3, -4};
    assert_memory_equal(output_data(items[0], "x", SHOAL_FP32, sizeof y), y, sizeof y);
    assert_int_equal(shoal_harness_output(items[0], "x")->rank, 3);
    assert_memory_equal(shoal_harness_output(items[0], "x")->shape, shape, sizeof shape);
    assert_memory_equal(output_data(items[1], "x", SHOAL_FP32, sizeof *y), y, sizeof *y);
    shoal_harness_close(scale);
}

TEST_CASE(scale_and_shift_fail_only_the_bad_item)
{
    static const char *const names[] = {"scale", "shift"};
    static const char *const outputs[] = {"x", "y"};
    for (size_t i = 0; i < 2; i++) {
        struct shoal_harness *stage = stage_open(names[i], 0, NULL);
        const float x = 1;
        const int32_t large[] = {1, INT32_MAX};
        const int64_t larger[] = {INT64_MAX};
        struct shoal_harness_item *items[] = {
            item_with(stage, "x", SHOAL_FP32, 1, &x),
            item_with(stage, "z", SHOAL_FP32, 1, &x),
            item_with(stage, "x", SHOAL_UINT32, 1, &x),
            item_with(stage, "x", SHOAL_INT32, 2, large),
            item_with(stage, "x", SHOAL_INT64, 1, larger),
        };
        shoal_harness_run(stage, items, 5);
        const float *y = output_data(items[0], outputs[i], SHOAL_FP32, sizeof x);
        assert_true(*y == (i == 0 ? 2.0f : 4.0f));
        item_failed(items[1], SHOAL_INVALID_ARGUMENT, "\"x\"");
        item_failed(items[2], SHOAL_INVALID_ARGUMENT, "datatype");
        item_failed(items[3], SHOAL_OUT_OF_RANGE, "element 1");
        item_failed(items[4], SHOAL_OUT_OF_RANGE, "element 0");
        shoal_harness_limit(stage, 0);
        shoal_harness_run(stage, items, 1);
        item_failed(items[0], SHOAL_RESOURCE_EXHAUSTED, outputs[i]);
        shoal_harness_close(stage);
    }
}

TEST_CASE(scale_and_shift_parameters)
{
    stage_refuses("scale", "fcator", "2", "fcator");
    stage_refuses("scale", "factor", "two", "two");
    stage_refuses("shift", "offset", "", "offset");
    stage_refuses("shift", "offset", "3x", "3x");
    const struct shoal_param params[] = {{"offset", "0.5"}};
    struct shoal_harness *shift = stage_open("shift", 1, params);
    const int32_t x = 1;
    struct shoal_harness_item *item = item_with(shift, "x", SHOAL_INT32, 1, &x);
    shoal_harness_run(shift, &item, 1);
    item_failed(item, SHOAL_INVALID_ARGUMENT, "integers");
    shoal_harness_close(shift);
}

/* ---- normalize, label ---- */

TEST_CASE(normalize_takes_both_datatypes)
{
    struct shoal_harness *normalize = stage_open("normalize", 0, NULL);
    const int64_t shape[] = {2, PIXELS};
    float floats[2 * PIXELS];
    uint8_t bytes[2 * PIXELS];
    for (size_t i = 0; i < 2 * PIXELS; i++)
        floats[i] = (float)(bytes[i] = (uint8_t)(i % 17));
    struct shoal_harness_item *items[2] = {shoal_harness_item(normalize),
                                           shoal_harness_item(normalize)};
    shoal_harness_input(items[0], "image", SHOAL_FP32, 2, shape, floats);
    shoal_harness_input(items[1], "image", SHOAL_UINT8, 2, shape, bytes);
    shoal_harness_run(normalize, items, 2);
    for (size_t k = 0; k < 2; k++) {
        const float *out = output_data(items[k], "image", SHOAL_FP32, sizeof floats);
        for (size_t i = 0; i < 2 * PIXELS; i++)
            assert_true(out[i] == floats[i] / 16);
        assert_int_equal(shoal_harness_output(items[k], "image")->shape[0], 2);
    }
    shoal_harness_close(normalize);
}

TEST_CASE(normalize_refuses_what_is_no_image)
{
    struct shoal_harness *normalize = stage_open("normalize", 0, NULL);
    float pixels[2 * PIXELS] = {0};
    const int64_t two_images[] = {2, PIXELS};
    const int64_t flat[] = {PIXELS};
    const int64_t narrow[] = {2, 32};
    uint8_t bytes[2 * PIXELS] = {[PIXELS + 5] = 17};
    enum { COUNT = 8 };
    struct shoal_harness_item *items[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        items[i] = shoal_harness_item(normalize);
    shoal_harness_input(items[0], "image", SHOAL_FP32, 1, flat, pixels);
    shoal_harness_input(items[1], "image", SHOAL_FP32, 2, narrow, pixels);
    shoal_harness_input(items[2], "picture", SHOAL_FP32, 2, one_image, pixels);
    shoal_harness_input(items[3], "image", SHOAL_INT8, 2, one_image, pixels);
    pixels[PIXELS + 5] = 16.5f;
    shoal_harness_input(items[4], "image", SHOAL_FP32, 2, two_images, pixels);
    pixels[PIXELS + 5] = NAN;
    shoal_harness_input(items[5], "image", SHOAL_FP32, 2, two_images, pixels);
    pixels[PIXELS + 5] = -1e-45f; /* a sixteenth of it is no longer below 0 */
    shoal_harness_input(items[6], "image", SHOAL_FP32, 2, two_images, pixels);
    shoal_harness_input(items[7], "image", SHOAL_UINT8, 2, two_images, bytes);
    shoal_harness_run(normalize, items, COUNT);
    item_failed(items[0], SHOAL_INVALID_ARGUMENT, "shape [n, 64]");
    item_failed(items[1], SHOAL_INVALID_ARGUMENT, "shape [n, 64]");
    item_failed(items[2], SHOAL_INVALID_ARGUMENT, "\"image\"");
    item_failed(items[3], SHOAL_INVALID_ARGUMENT, "datatype");
    for (size_t i = 4; i < COUNT; i++)
        item_failed(items[i], SHOAL_INVALID_ARGUMENT, "pixel 5 of row 1");
    shoal_harness_close(normalize);
}

TEST_CASE(normalize_declares_what_is_configured)
{
    stage_refuses("normalize", "datatype", "INT64", "INT64");
    stage_refuses("normalize", "type", "UINT8", "type");
    static const struct shoal_param params[] = {{"datatype", "UINT8"}};
    static const uint32_t datatypes[] = {SHOAL_FP32, SHOAL_UINT8};
    for (uint32_t i = 0; i < 2; i++) {
        struct shoal_harness *normalize = stage_open("normalize", i, params);
        struct shoal_io io = shoal_harness_describe(normalize);
        assert_int_equal(io.input_count, 1);
        assert_int_equal(io.inputs[0].datatype, datatypes[i]);
        assert_int_equal(io.inputs[0].shape[1], PIXELS);
        assert_int_equal(io.outputs[0].datatype, SHOAL_FP32);
        shoal_harness_close(normalize);
    }
}

TEST_CASE(label_takes_the_most_probable)
{
    struct shoal_harness *label = stage_open("label", 0, NULL);
    const int64_t shape[] = {4, CLASSES};
    float probabilities[4 * CLASSES] = {[7] = 0.9f, [CLASSES + 9] = 1, [2 * CLASSES] = 0.4f};
    probabilities[3 * CLASSES + 4] = probabilities[3 * CLASSES + 6] =
        0.5f; /* the first of equals */
    struct shoal_harness_item *items[2] = {shoal_harness_item(label), shoal_harness_item(label)};
    shoal_harness_input(items[0], "probabilities", SHOAL_FP32, 2, shape, probabilities);
    shoal_harness_input(items[1], "probabilities", SHOAL_FP32, 1, &shape[1], probabilities);
    shoal_harness_run(label, items, 2);
    const int64_t expected[] = {7, 9, 0, 4};
    assert_memory_equal(output_data(items[0], "label", SHOAL_INT64, sizeof expected), expected,
                        sizeof expected);
    assert_int_equal(shoal_harness_output(items[0], "label")->rank, 1);
    assert_memory_equal(output_data(items[0], "probabilities", SHOAL_FP32, sizeof probabilities),
                        probabilities, sizeof probabilities);
    item_failed(items[1], SHOAL_INVALID_ARGUMENT, "[n, 10]");
    assert_int_equal(shoal_harness_describe(label).output_count, 2);
    shoal_harness_close(label);
}

/* ---- xgboost ---- */

/* A picture that no two seeds share. */
static void
noise(float *pixels, size_t count, unsigned seed)
{
    uint64_t state = seed;
    for (size_t i = 0; i < count; i++)
        pixels[i] = (float)(random_draw(&state) % 17) / 16;
}

TEST_CASE(xgboost_reads_its_shapes_from_the_model)
{
    struct shoal_harness *classify = classify_open();
    struct shoal_io io = shoal_harness_describe(classify);
    assert_string_equal(io.platform, "xgboost");
    assert_int_equal(io.inputs[0].shape[1], PIXELS);
    assert_int_equal(io.outputs[0].shape[1], CLASSES);
    assert_string_equal(io.outputs[0].name, "probabilities");
    shoal_harness_close(classify);

    const struct shoal_param params[] = {
        {"model", "digits.ubj"}, {"input", "pixels"}, {"output", "chances"}};
    classify = stage_open("xgboost_modelet", 3, params);
    io = shoal_harness_describe(classify);
    assert_string_equal(io.inputs[0].name, "pixels");
    assert_string_equal(io.outputs[0].name, "chances");
    shoal_harness_close(classify);
}

/* Items of 0, 1, 2, … rows in one batch answer bit by bit what each answers alone. */
TEST_CASE(xgboost_batch_equals_its_items)
{
    struct shoal_harness *classify = classify_open();
    enum { COUNT = 20 };
    struct shoal_harness_item *items[COUNT];
    float pixels[COUNT * PIXELS];
    for (int i = 0; i < COUNT; i++) {
        int64_t shape[] = {i, PIXELS};
        noise(pixels, (size_t)i * PIXELS, (unsigned)i);
        items[i] = shoal_harness_item(classify);
        shoal_harness_input(items[i], "image", SHOAL_FP32, 2, shape, pixels);
    }
    shoal_harness_run(classify, items, COUNT);
    assert_int_equal(shoal_harness_runs(classify), 1);
    for (int i = 0; i < COUNT; i++) {
        size_t bytes = (size_t)i * CLASSES * sizeof(float);
        const float *batched = output_data(items[i], "probabilities", SHOAL_FP32, bytes);
        struct shoal_harness_item *alone = shoal_harness_item(classify);
        shoal_harness_input(alone, "image", SHOAL_FP32, 2, items[i]->inputs[0].shape,
                            items[i]->inputs[0].data);
        shoal_harness_run(classify, &alone, 1);
        assert_memory_equal(output_data(alone, "probabilities", SHOAL_FP32, bytes), batched, bytes);
        for (int row = 0; row < i; row++) {
            float sum = 0;
            for (int class = 0; class < CLASSES; class ++)
                sum += batched[row * CLASSES + class];
            assert_true(fabsf(sum - 1) < 1e-4f);
        }
    }
    shoal_harness_close(classify);
}

TEST_CASE(xgboost_fails_only_the_bad_item)
{
    const struct shoal_param params[] = {{"model", "digits.ubj"}, {"input", "image"}};
    struct shoal_harness *classify = stage_open("xgboost_modelet", 2, params);
    float pixels[PIXELS];
    double doubles[PIXELS] = {0};
    noise(pixels, PIXELS, 1);
    const int64_t narrow[] = {2, 32};
    enum { COUNT = 5 };
    struct shoal_harness_item *items[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        items[i] = shoal_harness_item(classify);
    shoal_harness_input(items[0], "image", SHOAL_FP32, 2, one_image, pixels);
    shoal_harness_input(items[1], "image", SHOAL_FP32, 2, narrow, pixels);
    shoal_harness_input(items[2], "image", SHOAL_FP64, 2, one_image, doubles);
    shoal_harness_input(items[3], "picture", SHOAL_FP32, 2, one_image, pixels);
    shoal_harness_input(items[4], "image", SHOAL_FP32, 2, one_image, pixels);
    shoal_harness_run(classify, items, COUNT);
    size_t bytes = CLASSES * sizeof(float);
    const void *first = output_data(items[0], "probabilities", SHOAL_FP32, bytes);
    assert_memory_equal(output_data(items[4], "probabilities", SHOAL_FP32, bytes), first, bytes);
    item_failed(items[1], SHOAL_INVALID_ARGUMENT, "[n, 64]");
    item_failed(items[2], SHOAL_INVALID_ARGUMENT, "FP32");
    item_failed(items[3], SHOAL_INVALID_ARGUMENT, "\"image\"");
    shoal_harness_limit(classify, bytes);
    shoal_harness_run(classify, items, COUNT);
    assert_int_equal(items[0]->item.status, SHOAL_OK);
    item_failed(items[4], SHOAL_RESOURCE_EXHAUSTED, "probabilities");
    shoal_harness_close(classify);
}

TEST_CASE(xgboost_says_what_is_wrong_with_a_model)
{
    stage_refuses("xgboost_modelet", "modle", "digits.ubj", "modle");
    stage_refuses("xgboost_modelet", "model", "no-such.ubj", "no-such.ubj: No such file");
}

/* ---- the digits pipeline ---- */

/* Reads the next row; 0 at the end of the file. */
static int
digit_read(FILE *file, float pixels[PIXELS], int *digit)
{
    int value;
    for (size_t i = 0; i < PIXELS; i++) {
        if (fscanf(file, "%d,", &value) != 1)
            return 0;
        pixels[i] = (float)value;
    }
    return fscanf(file, "%d", digit) == 1;
}

/* Sends a batch through the stages; returns how many labels are right. */
static size_t
digits_run(struct shoal_harness *const stages[3], struct shoal_harness_item **items,
           const int *digits, uint32_t count)
{
    size_t right = 0;
    for (size_t stage = 0; stage < 3; stage++) {
        for (uint32_t i = 0; stage > 0 && i < count; i++)
            items[i] = shoal_harness_forward(items[i], stages[stage]);
        shoal_harness_run(stages[stage], items, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        const int64_t *label = output_data(items[i], "label", SHOAL_INT64, sizeof *label);
        output_data(items[i], "probabilities", SHOAL_FP32, CLASSES * sizeof(float));
        right += *label == digits[i];
    }
    return right;
}

TEST_CASE(digits_pipeline_gets_95_percent_right)
{
    char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/examples/digits/data/digits.csv", getenv("SHOAL_SOURCE_DIR"));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    struct shoal_harness *stages[3] = {stage_open("normalize", 0, NULL), classify_open(),
                                       stage_open("label", 0, NULL)};
    struct shoal_harness_item *items[BATCH];
    int digits[BATCH];
    float pixels[PIXELS];
    uint32_t count = 0;
    size_t total = 0, right = 0;
    for (size_t row = 0; digit_read(file, pixels, &digits[count]); row++) {
        if (row % 5 != 4)
            continue;
        items[count] = shoal_harness_item(stages[0]);
        shoal_harness_input(items[count], "image", SHOAL_FP32, 2, one_image, pixels);
        total++;
        if (++count == BATCH) {
            right += digits_run(stages, items, digits, count);
            count = 0;
        }
    }
    if (count > 0)
        right += digits_run(stages, items, digits, count);
    fclose(file);
    printf("%zu of %zu held-out digits right\n", right, total);
    assert_int_equal(total, 359);
    assert_true(right * 100 >= total * 95);
    for (size_t i = 0; i < 3; i++)
        shoal_harness_close(stages[i]);
}

TEST_MAIN()
