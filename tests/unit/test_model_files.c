/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that `map_file` lends, and its refusals: files that are none, names and links that lead
 * out, digests that are wrong, right, and stated in every form; and that all is given back. In one
 * process, on files in a folder of the test's.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../test.h"
#include "worker/model_files.h"

static char root[] = "/tmp/shoal-files-XXXXXX";
static char digest[65];

static const char *
at(const char *name)
{
    static char paths[4][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, PATH_MAX, "%s/%s", root, name);
    return path;
}

static void
put(const char *name, const char *text)
{
    FILE *file = fopen(at(name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

struct lent {
    int32_t status;
    const void *data;
    size_t bytes;
    struct shoal_error error;
    struct model_files files;
};

/* As in a load of the model at `path`; the files stay mapped. */
static struct lent
lend_from(const char *from, const char *path, const char *name, const char *key)
{
    struct lent lent = {.data = NULL};
    const struct shoal_model spec = {
        .struct_size = sizeof(spec), .id = "m", .path = path, .key = key};
    model_files_begin(&lent.files, &spec, from);
    lent.status = host_map_file(&spec, name, &lent.data, &lent.bytes, &lent.error);
    model_files_end(&lent.files);
    return lent;
}

static void
lends(const char *path, const char *name, const char *key)
{
    struct lent lent = lend_from(root, path, name, key);
    if (lent.status != SHOAL_OK)
        fail_msg("%s %s: %s", path, name != NULL ? name : "", lent.error.text);
    assert_int_equal(lent.bytes, 7);
    assert_memory_equal(lent.data, "weights", 7);
    assert_int_equal((uintptr_t)lent.data % (uintptr_t)sysconf(_SC_PAGESIZE), 0);
    assert_int_equal(lent.files.bytes, sysconf(_SC_PAGESIZE));
    model_files_unmap(&lent.files);
    assert_int_equal(lent.files.count, 0);
    unsigned char resident;
    assert_int_equal(mincore((void *)(uintptr_t)lent.data, 1, &resident), -1);
    assert_int_equal(errno, ENOMEM); /* nothing is there any more */
}

static void
refuses(const char *path, const char *name, const char *key, int32_t status, const char *words)
{
    struct lent lent = lend_from(root, path, name, key);
    assert_int_equal(lent.status, status);
    if (strstr(lent.error.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", lent.error.text, words);
    assert_int_equal(lent.files.count, 0);
    assert_int_equal(lent.files.bytes, 0);
}

static int
setup(void **state)
{
    (void)state;
    if (mkdtemp(root) == NULL || mkdir(at("model"), 0700) != 0 ||
        mkdir(at("model/deep"), 0700) != 0 || mkdir(at("other"), 0700) != 0)
        return -1;
    put("model/weights", "weights");
    put("model/deep/weights", "weights");
    put("other/weights", "weights");
    put("model/empty", "");
    model_files_prepare();
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    static const char *const files[] = {"model/weights", "model/deep/weights", "other/weights",
                                        "model/empty",   "model/fifo",         "model/inside",
                                        "model/outside", "model/large"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        unlink(at(files[i]));
    rmdir(at("model/deep"));
    rmdir(at("model"));
    rmdir(at("other"));
    return rmdir(root);
}

TEST_CASE(test_lends)
{
    lends(at("model/weights"), NULL, "");
    lends(at("model"), "weights", "");
    lends(at("model"), "deep/weights", "");
    lends(at("model/"), "./weights", "");
    const char *key = "{\"model_type\": {\"name\": \"x\"}}";
    lends(at("model"), "weights", key);
    lends(at("model"), "weights", "any words at all");
}

TEST_CASE(test_invalid_files)
{
    refuses(at("model/nothing"), NULL, "", SHOAL_NOT_FOUND, "model/nothing: No such file");
    refuses(at("model"), "nothing", "", SHOAL_NOT_FOUND, "model/nothing: No such file");
    refuses(at("model"), NULL, "", SHOAL_INVALID_ARGUMENT, "is a folder, not a file");
    refuses(at("model"), "deep", "", SHOAL_INVALID_ARGUMENT, "is a folder, not a file");
    refuses(at("model"), "empty", "", SHOAL_INVALID_ARGUMENT, "is empty");
    assert_int_equal(mkfifo(at("model/fifo"), 0600), 0);
    refuses(at("model"), "fifo", "", SHOAL_INVALID_ARGUMENT, "is not a regular file");
    struct lent lent = lend_from("/dev", "/dev/zero", NULL, "");
    assert_int_equal(lent.status, SHOAL_INVALID_ARGUMENT);
}

TEST_CASE(test_names_that_lead_out)
{
    static const char *const names[] = {
        "", "/etc/passwd", "..", "../other/weights", "deep/../../other/weights", "deep/.."};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        refuses(at("model"), names[i], "", SHOAL_INVALID_ARGUMENT, "does not name a file");
    lends(at("model"), "deep/weights", "");
}

/* Links may lead anywhere beneath the root, and nowhere else. */
TEST_CASE(test_links)
{
    assert_int_equal(symlink("../other/weights", at("model/inside")), 0);
    lends(at("model"), "inside", "");
    lends(at("model/inside"), NULL, "");
    assert_int_equal(symlink("/etc/passwd", at("model/outside")), 0);
    refuses(at("model"), "outside", "", SHOAL_PERMISSION_DENIED, "leads to /etc/passwd");
    refuses(at("model/outside"), NULL, "", SHOAL_PERMISSION_DENIED, "not beneath /tmp/shoal-");
    /* a folder that only begins like the root */
    struct lent lent = lend_from(at("mod"), at("model"), "weights", "");
    assert_int_equal(lent.status, SHOAL_PERMISSION_DENIED);
    /* without a root: the model's own folder */
    lent = lend_from(NULL, at("model"), "inside", "");
    assert_int_equal(lent.status, SHOAL_PERMISSION_DENIED);
    lent = lend_from(NULL, at("model"), "weights", "");
    assert_int_equal(lent.status, SHOAL_OK);
    model_files_unmap(&lent.files);
    lent = lend_from(NULL, at("model/inside"), NULL, ""); /* the operator's own word */
    assert_int_equal(lent.status, SHOAL_OK);
    model_files_unmap(&lent.files);
}

/* A key with a wrong digest gets the found one in the text. */
static void
learn_digest(void)
{
    struct lent lent = lend_from(root, at("model/weights"), NULL,
                                 "{\"sha256\": \"00000000000000000000000000000000"
                                 "00000000000000000000000000000000\"}");
    assert_int_equal(lent.status, SHOAL_DATA_LOSS);
    const char *found = strstr(lent.error.text, "its sha256 is ");
    assert_non_null(found);
    snprintf(digest, sizeof(digest), "%.64s", found + strlen("its sha256 is "));
    assert_non_null(strstr(lent.error.text, "weights: "));
    assert_non_null(strstr(lent.error.text, " states 0000000000000000000000000000000000000000000"));
}

static const char *
key_of(const char *format, const char *stated)
{
    static char key[512];
    char *end = key;
    for (; *format != '\0'; format++) {
        if (*format == '@')
            end += snprintf(end, 100, "%s", stated);
        else
            *end++ = *format;
    }
    *end = '\0';
    return key;
}

TEST_CASE(test_digests)
{
    learn_digest();
    /* printf weights | sha256sum */
    assert_string_equal(digest, "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c");
    char upper[65];
    for (size_t i = 0; i < sizeof(upper); i++)
        upper[i] = (char)(digest[i] >= 'a' ? digest[i] - 'a' + 'A' : digest[i]);
    char wrong[65];
    memcpy(wrong, digest, sizeof(wrong));
    wrong[63] = wrong[63] == '0' ? '1' : '0';
    lends(at("model/weights"), NULL, key_of("{\"sha256\": \"@\"}", digest));
    lends(at("model"), "weights", key_of("{\"a\": [1], \"sha256\": \"@\"}", upper));
    lends(at("model"), "weights", key_of("{\"sha256\": {\"weights\": \"@\"}}", digest));
    lends(at("model"), "deep/weights", key_of("{\"sha256\": {\"deep/weights\": \"@\"}}", digest));
    lends(at("model/weights"), NULL, key_of("{\"sha256\": {\"weights\": \"@\"}}", digest));
    lends(at("model"), "weights", key_of("{\"sha256\": {\"deep/weights\": \"@\"}}", wrong));
    refuses(at("model/weights"), NULL, key_of("{\"sha256\": \"@\"}", wrong), SHOAL_DATA_LOSS,
            "its sha256 is");
    refuses(at("model"), "weights", key_of("{\"sha256\": {\"weights\": \"@\"}}", wrong),
            SHOAL_DATA_LOSS, wrong);
    refuses(at("model"), "deep/weights", key_of("{\"sha256\": {\"deep/weights\": \"@\"}}", wrong),
            SHOAL_DATA_LOSS, "deep/weights: its sha256");
    wrong[63] = 'g';
    refuses(at("model"), "weights", key_of("{\"sha256\": \"@\"}", wrong), SHOAL_INVALID_ARGUMENT,
            "64 hexadecimal digits");
    refuses(at("model"), "weights", "{\"sha256\": 7}", SHOAL_INVALID_ARGUMENT, "hexadecimal");
    refuses(at("model"), "weights", "{\"sha256\": {\"weights\": []}}", SHOAL_INVALID_ARGUMENT,
            "weights that is not");
    refuses(at("model"), "weights", key_of("{\"sha256\": \"@0\"}", digest), SHOAL_INVALID_ARGUMENT,
            "hexadecimal");
    /* a text that is no JSON object states nothing */
    lends(at("model"), "weights", key_of("[\"sha256\", \"@\"]", wrong));
    lends(at("model"), "weights", key_of("{\"sha256\": \"@\"", wrong));
}

/* Nothing of it is read that nobody asks for. */
TEST_CASE(test_large_and_sparse)
{
    const int64_t size = INT64_C(10) << 30;
    int fd = open(at("model/large"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, size), 0);
    close(fd);
    struct lent lent = lend_from(root, at("model"), "large", "");
    assert_int_equal(lent.status, SHOAL_OK);
    assert_true(lent.bytes == (size_t)size);
    assert_true(lent.files.bytes == (uint64_t)size);
    assert_int_equal(((const char *)lent.data)[size - 1], 0);
    model_files_unmap(&lent.files);
}

TEST_CASE(test_outside_of_a_load)
{
    const struct shoal_model spec = {
        .struct_size = sizeof(spec), .id = "m", .path = at("model/weights"), .key = ""};
    struct shoal_model other = spec;
    struct model_files files = {0};
    struct shoal_error error = {{0}};
    const void *data;
    size_t bytes;
    assert_int_equal(host_map_file(&spec, NULL, &data, &bytes, &error), SHOAL_FAILED_PRECONDITION);
    model_files_begin(&files, &spec, root);
    assert_int_equal(host_map_file(&other, NULL, &data, &bytes, &error), SHOAL_FAILED_PRECONDITION);
    for (int i = 0; i < MODEL_FILES_MAX; i++)
        assert_int_equal(host_map_file(&spec, NULL, &data, &bytes, &error), SHOAL_OK);
    assert_int_equal(host_map_file(&spec, NULL, &data, &bytes, NULL), SHOAL_RESOURCE_EXHAUSTED);
    model_files_end(&files);
    assert_int_equal(files.bytes, MODEL_FILES_MAX * sysconf(_SC_PAGESIZE));
    assert_int_equal(host_map_file(&spec, NULL, &data, &bytes, &error), SHOAL_FAILED_PRECONDITION);
    model_files_unmap(&files);
}

TEST_MAIN(.group_setup = setup, .group_teardown = teardown)
