/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The onnx modelet and its files: models that are loaded and unloaded, folders, weights in files of
 * their own, used as they lie or laid out anew. Broken files, each wrong in one way, and files that
 * are well-formed but nothing that can be served, are refused with the reason; so are parameters.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../test.h"
#include "onnx_rig.h"

/* ---- models that are loaded ---- */

TEST_CASE(test_models_are_loaded_and_unloaded)
{
    struct shoal_harness *harness = rig_open(MODELET, 0, NULL);
    assert_int_equal(shoal_harness_describe(harness).input_count, 0);
    assert_string_equal(shoal_harness_describe(harness).platform, "onnxruntime");
    for (size_t turn = 0; turn < 3; turn++) {
        onnx_dense();
        onnx_load(harness, onnx_write("one.onnx"));
        remove(rig_path("one.onnx")); /* it is in memory */
        struct shoal_harness_item *item = onnx_dense_item(harness, 2);
        shoal_harness_run(harness, &item, 1);
        onnx_dense_right(item);
        onnx_sums(2);
        onnx_load(harness, onnx_write("another"));
        item = onnx_ones(harness, 2);
        shoal_harness_run(harness, &item, 1);
        assert_true(rig_floats(item, "y", 2)[0] == 2);
    }
    onnx_load(harness, NULL);
    struct shoal_harness_item *item = onnx_ones(harness, 2);
    shoal_harness_run(harness, &item, 1);
    rig_failed(item, SHOAL_FAILED_PRECONDITION, "there is no model");
    shoal_harness_close(harness);
}

/* ---- folders, and weights in files of their own ---- */

static const char *
write_into(const char *folder, const char *name, const void *bytes, size_t size)
{
    char place[64];
    mkdir(rig_path(folder), 0700);
    snprintf(place, sizeof place, "%s/%s", folder, name);
    return rig_write(place, bytes, size);
}

static void
folder_remove(const char *folder)
{
    static const char *const names[] = {"model.onnx", "second.onnx", "third.onnx", "weights.bin",
                                        "notes.txt"};
    char place[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(place, sizeof place, "%s/%s", folder, names[i]);
        remove(rig_path(place));
    }
    assert_int_equal(rmdir(rig_path(folder)), 0);
}

/* The dense layer, its weights at `offset` in weights.bin, its bias at 4096. */
static void
dense_apart(const char *location, const char *offset, const char *length, size_t skip)
{
    static char file[8192];
    onnx_graph.size = 0;
    onnx_dense_draw();
    onnx_dense_nodes();
    graph_constant_apart(&onnx_graph, "W", ONNX_FLOAT, 2, (const int64_t[]){IN, OUT}, location,
                         offset, length);
    graph_constant_apart(&onnx_graph, "b", ONNX_FLOAT, 1, (const int64_t[]){OUT}, "weights.bin",
                         "4096", "12");
    memcpy(file + skip, onnx_weights, sizeof onnx_weights);
    memcpy(file + 4096, onnx_bias, sizeof onnx_bias);
    write_into("folder", "weights.bin", file, sizeof file);
    graph_finish(&onnx_graph, &onnx_model);
    write_into("folder", "model.onnx", onnx_model.bytes, onnx_model.size);
}

/* At the beginning, at a place of its own, and at one where floats can't be used as they lie. */
TEST_CASE(test_weights_apart)
{
    static const struct {
        const char *offset;
        const char *length;
        size_t skip;
    } places_[] = {{NULL, NULL, 0}, {"64", "60", 64}, {"65", NULL, 65}};
    static const char *const modes[] = {"on", "off"};
    for (size_t i = 0; i < 6; i++) {
        const struct shoal_param params[] = {{"prepacking", modes[i / 3]}, {"model", "folder"}};
        dense_apart("weights.bin", places_[i % 3].offset, places_[i % 3].length,
                    places_[i % 3].skip);
        struct shoal_harness *harness = rig_open(MODELET, 2, params); /* its own */
        struct shoal_harness_item *item = onnx_dense_item(harness, 7);
        shoal_harness_run(harness, &item, 1);
        onnx_dense_right(item);
        shoal_harness_close(harness);
        harness = rig_open(MODELET, 1, params);
        for (size_t turn = 0; turn < 3; turn++) { /* loaded, and loaded again */
            onnx_load(harness, rig_path("folder"));
            item = onnx_dense_item(harness, 7);
            shoal_harness_run(harness, &item, 1);
            onnx_dense_right(item);
        }
        shoal_harness_close(harness);
    }
    folder_remove("folder");
}

