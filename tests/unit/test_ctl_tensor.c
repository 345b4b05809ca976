/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that shoalctl reads tensors as its help says: every datatype with its limits, shapes and
 * the one dimension left open, raw files, CSV rows; that what is written wrong is refused with the
 * reason; and that values are printed so that they can be read back. 16-bit floats are tried whole:
 * all bits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../test.h"
#include "ctl/input.h"

static const struct input_options plain;

static void
reads(struct ctl_tensor *tensor, const char *text)
{
    struct error error = ERROR_NONE;
    if (input_read(text, &plain, tensor, &error) != STATUS_OK)
        fail_msg("%s: %s", text, error.text);
}

static void
refuses(const char *text, const char *words)
{
    struct error error = ERROR_NONE;
    struct ctl_tensor tensor;
    assert_int_equal(input_read(text, &plain, &tensor, &error), STATUS_INVALID_ARGUMENT);
    if (strstr(error.text, words) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", text, error.text, words);
}

/* The values of a tensor as JSON; the next call frees them. */
static char *shown;
static size_t shown_bytes;

static const char *
values(const struct ctl_tensor *tensor)
{
    struct bytes out = {0};
    struct json json = json_begin(&out, JSON_STYLE_SPACED);
    free(shown);
    tensor_json(tensor, &json);
    bytes_put_char(&out, '\0');
    shown = bytes_take(&out, &shown_bytes);
    return shown;
}

static const char *
printed(const struct ctl_tensor *tensor, enum tensor_detail detail)
{
    free(shown);
    FILE *stream = open_memstream(&shown, &shown_bytes);
    tensor_print(tensor, detail, stream);
    assert_int_equal(fclose(stream), 0);
    return shown;
}

static int
shown_free(void **state)
{
    (void)state;
    free(shown);
    return 0;
}

static void
reads_as(const char *text, const char *json)
{
    struct ctl_tensor tensor;
    struct error error = ERROR_NONE;
    reads(&tensor, text);
    assert_int_equal(tensor_validate(&tensor, &error), STATUS_OK);
    assert_string_equal(values(&tensor), json);
    tensor_free(&tensor);
}

/* ---- values ---- */

TEST_CASE(test_every_datatype)
{
    reads_as("x=BOOL[4]:true,false,1,0", "[true, false, true, false]");
    reads_as("x=INT8[2]:-128,127", "[-128, 127]");
    reads_as("x=INT16[2]:-32768,0x7fff", "[-32768, 32767]");
    reads_as("x=INT32[2]:-2147483648, 2147483647 ", "[-2147483648, 2147483647]");
    reads_as("x=INT64[2]:-9223372036854775808,9223372036854775807",
             "[-9223372036854775808, 9223372036854775807]");
    reads_as("x=UINT8[2]:0,255", "[0, 255]");
    reads_as("x=UINT16[1]:65535", "[65535]");
    reads_as("x=UINT32[1]:4294967295", "[4294967295]");
    reads_as("x=UINT64[1]:18446744073709551615", "[18446744073709551615]");
    reads_as("x=FP32[4]:0.1,-2.5e3,nan,-inf", "[0.1, -2500, \"NaN\", \"-Infinity\"]");
    reads_as("x=FP64[2]:0.1,1e300", "[0.1, 1e+300]");
    reads_as("x=FP16[3]:1.5,-65504,6e-8", "[1.5, -65504, 5.9604645e-08]");
    reads_as("x=BF16[2]:1.5,-3e38", "[1.5, -3.0040553e+38]");
    reads_as("x=BYTES[3]:a\\,b,,c\\\\\\n\\x41", "[\"a,b\", \"\", \"c\\\\\\nA\"]");
    reads_as("x=BYTES[2]:\\xff\\x00\\x01,\\x80", "[{\"b64\": \"/wAB\"}, {\"b64\": \"gA==\"}]");
    reads_as("x=BYTES[1]:\\xff\\xfe", "[{\"b64\": \"//4=\"}]");
}

TEST_CASE(test_values_that_do_not_fit)
{
    refuses("x=BOOL[1]:2", "is not BOOL");
    refuses("x=INT8[1]:128", "out of range for INT8");
    refuses("x=INT8[1]:-129", "out of range for INT8");
    refuses("x=INT64[1]:9223372036854775808", "out of range for INT64");
    refuses("x=UINT8[1]:256", "out of range for UINT8");
    refuses("x=UINT8[1]:-1", "out of range for UINT8");
    refuses("x=UINT64[1]:18446744073709551616", "out of range for UINT64");
    refuses("x=UINT64[1]:-1", "out of range for UINT64");
    refuses("x=INT32[1]:1.5", "is not INT32");
    refuses("x=INT32[2]:1,,2", "value 2");
    refuses("x=FP32[1]:1e39", "out of range for FP32");
    refuses("x=FP64[1]:1e999", "out of range for FP64");
    refuses("x=FP16[1]:65520", "out of range for FP16");
    refuses("x=FP32[1]:1x", "is not FP32");
    refuses("x=BYTES[1]:\\q", "backslash");
    refuses("x=BYTES[1]:\\", "backslash");
    refuses("x=BYTES[1]:\\x4", "backslash");
}

TEST_CASE(test_shapes)
{
    struct ctl_tensor tensor;
    reads(&tensor, "a:b=INT8[2,-1,2]:1,2,3,4,5,6,7,8");
    assert_string_equal(tensor.name, "a:b");
    assert_int_equal(tensor.rank, 3);
    assert_int_equal(tensor.shape[1], 2);
    tensor_free(&tensor);
    reads_as("x=FP32[]:7", "[7]");
    reads_as("x=FP32[0]:", "[]");
    reads_as("x=FP32[3,0]:", "[]");
    reads_as("x=BYTES[1]:", "[\"\"]");
    reads_as("x=BYTES[0]:", "[]");
    refuses("x=INT8[2]:1", "1 values do not make [2]");
    refuses("x=INT8[2]:1,2,3", "3 values do not make [2]");
    refuses("x=INT8[-1,2]:1,2,3", "do not make [-1,2]");
    refuses("x=INT8[-1,0]:", "do not make");
    refuses("x=INT8[-1,-1]:1", "more than one dimension");
    refuses("x=INT8[-2]:1", "the shape");
    refuses("x=INT8[1,]:1", "the shape");
    refuses("x=INT8[1:1", "the shape");
    refuses("x=INT8[1,1,1,1,1,1,1,1,1]:1", "more than 8 dimensions");
    refuses("x=INT8[4294967296,4294967296,2]:1", "too large");
    refuses("x=INT8[99999999999999999999]:1", "the shape");
    refuses("x=INT9[1]:1", "no datatype \"INT9\"");
    refuses("x=INT8", "no [shape]");
    refuses("INT8[1]:1", "NAME=");
    refuses("=INT8[1]:1", "NAME=");
    refuses("x=INT8[1]", "the shape must be followed by");
    refuses("x=INT8[1]=1", "the shape must be followed by");
}

/* ---- 16-bit floats ---- */

/* Every FP16 and BF16 is printed and read back to the same bits; a NaN to a NaN. */
TEST_CASE(test_half_floats_round_trip)
{
    static const char *const names[] = {"FP16", "BF16"};
    for (size_t t = 0; t < 2; t++) {
        const struct datatype *type = datatype_find(names[t], 4);
        for (uint32_t bits = 0; bits <= UINT16_MAX; bits++) {
            uint16_t half = (uint16_t)bits;
            unsigned char back[ELEMENT_BYTES_MAX];
            char text[64];
            struct error error = ERROR_NONE;
            FILE *stream = fmemopen(text, sizeof text, "w");
            element_print(type, (unsigned char *)&half, sizeof half, stream);
            fclose(stream);
            assert_int_equal(element_read(type, text, back, &error), STATUS_OK);
            if (strstr(text, "nan") == NULL)
                assert_memory_equal(back, &half, sizeof half);
            else
                assert_true((back[1] & 0x7f) >= 0x7c && (back[0] != 0 || (back[1] & 3) != 0));
        }
    }
}

static uint16_t
half_of(const char *type, const char *text)
{
    unsigned char element[ELEMENT_BYTES_MAX];
    struct error error = ERROR_NONE;
    uint16_t half;
    assert_int_equal(element_read(datatype_find(type, 4), text, element, &error), STATUS_OK);
    memcpy(&half, element, sizeof half);
    return half;
}

TEST_CASE(test_half_floats_round_to_nearest_even)
{
    assert_int_equal(half_of("FP16", "1"), 0x3c00);
    assert_int_equal(half_of("FP16", "1.00048828125"), 0x3c00); /* a tie, down to even */
    assert_int_equal(half_of("FP16", "1.00146484375"), 0x3c02); /* a tie, up to even */
    assert_int_equal(half_of("FP16", "1.0004882813"), 0x3c01);
    assert_int_equal(half_of("FP16", "65519.99"), 0x7bff);
    assert_int_equal(half_of("FP16", "1.9999"), 0x4000); /* into the next power */
    assert_int_equal(half_of("FP16", "2.98e-8"), 0x0000);
    assert_int_equal(half_of("FP16", "2.9802325e-8"), 0x0001); /* half of the least and a bit */
    assert_int_equal(half_of("FP16", "6.1e-5"), 0x03ff);
    assert_int_equal(half_of("FP16", "-0"), 0x8000);
    assert_int_equal(half_of("FP16", "inf"), 0x7c00);
    assert_int_equal(half_of("BF16", "1.00390625"), 0x3f80);
    assert_int_equal(half_of("BF16", "1.01171875"), 0x3f82);
    assert_int_equal(half_of("BF16", "3.3895e38"), 0x7f7f);
}

/* ---- files ---- */

struct file {
    char path[64];
    char argument[160];
};

static const char *
file_with(struct file *file, const char *before, const void *data, size_t bytes)
{
    snprintf(file->path, sizeof file->path, "/tmp/shoal-test-input-XXXXXX");
    int fd = mkstemp(file->path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, bytes), bytes);
    close(fd);
    snprintf(file->argument, sizeof file->argument, "%s%s", before, file->path);
    return file->argument;
}

