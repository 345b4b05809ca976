/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that one look distinguishes a model that is still being written from one that is complete,
 * at every age; that a model which comes and goes is there or not, and never unfit; and which bytes
 * are a known format. Real directories.
 *
 * ctest: timeout=120 presets=dev
 */
#include "test_models_rig.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/check.h"
#include "coordinator/models/model_look.h"

static char root_path[64];

static int
setup(void **state)
{
    (void)state;
    snprintf(root_path, sizeof(root_path), "/tmp/shoal-look.XXXXXX");
    return mkdtemp(root_path) == NULL ? -1 : 0;
}

static int
teardown(void **state)
{
    (void)state;
    remove_all(root_path);
    return 0;
}

TEST_CASE(test_half_written)
{
    struct model_look seen = {.id = NULL};
    struct error error = ERROR_NONE;
    const int64_t written_ns = 2000000000 * NS_PER_S;
    const struct timespec written = {.tv_sec = 2000000000};
    const struct timespec times[2] = {written, written};
    int root = open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    make_model_in(root_path, "m", NULL);
    assert_int_equal(utimensat(root, "m/weights", times, 0), 0);
    static const struct {
        int64_t age_ns;
        enum look_result result;
    } cases[] = {{0, LOOK_UNSETTLED},
                 {LOOK_SETTLED_NS - 1, LOOK_UNSETTLED},
                 {LOOK_SETTLED_NS, LOOK_MODEL},
                 {-LOOK_SETTLED_NS + 1, LOOK_UNSETTLED},
                 {-LOOK_SETTLED_NS, LOOK_MODEL}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        assert_int_equal(look_at_model(root, "m", written_ns + cases[i].age_ns, &seen, &error),
                         cases[i].result);
    assert_int_equal(look_at_model(root, "m", 0, &seen, &error), LOOK_MODEL);
    /* a file that has just been taken out or made shows in the directory alone */
    age(path_of(root_path, "m", "weights"));
    assert_int_equal(utimensat(root, "m", times, 0), 0);
    assert_int_equal(look_at_model(root, "m", written_ns, &seen, &error), LOOK_UNSETTLED);
    assert_int_equal(look_at_model(root, "gone", 0, &seen, &error), LOOK_NO_MODEL);
    assert_int_equal(look_at_model(root, "m/weights", 0, &seen, &error), LOOK_FOREIGN);
    assert_int_equal(look_at_model(root, "../m", 0, &seen, &error), LOOK_UNFIT);
    close(root);
}

static void *
come_and_go(void *context)
{
    atomic_bool *ends = context;
    while (!atomic_load(ends)) {
        make_model_in(root_path, "m", "{}");
        remove_model_in(root_path, "m");
    }
    return NULL;
}

/* At every instant of its coming and going it is there or not: it is never complained of. However
 * late the other thread begins, the looks go on until they have met it. */
TEST_CASE(test_comes_and_goes_beneath_the_look)
{
    enum { LOOKS = 50000 };
    static struct model_look seen;
    struct error error = ERROR_NONE;
    atomic_bool ends = false;
    pthread_t thread;
    uint32_t found = 0;
    int root = open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(root >= 0);
    assert_int_equal(pthread_create(&thread, NULL, come_and_go, &ends), 0);
    bool fine = true;
    for (int i = 0; fine && (i < LOOKS || found == 0); i++) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        enum look_result result =
            look_at_model(root, "m", now.tv_sec * NS_PER_S + now.tv_nsec, &seen, &error);
        found += result != LOOK_NO_MODEL;
        fine = result != LOOK_UNFIT && result != LOOK_UNSURE;
    }
    atomic_store(&ends, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    close(root);
    assert_string_equal(error.text, "");
}

#define BYTES(text) (text), sizeof(text) - 1

TEST_CASE(test_formats_by_content)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *format; /* "": none */
    } cases[] = {
        {BYTES(""), ""},
        {BYTES("{"), ""},
        {BYTES("{\"learner\":{}}"), "xgboost"},
        {BYTES("{ \"version\": [2,1,0], \"learner\": {}"), "xgboost"},
        {BYTES("{L\0\0\0\0\0\0\0\x07learner{"), "xgboost"},
        {BYTES("[\"learner\"]"), ""},
        {BYTES("\x08\x0a\x12\x07pytorch"), "onnx"},
        {BYTES("\x08\x0a"), ""},
        {BYTES("\x08\x00\x12\x07"), ""},
        {BYTES("\x08\x0a\x13\x07"), ""},
        {BYTES("SHOALMLP\x04\x03"), "mlp"},
        {BYTES("SHOALML"), ""},
        {"\x7f"
         "ELF\x02\x01\x01",
         7, ""},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        const struct model_format *format = model_format_of(cases[i].bytes, cases[i].size);
        assert_string_equal(format == NULL ? "" : format->name, cases[i].format);
    }
}

/* ---- releases ---- */

/* Sub-directories with numbers, the highest first; not what cannot be one. */
TEST_CASE(test_releases)
{
    struct model_look seen = {.kind = LOOK_DIRECTORY};
    struct model_look then = {.id = NULL};
    struct error error = ERROR_NONE;
    static const char *const names[] = {
        "9", "10", "123456789012345678", "1234567890123456789", "07", "1.5", "x"};
    int root = open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdir(path_of(root_path, "m", ""), 0755), 0);
    char *m = strdup(path_of(root_path, "m", ""));
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        make_model_in(m, names[i], NULL);
    assert_int_equal(mkdir(path_of(m, "11", ""), 0755), 0); /* empty */
    write_file(path_of(m, "", "12"), "a file", 6);
    assert_int_equal(symlink("/etc", path_of(m, "", "13")), 0);
    assert_int_equal(look_at_model(root, "m", 0, &seen, &error), LOOK_MODEL);
    assert_int_equal(seen.release_count, 3);
    assert_string_equal(seen.releases[0].number, "123456789012345678");
    assert_string_equal(seen.releases[1].number, "10");
    assert_string_equal(seen.releases[2].number, "9");
    write_file(path_of(m, "10", "weights"), "W", 1); /* that one's content alone has changed */
    assert_int_equal(look_at_model(root, "m", 0, &then, &error), LOOK_MODEL);
    assert_true(then.version != seen.version);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(then.releases[i].version == seen.releases[i].version, i != 1);
    write_file(path_of(m, "", "model.mlp"), "SHOALMLP", 8); /* it is the model itself now */
    assert_int_equal(look_at_model(root, "m", 0, &seen, &error), LOOK_MODEL);
    assert_int_equal(seen.release_count, 0);
    free(m);
    close(root);
}

TEST_CASE(test_too_many_releases)
{
    struct model_look seen = {.kind = LOOK_DIRECTORY};
    struct error error = ERROR_NONE;
    int root = open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdir(path_of(root_path, "m", ""), 0755), 0);
    char *m = strdup(path_of(root_path, "m", ""));
    for (int i = 1; i <= LOOK_RELEASES_MAX + 8; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d", i);
        make_model_in(m, name, NULL);
    }
    assert_int_equal(look_at_model(root, "m", 0, &seen, &error), LOOK_MODEL);
    assert_int_equal(seen.release_count, LOOK_RELEASES_MAX);
    assert_string_equal(seen.releases[0].number, "40");
    assert_string_equal(seen.releases[LOOK_RELEASES_MAX - 1].number, "9");
    free(m);
    close(root);
}

TEST_MAIN(.setup = setup, .teardown = teardown)