TEST_CASE(test_weights_that_are_not_there)
{
    static const struct {
        const char *location;
        const char *offset;
        const char *length;
        const char *words;
    } wrong[] = {
        {"../weights.bin", NULL, NULL, "not in its folder"},
        {"a/../../weights.bin", NULL, NULL, "not in its folder"},
        {"/etc/passwd", NULL, NULL, "not in its folder"},
        {"..", NULL, NULL, "not in its folder"},
        {NULL, NULL, NULL, "not in its folder"},
        {"other.bin", NULL, NULL, "No such file"},
        {"weights.bin", "8192", NULL, "claims more than its file"},
        {"weights.bin", "10737418240", NULL, "claims more than its file"},
        {"weights.bin", "0", "10737418240", "claims more than its file"},
        {"weights.bin", "0", "59", "claims more than its file"},
        {"weights.bin", "-1", NULL, "not a number"},
        {"weights.bin", "18446744073709551616", NULL, "not a number"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        dense_apart(wrong[i].location, wrong[i].offset, wrong[i].length, 0);
        struct shoal_harness *harness = rig_open(MODELET, 0, NULL);
        struct shoal_error error;
        assert_int_not_equal(shoal_harness_load(harness, rig_path("folder"), &error), SHOAL_OK);
        if (strstr(error.text, wrong[i].words) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", error.text, wrong[i].words);
        shoal_harness_close(harness);
    }
    dense_apart("weights.bin", "0", "60", 0);
    rig_refuses(MODELET, rig_path("folder/model.onnx"), "give the folder that all are in");
    folder_remove("folder");
}

TEST_CASE(test_predicted_size)
{
    struct shoal_harness *harness = rig_open(MODELET, 0, NULL);
    onnx_dense();
    /* the file, 400 KiB, 4 KiB for each of 3 nodes, and constants of 72 bytes with their names */
    uint64_t size = shoal_harness_predict_size(harness, onnx_write("one.onnx"));
    uint64_t least = onnx_model.size + (400 << 10) + (3 * 4096) + 72;
    assert_in_range(size, least, least + 56);
    /* constants in another file are mapped, and copied unless they are used as they lie */
    static const char *const modes[] = {"on", "off"};
    dense_apart("weights.bin", NULL, NULL, 0);
    shoal_harness_close(harness);
    for (size_t i = 0; i < 2; i++) {
        const struct shoal_param params[] = {{"prepacking", modes[i]}};
        harness = rig_open(MODELET, 1, params);
        size = shoal_harness_predict_size(harness, rig_path("folder"));
        assert_int_equal(size, onnx_model.size + (400 << 10) + (3 * 4096) + (i == 0 ? 144 : 72));
        if (i == 0)
            shoal_harness_close(harness);
    }
    folder_remove("folder");
    assert_int_equal(shoal_harness_predict_size(harness, rig_write("broken", "x", 1)), 0);
    assert_int_equal(shoal_harness_predict_size(harness, rig_path("nothing")), 0);
    shoal_harness_close(harness);
}

TEST_CASE(test_folders)
{
    write_into("folder", "notes.txt", "", 0);
    rig_refuses(MODELET, rig_path("folder"), "is a folder with no file that ends in .onnx");
    onnx_dense();
    graph_finish(&onnx_graph, &onnx_model);
    write_into("folder", "model.onnx", onnx_model.bytes, onnx_model.size);
    struct shoal_harness *harness = rig_open(MODELET, 0, NULL);
    onnx_load(harness, rig_path("folder"));
    shoal_harness_close(harness);
    write_into("folder", "second.onnx", "", 0); /* not called "model" */
    harness = rig_open(MODELET, 0, NULL);
    onnx_load(harness, rig_path("folder"));
    shoal_harness_close(harness);
    remove(rig_path("folder/model.onnx"));
    write_into("folder", "third.onnx", "", 0);
    rig_refuses(MODELET, rig_path("folder"),
                "is a folder with more than one file that ends in .onnx");
    folder_remove("folder");
}

/* ---- broken files ---- */

TEST_CASE(test_files_that_are_cut_short)
{
    onnx_dense();
    graph_finish(&onnx_graph, &onnx_model);
    for (size_t size = 1; size < onnx_model.size; size += 1 + onnx_model.size / 60) {
        struct shoal_harness *harness = rig_open(MODELET, 0, NULL);
        struct shoal_error error;
        rig_write("cut", onnx_model.bytes, size);
        assert_int_not_equal(shoal_harness_load(harness, rig_path("cut"), &error), SHOAL_OK);
        assert_non_null(strstr(error.text, "cut"));
        shoal_harness_close(harness);
    }
    rig_refuses(MODELET, rig_write("cut", onnx_model.bytes, onnx_model.size - 5),
                "it is truncated");
}

TEST_CASE(test_broken_files)
{
    static const struct {
        const char *words;
        const char *bytes;
        size_t size;
    } files[] = {
#define BYTES(text) text, sizeof text - 1
        {"a field has no type", BYTES("hello")},
        {"a field has no number", BYTES("\0\0\0\0")},
        {"a number is too long", BYTES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")},
        {"it has no graph", BYTES("\x08\x08")},
        {"claims more than it has", BYTES("\x3a\x80\x80\x80\x80\x28")},         /* 10 GiB */
        {"claims more than it has", BYTES("\x3a\x06\x2a\x80\x80\x80\x80\x28")}, /* of a constant */
        {"ONNX Runtime: ", BYTES("\x08\x08\x3a\x00")},
        {"ONNX Runtime: ", BYTES("\x08\x08\x3a\x02\x0a\x00")},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        rig_refuses(MODELET, rig_write("broken", files[i].bytes, files[i].size), files[i].words);
    const char *sparse = rig_write("sparse", "", 0);
    assert_int_equal(truncate(sparse, (off_t)10 << 30), 0);
    rig_refuses(MODELET, rig_path("sparse"), "a field has no number");
    rig_refuses(MODELET, rig_path("nothing"), "No such file or directory");
    rig_refuses(MODELET, rig_write("empty", "", 0), "is empty");
    assert_int_equal(mkfifo(rig_path("fifo"), 0600), 0);
    rig_refuses(MODELET, rig_path("fifo"), "is not a regular file");
    remove(rig_path("fifo"));
    rig_refuses(MODELET, "/dev/zero", "is not a regular file");
}

/* Well-formed, but nothing that can be served. */
TEST_CASE(test_models_that_are_not_served)
{
    onnx_graph.size = 0; /* the constant is of 10 GiB, and has 4 bytes */
    onnx_dense_nodes();
    graph_constant(&onnx_graph, "W", ONNX_FLOAT, 2, (const int64_t[]){IN, 536870912}, "abcd", 4);
    graph_constant(&onnx_graph, "b", ONNX_FLOAT, 1, (const int64_t[]){OUT}, onnx_bias,
                   sizeof onnx_bias);
    rig_refuses(MODELET, onnx_write("wrong"), "ONNX Runtime: ");
    onnx_identity(ONNX_COMPLEX64, 1, (const int64_t[]){ONNX_BATCH});
    rig_refuses(MODELET, onnx_write("wrong"), "wrong");
    onnx_identity(ONNX_FLOAT8, 1, (const int64_t[]){ONNX_BATCH});
    rig_refuses(MODELET, onnx_write("wrong"), "a type that requests cannot have");
    onnx_identity(ONNX_FLOAT, 9, (const int64_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1});
    rig_refuses(MODELET, onnx_write("wrong"), "has more than 8 dimensions");
    onnx_graph.size = 0;
    graph_input(&onnx_graph, "x", ONNX_FLOAT, 1, (const int64_t[]){2});
    graph_node(&onnx_graph, "Nonsense", "x", "y");
    graph_output(&onnx_graph, "y", ONNX_FLOAT, 1, (const int64_t[]){2});
    rig_refuses(MODELET, onnx_write("wrong"), "Nonsense");
    onnx_graph.size = 0; /* a sequence of tensors */
    graph_input(&onnx_graph, "x", ONNX_FLOAT, 1, (const int64_t[]){2});
    graph_node(&onnx_graph, "SequenceConstruct", "x", "y");
    message_bytes(&onnx_graph, 12,
                  "\x0a\x01y\x12\x0c\x22\x0a\x0a\x08\x0a\x06\x08\x01\x12\x02\x0a\x00", 17);
    rig_refuses(MODELET, onnx_write("wrong"), "only plain tensors are served");
}

TEST_CASE(test_wrong_parameters)
{
    static const struct {
        struct shoal_param param;
        const char *words;
    } wrong[] = {
        {{"batch", "maybe"}, "it may be auto or never"},
        {{"prepacking", ""}, "it may be on or off"},
        {{"intra_threads", "0"}, "1 to 1024"},
        {{"intra_threads", "two"}, "1 to 1024"},
        {{"inter_threads", "1025"}, "1 to 1024"},
        {{"optimization", "much"}, "none, basic, extended or all"},
        {{"modle", "x"}, "the parameters are model, batch"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct shoal_harness *harness;
        struct shoal_error error;
        assert_int_equal(rig_try(MODELET, 1, &wrong[i].param, &harness, &error),
                         SHOAL_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, wrong[i].words));
        assert_non_null(strstr(error.text, wrong[i].param.name));
    }
}

TEST_CASE(test_right_parameters)
{
    static const struct shoal_param right[] = {
        {"optimization", "none"}, {"optimization", "basic"}, {"optimization", "extended"},
        {"optimization", "all"},  {"intra_threads", "2"},    {"inter_threads", "2"},
        {"prepacking", "off"},    {"batch", "auto"},
    };
    onnx_dense();
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        struct shoal_harness *harness = onnx_serve_with(right[i].name, right[i].value);
        struct shoal_harness_item *items[] = {onnx_dense_item(harness, 3),
                                              onnx_dense_item(harness, 64)};
        shoal_harness_run(harness, items, 2);
        onnx_dense_right(items[0]);
        onnx_dense_right(items[1]);
        shoal_harness_close(harness);
    }
}

int
main(void)
{
    if (!onnx_is_there())
        return cmocka_run_group_tests(onnx_lacking, NULL, NULL);
    return TEST_RUN(.group_setup = rig_setup, .group_teardown = rig_teardown);
}
