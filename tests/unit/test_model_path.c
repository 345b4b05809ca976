/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a model's path may lead: every way out of the root is tried on a real file system, and is
 * refused with a text that says what and where; what stays beneath it is found, links included.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../test.h"
#include "base/check.h"
#include "coordinator/models/model_path.h"

static char folder[64];
static char root_path[128];
static struct model_root root;

static void
run(const char *command)
{
    char whole[512];
    snprintf(whole, sizeof(whole), "cd %s && %s", folder, command);
    assert_int_equal(system(whole), 0);
}

static int
set_up(void **state)
{
    (void)state;
    struct error error = ERROR_NONE;
    snprintf(folder, sizeof(folder), "/tmp/shoal-path.XXXXXX");
    assert_non_null(mkdtemp(folder));
    run("mkdir -p real/sub/deep && ln -s real root && printf 12345 > real/file && "
        "printf 123 > real/sub/a && printf 4567 > real/sub/b && printf 1 > real/sub/deep/c && "
        "printf secret > outside && mkfifo real/fifo && ln -s file real/link && "
        "ln -s ../outside real/out && ln -s / real/slash && ln -s /proc/self/root real/magic && "
        "ln -s loop real/loop && ln -s sub/../file real/round && ln -s nothing real/dangling");
    snprintf(root_path, sizeof(root_path), "%s/root", folder);
    if (model_root_open(&root, root_path, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    model_root_close(&root);
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

/* It is the file of that name beneath the real root. */
static void
expect(const char *path, const char *name, uint64_t bytes)
{
    struct model_place place;
    struct error error = ERROR_NONE;
    char wanted[256];
    if (model_path_find(&root, path, &place, &error) != STATUS_OK)
        fail_msg("%s: %s", path, error.text);
    snprintf(wanted, sizeof(wanted), "%s/real%s%s", folder, name[0] != '\0' ? "/" : "", name);
    assert_string_equal(place.path, wanted);
    assert_int_equal(place.bytes, bytes);
}

static void
refuse(const char *path, enum status status, const char *part)
{
    struct model_place place;
    struct error error = ERROR_NONE;
    if (model_path_find(&root, path, &place, &error) != status || strstr(error.text, part) == NULL)
        fail_msg("%s: %d %s", path, (int)error.status, error.text);
}

TEST_CASE(test_beneath)
{
    char path[256];
    expect("file", "file", 5);
    expect("./sub//deep/../a", "sub/a", 3);
    expect("sub", "sub", 7); /* of the files right in it */
    expect("sub/", "sub", 7);
    expect("link", "file", 5);
    expect("round", "file", 5);
    expect(".", "", 5);
    snprintf(path, sizeof(path), "%s/root/file", folder); /* as it was configured */
    expect(path, "file", 5);
    snprintf(path, sizeof(path), "%s/real/sub/b", folder); /* as the kernel has it */
    expect(path, "sub/b", 4);
    snprintf(path, sizeof(path), "%s/root", folder);
    expect(path, "", 5);
}

TEST_CASE(test_out_of_it)
{
    static const char *const leads_out[] = {"..",    "../outside", "sub/../../outside",
                                            "out",   "slash",      "slash/etc/passwd",
                                            "magic", "magic/etc"};
    for (size_t i = 0; i < ARRAY_COUNT(leads_out); i++)
        refuse(leads_out[i], STATUS_INVALID_ARGUMENT, "leads out of the models' root");
    refuse("/etc/passwd", STATUS_INVALID_ARGUMENT, "is not beneath the models' root");
    char path[256];
    snprintf(path, sizeof(path), "%s/rooted/file", folder);
    refuse(path, STATUS_INVALID_ARGUMENT, "is not beneath");
    snprintf(path, sizeof(path), "%s/root/../outside", folder);
    refuse(path, STATUS_INVALID_ARGUMENT, "leads out");
    snprintf(path, sizeof(path), "%s/root//etc/passwd", folder);
    refuse(path, STATUS_NOT_FOUND, "nothing beneath");
}

TEST_CASE(test_nothing_to_load)
{
    refuse("", STATUS_INVALID_ARGUMENT, "is empty");
    refuse("none", STATUS_NOT_FOUND, "nothing beneath the models' root");
    refuse("file/x", STATUS_NOT_FOUND, "nothing beneath");
    refuse("dangling", STATUS_NOT_FOUND, "nothing beneath");
    refuse("loop", STATUS_INVALID_ARGUMENT, "leads out");
    refuse("fifo", STATUS_FAILED_PRECONDITION,
           "neither a file nor a directory"); /* not waited for */
    char longer[5000];
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    struct model_place place;
    struct error error = ERROR_NONE;
    assert_int_not_equal(model_path_find(&root, longer, &place, &error), STATUS_OK);
    for (size_t i = 200; i < sizeof(longer) - 1; i += 200)
        longer[i] = '/';
    longer[3000] = '\0';
    assert_int_not_equal(model_path_find(&root, longer, &place, &error), STATUS_OK);
}

TEST_CASE(test_root)
{
    struct model_root other;
    struct error error = ERROR_NONE;
    assert_int_equal(model_root_open(&other, "/no/such", &error), STATUS_NOT_FOUND);
    assert_non_null(strstr(error.text, "models: root /no/such"));
    char path[256];
    snprintf(path, sizeof(path), "%s/outside", folder);
    assert_int_not_equal(model_root_open(&other, path, &error), STATUS_OK);
    /* it is the directory that was opened, even if its name has moved since */
    run("mv real elsewhere && mkdir real");
    struct model_place place;
    assert_int_equal(model_path_find(&root, "file", &place, &error), STATUS_OK);
    snprintf(path, sizeof(path), "%s/elsewhere/file", folder);
    assert_string_equal(place.path, path);
}

TEST_MAIN(.setup = set_up, .teardown = tear_down)