TEST_CASE(test_raw_files)
{
    static const int16_t numbers[] = {1, -2, 3, 4};
    struct file file;
    reads_as(file_with(&file, "x=INT16[2,-1]@", numbers, sizeof numbers), "[1, -2, 3, 4]");
    unlink(file.path);
    refuses(file_with(&file, "x=INT16[3]@", numbers, sizeof numbers), "4 values do not make [3]");
    unlink(file.path);
    refuses(file_with(&file, "x=INT16[-1]@", numbers, 7),
            "7 bytes are not a multiple of the size of INT16");
    unlink(file.path);
    reads_as(file_with(&file, "x=BYTES[1]@", "a,b\n", 4), "[\"a,b\\n\"]");
    unlink(file.path);
    refuses(file_with(&file, "x=BYTES[2]@", "a,b\n", 4), "1 values do not make [2]");
    unlink(file.path);
    struct error error = ERROR_NONE;
    struct ctl_tensor tensor;
    assert_int_equal(input_read("x=INT8[1]@/nowhere/at/all", &plain, &tensor, &error),
                     STATUS_NOT_FOUND);
    assert_non_null(strstr(error.text, "/nowhere/at/all"));
    assert_int_not_equal(input_read("x=INT8[1]@/tmp", &plain, &tensor, &error), STATUS_OK);
}

