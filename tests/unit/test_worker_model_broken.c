/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Broken models, of both engines of the examples, in a real worker in its sandbox: empty, cut
 * short, of another kind, of ten gigabytes that are not there, folders, a FIFO, links that lead
 * out. Each fails with a text that says what, nothing hangs, the worker goes on and has the next
 * model.
 *
 * ctest: timeout=120
 */
#include "test_worker_model_rig.h"

static const struct {
    const char *modelet;
    const char *good; /* in the build */
    const char *other;
    const char *ending;
} engines[] = {
    {"lib/shoal/libxgboost_modelet.so", "examples/digits/digits.ubj", "examples/mlp/xor.mlp",
     ".ubj"},
    {"lib/shoal/libmlp.so", "examples/mlp/xor.mlp", "examples/digits/digits.ubj", ".mlp"},
};

/* A copy of the first `share` percent of a file of the build, as `name`. */
static size_t
copy(const struct rig *rig, const char *from, const char *name, size_t share)
{
    FILE *file = fopen(rig_build_file(from), "rb");
    assert_non_null(file);
    char *bytes = malloc(1 << 22);
    assert_non_null(bytes);
    size_t size = fread(bytes, 1, 1 << 22, file);
    fclose(file);
    assert_true(size > 0 && size < 1 << 22);
    rig_write_file(rig, name, bytes, size * share / 100);
    free(bytes);
    return size;
}

static void
make_files(const struct rig *rig, int engine)
{
    char name[64];
    copy(rig, engines[engine].good, "good", 100);
    size_t size = copy(rig, engines[engine].good, "cut", 60);
    copy(rig, engines[engine].other, "other", 100);
    rig_write_file(rig, "empty", "", 0);
    copy(rig, engines[engine].good, "sparse", 50);
    assert_int_equal(truncate(rig_file(rig, "sparse"), INT64_C(10) << 30), 0);
    assert_true(size > 0);
    assert_int_equal(mkfifo(rig_file(rig, "fifo"), 0600), 0);
    assert_int_equal(mkdir(rig_file(rig, "none"), 0700), 0);
    assert_int_equal(mkdir(rig_file(rig, "folder"), 0700), 0);
    snprintf(name, sizeof(name), "folder/a%s", engines[engine].ending);
    copy(rig, engines[engine].good, name, 100);
    assert_int_equal(symlink("/etc/hostname", rig_file(rig, "outside")), 0);
    assert_int_equal(symlink("loop", rig_file(rig, "loop")), 0);
}

static void
remove_files(const struct rig *rig, int engine)
{
    static const char *const names[] = {"good",   "cut",  "other",   "empty",
                                        "sparse", "fifo", "outside", "loop"};
    char name[64];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unlink(rig_file(rig, names[i]));
    for (char first = 'a'; first <= 'b'; first++) {
        snprintf(name, sizeof(name), "folder/%c%s", first, engines[engine].ending);
        unlink(rig_file(rig, name));
    }
    rmdir(rig_file(rig, "folder"));
    rmdir(rig_file(rig, "none"));
}

/* With any status it fails, and the text says this. */
static void
fails(struct rig *rig, const char *name, const char *words)
{
    const struct handshake_model order = rig_order(rig, MODEL_LOAD, 7, rig_file(rig, name), "");
    const struct handshake_model_said *said = rig_order_and_receive(rig, 0, &order);
    if (said->event != MODEL_FAILED || strstr(said->text, words) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", name, said->text, words);
}

TEST_CASE(test_broken)
{
    for (int i = 0; i < 2; i++) {
        struct rig_stage stage = {.modelet = engines[i].modelet, .sandboxed = true};
        struct rig *rig = rig_start_models(stage);
        make_files(rig, i);
        rig_load(rig, 1, rig_file(rig, "good"), "");
        fails(rig, "nothing", "No such file");
        fails(rig, "empty", "is empty");
        fails(rig, "cut", "truncated");
        fails(rig, "other", i == 0 ? "neither JSON nor UBJSON" : "is not an MLP file");
        fails(rig, "sparse", i == 0 ? "at byte" : "10737418240");
        fails(rig, "fifo", "is not a regular file");
        fails(rig, "none", "is a folder with no file that ends in ");
        fails(rig, "outside", ""); /* Landlock refuses it, or its place, or what it holds */
        fails(rig, "loop", "symbolic links");
        assert_int_equal(rig_load(rig, 2, rig_file(rig, "folder"), "")->input_count, 1);
        char name[64];
        snprintf(name, sizeof(name), "folder/b%s", engines[i].ending);
        copy(rig, engines[i].good, name, 100);
        fails(rig, "folder", "is a folder with more than one file that ends in ");
        rig_load(rig, 3, rig_file(rig, "good"), "");
        for (uint32_t k = 1; k <= 3; k++)
            rig_unload(rig, k);
        remove_files(rig, i);
        rig_stop(rig);
    }
}

TEST_MAIN()