static enum status
csv(struct ctl_tensor *tensor, const char *head, const char *text,
    const struct input_options *options, struct error *error)
{
    struct file file;
    *error = ERROR_NONE;
    enum status status =
        input_read(file_with(&file, head, text, strlen(text)), options, tensor, error);
    unlink(file.path);
    return status;
}

TEST_CASE(test_csv_rows)
{
    struct ctl_tensor tensor;
    struct error error;
    assert_int_equal(csv(&tensor, "x=INT8[-1,2]@csv:", "1,2\r\n\n 3 ,4\n5,6", &plain, &error),
                     STATUS_OK);
    assert_string_equal(values(&tensor), "[1, 2, 3, 4, 5, 6]");
    assert_int_equal(tensor.row_count, 3);
    assert_int_equal(tensor.row_ends[1], 4);
    assert_int_equal(tensor.shape[0], DIMENSION_ANY);
    tensor_free(&tensor);
    assert_int_equal(csv(&tensor, "x=BYTES[-1,2]@csv:", "a,\"b\"\"c,\nd\"\n,e\n", &plain, &error),
                     STATUS_OK);
    assert_string_equal(values(&tensor), "[\"a\", \"b\\\"c,\\nd\", \"\", \"e\"]");
    assert_int_equal(tensor.row_count, 2);
    tensor_free(&tensor);
    const struct input_options middle = {
        .csv_header = true, .csv_column_first = 2, .csv_column_last = 3};
    assert_int_equal(
        csv(&tensor, "x=FP32[-1,2]@csv:", "a,b,c,d\nz,1,2,z\nz,3,4,z\n", &middle, &error),
        STATUS_OK);
    assert_string_equal(values(&tensor), "[1, 2, 3, 4]");
    tensor_free(&tensor);
    /* one value per row, and more rows than the first room for them */
    char many[2048] = "";
    for (size_t i = 0; i < 300; i++)
        memcpy(many + i * 2, "7\n", 3);
    assert_int_equal(csv(&tensor, "x=UINT8[-1]@csv:", many, &plain, &error), STATUS_OK);
    assert_int_equal(tensor.row_count, 300);
    assert_int_equal(tensor.row_ends[299], 300);
    tensor_free(&tensor);
}

TEST_CASE(test_csv_mistakes)
{
    static const struct {
        const char *head;
        const char *text;
        const char *words;
    } cases[] = {
        {"x=INT8[-1,2]@csv:", "1,2\n3\n", "line 2: 1 values, the shape needs 2"},
        {"x=INT8[-1,2]@csv:", "1,2\n3,4,5\n", "line 2: 3 values, the shape needs 2"},
        {"x=INT8[-1,2]@csv:", "1,2\n\n3,b\n", "line 3: column 2: \"b\" is not INT8"},
        {"x=INT8[-1,2]@csv:", "1,\n", "column 2"},
        {"x=BYTES[-1]@csv:", "\"a\n", "quote"},
        {"x=BYTES[-1]@csv:", "\"a\"b\n", "quote"},
        {"x=INT8[-1]@csv:", "\n\n", "no rows"},
        {"x=INT8[]@csv:", "1\n", "one dimension"},
        {"x=INT8[2,-1]@csv:", "1\n", "only the first dimension"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ctl_tensor tensor;
        struct error error;
        assert_int_equal(csv(&tensor, cases[i].head, cases[i].text, &plain, &error),
                         STATUS_INVALID_ARGUMENT);
        if (strstr(error.text, cases[i].words) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", error.text, cases[i].words);
    }
}

/* ---- printing ---- */

TEST_CASE(test_small_tensors_are_printed_whole)
{
    struct ctl_tensor tensor;
    reads(&tensor, "y=FP32[1]:0.5");
    assert_string_equal(printed(&tensor, TENSOR_EXCERPT), "\"y\"  FP32[1]  0.5\n");
    tensor_free(&tensor);
    reads(&tensor, "y=INT8[2,2]:1,2,3,4");
    assert_string_equal(printed(&tensor, TENSOR_EXCERPT), "\"y\"  INT8[2,2]\n    1 2\n    3 4\n");
    tensor_free(&tensor);
    reads(&tensor, "y=INT8[2,0]:");
    assert_string_equal(printed(&tensor, TENSOR_EXCERPT), "\"y\"  INT8[2,0]\n");
    tensor_free(&tensor);
}

TEST_CASE(test_large_tensors_are_cut)
{
    char text[1024] = "y=UINT8[10,20]:0";
    for (size_t i = 1; i < 200; i++)
        memcpy(text + strlen(text), ",0", 3);
    struct ctl_tensor tensor;
    reads(&tensor, text);
    assert_non_null(strstr(printed(&tensor, TENSOR_EXCERPT), "4 more\n"));
    assert_non_null(strstr(shown, "2 more rows; --full shows all\n"));
    assert_null(strstr(printed(&tensor, TENSOR_FULL), "more"));
    tensor_free(&tensor);
}

/* A node's text must not move the reader's cursor. */
TEST_CASE(test_no_control_characters_reach_the_terminal)
{
    struct ctl_tensor tensor;
    reads(&tensor, "y=BYTES[1]:\\x1b[2J\\xc2\\x9b1m\\xff\"");
    assert_string_equal(printed(&tensor, TENSOR_EXCERPT),
                        "\"y\"  BYTES[1]  \"\\x1b[2J\\xc2\\x9b1m\\xff\\\"\"\n");
    tensor_free(&tensor);
}

TEST_CASE(test_others_bytes_are_validated)
{
    static unsigned char data[] = {2, 0, 0, 0, 'a', 'b', 1, 0, 0, 0, 'c'};
    static char name[] = "t";
    struct ctl_tensor tensor = {.name = name, .rank = 1, .shape = {2}, .data = data, .bytes = 11};
    struct error error = ERROR_NONE;
    tensor.type = datatype_find("BYTES", 5);
    assert_int_equal(tensor_validate(&tensor, &error), STATUS_OK);
    for (size_t bytes = 0; bytes < 11; bytes++) {
        tensor.bytes = bytes;
        assert_int_equal(tensor_validate(&tensor, &error), STATUS_DATA_LOSS);
    }
    tensor.bytes = 11;
    tensor.shape[0] = 1;
    assert_int_equal(tensor_validate(&tensor, &error), STATUS_DATA_LOSS);
    tensor.shape[0] = -1;
    assert_int_equal(tensor_validate(&tensor, &error), STATUS_DATA_LOSS);
    tensor.type = datatype_find("INT64", 5);
    tensor.rank = 2;
    tensor.shape[0] = INT64_MAX;
    tensor.shape[1] = 8;
    tensor.bytes = 0;
    assert_int_equal(tensor_validate(&tensor, &error), STATUS_DATA_LOSS);
    tensor.rank = 1;
    tensor.shape[0] = INT64_C(1) << 61; /* of 8 bytes each: 0 in 64 bits */
    assert_int_equal(tensor_validate(&tensor, &error), STATUS_DATA_LOSS);
    tensor.rank = 2;
    tensor.shape[1] = 0;
    assert_int_equal(tensor_validate(&tensor, &error), STATUS_OK);
}

TEST_MAIN(.group_teardown = shown_free)
