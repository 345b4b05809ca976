/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data-plane configuration of a mesh: each sentence of mesh_dataplane.h, every kind of mistake
 * with its words, and that a mistake leaves the former one in force; and the file that it may be
 * in: when it counts as changed, however it is replaced.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../test.h"
#include "base/check.h"
#include "coordinator/mesh/mesh_dataplane.h"
#include "coordinator/mesh/mesh_file.h"

static enum status
set(struct dataplane *dataplane, const char *json, struct error *error)
{
    struct dataplane_size size;
    error_clear(error);
    return dataplane_set(dataplane, json, strlen(json), &size, error);
}

static enum status
find(struct dataplane *dataplane, const char *method, struct dataplane_rule *rule)
{
    struct error error;
    enum status status = dataplane_find(dataplane, method, rule, &error);
    if (status != STATUS_OK)
        assert_non_null(strstr(error.text, method + 1));
    return status;
}

TEST_CASE(test_rules)
{
    struct dataplane *dataplane = dataplane_create();
    struct dataplane_rule rule;
    struct dataplane_size size;
    struct error error;
    static const char json[] =
        "{\"rpcConfigs\": {\"b.S/M\": {\"idExtractionPath\": [1, 536870911], \"vModelId\": true},"
        " \"a.S/M\": {\"idExtractionPath\": [7]}, \"a.S/N\": {}, "
        "\"c.S/M\": {\"idExtractionPath\": null, \"vModelId\": null}}}";
    assert_int_equal(find(dataplane, "/a.S/M", &rule), STATUS_UNIMPLEMENTED); /* not yet */
    assert_int_equal(dataplane_set(dataplane, json, strlen(json), &size, &error), STATUS_OK);
    assert_int_equal(size.methods, 4);
    assert_false(size.others);
    assert_int_equal(find(dataplane, "/b.S/M", &rule), STATUS_OK);
    assert_int_equal(rule.name, RUNNER_NAME_VMODEL);
    assert_int_equal(rule.depth, 2);
    assert_int_equal(rule.numbers[0], 1);
    assert_int_equal(rule.numbers[1], 536870911);
    assert_int_equal(find(dataplane, "/a.S/M", &rule), STATUS_OK);
    assert_int_equal(rule.name, RUNNER_NAME_MODEL);
    assert_int_equal(rule.depth, 1);
    assert_int_equal(find(dataplane, "/a.S/N", &rule), STATUS_OK);
    assert_int_equal(rule.depth, 0);
    assert_int_equal(find(dataplane, "/c.S/M", &rule), STATUS_OK);
    assert_int_equal(rule.depth, 0);
    assert_int_equal(find(dataplane, "/a.S/m", &rule), STATUS_UNIMPLEMENTED);
    assert_int_equal(find(dataplane, "/a.S/MM", &rule), STATUS_UNIMPLEMENTED);
    assert_int_equal(set(dataplane, "{\"allowOtherRpcs\": true}", &error), STATUS_OK);
    assert_int_equal(find(dataplane, "/a.S/m", &rule), STATUS_OK);
    assert_int_equal(rule.depth, 0);
    assert_int_equal(find(dataplane, "/b.S/M", &rule), STATUS_OK); /* the former is gone */
    assert_int_equal(rule.depth, 0);
    assert_int_equal(set(dataplane, "{}", &error), STATUS_OK);
    assert_int_equal(find(dataplane, "/a.S/M", &rule), STATUS_UNIMPLEMENTED);
    dataplane_destroy(dataplane);
}

/* The form that modelmesh-serving's controller writes. */
TEST_CASE(test_the_controllers)
{
    struct dataplane *dataplane = dataplane_create();
    struct dataplane_rule rule;
    struct error error;
    assert_int_equal(
        set(dataplane,
            "{\"rpcConfigs\":{\"inference.GRPCInferenceService/"
            "ModelInfer\":{\"idExtractionPath\":[1],"
            "\"vModelId\":true},\"inference.GRPCInferenceService/ModelMetadata\":"
            "{\"idExtractionPath\":[1],\"vModelId\":true},"
            "\"tensorflow.serving.PredictionService/Predict\":{\"idExtractionPath\":[1,1],"
            "\"vModelId\":true},\"org.pytorch.serve.grpc.inference.InferenceAPIsService/"
            "Predictions\":{\"idExtractionPath\":[1],\"vModelId\":true}},\"allowOtherRpcs\":true}",
            &error),
        STATUS_OK);
    assert_int_equal(find(dataplane, "/tensorflow.serving.PredictionService/Predict", &rule),
                     STATUS_OK);
    assert_int_equal(rule.depth, 2);
    assert_int_equal(rule.name, RUNNER_NAME_VMODEL);
    assert_int_equal(find(dataplane, "/inference.GRPCInferenceService/ModelReady", &rule),
                     STATUS_OK);
    assert_int_equal(rule.depth, 0);
    dataplane_destroy(dataplane);
}

TEST_CASE(test_mistakes)
{
    static const struct {
        const char *json, *text;
    } bad[] = {
        {"", "not JSON: empty"},
        {"{", "not JSON: "},
        {"[]", "JSON, but not an object"},
        {"{\"allowOtherRpcs\": 1}", "allowOtherRpcs: expected true or false, not a number"},
        {"{\"allowOtherRPCs\": true}",
         "\"allowOtherRPCs\" is not a member of it: \"rpcConfigs\" and "
         "\"allowOtherRpcs\" are"},
        {"{\"rpcConfigs\": []}", "rpcConfigs: expected an object, not an array"},
        {"{\"rpcConfigs\": {\"a.S/M\": 1}}", "rpcConfigs: \"a.S/M\": expected an object"},
        {"{\"rpcConfigs\": {\"a.S/M\": {}, \"a.S/M\": {}}}", "not JSON: duplicate"},
        {"{\"rpcConfigs\": {\"/a.S/M\": {}}}", "\"/a.S/M\": it is not a method: "},
        {"{\"rpcConfigs\": {\"a.S\": {}}}", "\"a.S\": it is not a method: "},
        {"{\"rpcConfigs\": {\"a.S/\": {}}}", "\"a.S/\": it is not a method: "},
        {"{\"rpcConfigs\": {\"a.S/M/\": {}}}", "\"a.S/M/\": it is not a method: "},
        {"{\"rpcConfigs\": {\"a.S/M\": {\"idInjectionPath\": [1]}}}",
         "rpcConfigs: \"a.S/M\": \"idInjectionPath\" is not a member of it: \"idExtractionPath\" "
         "and "
         "\"vModelId\" are"},
        {"{\"rpcConfigs\": {\"a.S/M\": {\"vModelId\": \"x\"}}}",
         "vModelId: expected true or false"},
        {"{\"rpcConfigs\": {\"a.S/M\": {\"idExtractionPath\": 1}}}",
         "idExtractionPath: expected an array, not a number"},
        {"{\"rpcConfigs\": {\"a.S/M\": {\"idExtractionPath\": [1, 0]}}}",
         "idExtractionPath: element 1 is not a field number (1 to 536870911)"},
        {"{\"rpcConfigs\": {\"a.S/M\": {\"idExtractionPath\": [536870912]}}}", "element 0 is no"},
        {"{\"rpcConfigs\": {\"a.S/M\": {\"idExtractionPath\": [\"1\"]}}}", "element 0 is no"},
        {"{\"rpcConfigs\": {\"a.S/M\": {\"idExtractionPath\": "
         "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}}}",
         "idExtractionPath: 17 fields; at most 16 are taken"},
    };
    struct dataplane *dataplane = dataplane_create();
    struct dataplane_rule rule;
    struct error error;
    assert_int_equal(
        set(dataplane, "{\"rpcConfigs\": {\"a.S/M\": {\"idExtractionPath\": [3]}}}", &error),
        STATUS_OK);
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        assert_int_equal(set(dataplane, bad[i].json, &error), STATUS_INVALID_ARGUMENT);
        if (strstr(error.text, bad[i].text) == NULL)
            fail_msg("%s: \"%s\"", bad[i].json, error.text);
        assert_int_equal(find(dataplane, "/a.S/M", &rule), STATUS_OK);
        assert_int_equal(rule.numbers[0], 3);
    }
    dataplane_destroy(dataplane);
}

/* As many methods as may be, and one more. */
TEST_CASE(test_many)
{
    static char json[DATAPLANE_METHODS_MAX * 32];
    struct dataplane *dataplane = dataplane_create();
    struct dataplane_rule rule;
    struct error error;
    for (int more = 0; more < 2; more++) {
        int count = DATAPLANE_METHODS_MAX + more;
        size_t used = (size_t)snprintf(json, sizeof(json), "{\"rpcConfigs\": {");
        for (int i = 0; i < count; i++)
            used += (size_t)snprintf(json + used, sizeof(json) - used, "%s\"s/m%d\":{}",
                                     i == 0 ? "" : ",", i);
        snprintf(json + used, sizeof(json) - used, "}}");
        assert_int_equal(set(dataplane, json, &error),
                         more == 0 ? STATUS_OK : STATUS_INVALID_ARGUMENT);
    }
    assert_non_null(strstr(error.text, "257 of them; at most 256 are taken"));
    for (int i = 0; i < DATAPLANE_METHODS_MAX; i++) {
        char name[32];
        snprintf(name, sizeof(name), "/s/m%d", i);
        assert_int_equal(find(dataplane, name, &rule), STATUS_OK);
    }
    dataplane_destroy(dataplane);
}

/* ---- the file ---- */

static void
write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void
expect_text(struct mesh_file *file, const char *wanted)
{
    char *text;
    size_t bytes;
    struct error error;
    assert_true(mesh_file_changed(file));
    assert_int_equal(mesh_file_read(file, &text, &bytes, &error), STATUS_OK);
    assert_string_equal(text, wanted);
    assert_int_equal(bytes, strlen(wanted));
    assert_false(mesh_file_changed(file));
    free(text);
}

/* Written over, renamed over, and as a ConfigMap's: a link to a link that is turned. */
TEST_CASE(test_a_file_that_changes)
{
    char folder[] = "/tmp/shoal-test-dataplane-XXXXXX";
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    struct mesh_file file = {.given = "config"};
    struct error error;
    char *text;
    size_t bytes;
    assert_false(mesh_file_changed(&file)); /* there is none, as it was */
    assert_int_equal(mesh_file_read(&file, &text, &bytes, &error), STATUS_NOT_FOUND);
    assert_null(text);
    assert_int_equal(mesh_file_blame(&file, "key", &error), STATUS_NOT_FOUND);
    assert_non_null(strstr(error.text, "mesh: key: config: it cannot be opened: "));
    assert_false(mesh_file_changed(&file));
    write_file("config", "one");
    expect_text(&file, "one");
    write_file("config", "longer");
    expect_text(&file, "longer");
    write_file("config", "LONGER"); /* as long as it was, in place: its times tell */
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    assert_int_equal(utimensat(AT_FDCWD, "config", times, 0), 0);
    expect_text(&file, "LONGER");
    write_file("other", "renamed");
    assert_int_equal(rename("other", "config"), 0);
    expect_text(&file, "renamed");
    assert_int_equal(unlink("config"), 0);
    assert_true(mesh_file_changed(&file));
    assert_int_equal(mesh_file_read(&file, &text, &bytes, &error), STATUS_NOT_FOUND);
    assert_false(mesh_file_changed(&file)); /* it is said once */
    assert_int_equal(mkdir("1", 0700) | mkdir("2", 0700), 0);
    write_file("1/config", "first");
    write_file("2/config", "other");
    assert_int_equal(symlink("1", "..data") | symlink("..data/config", "config"), 0);
    expect_text(&file, "first");
    assert_int_equal(symlink("2", "..next") | rename("..next", "..data"), 0);
    expect_text(&file, "other");
    for (const char *const *name =
             (const char *const[]){"1/config", "2/config", "config", "..data", NULL};
         *name != NULL; name++)
        assert_int_equal(unlink(*name), 0);
    assert_int_equal(rmdir("1") | rmdir("2") | chdir("/") | rmdir(folder), 0);
}

TEST_CASE(test_a_text_never_changes)
{
    struct mesh_file file = {.given = "{\"a\": 1}"};
    struct mesh_file nothing = {.given = NULL};
    struct error error;
    char *text;
    size_t bytes;
    assert_false(mesh_file_changed(&file));
    assert_false(mesh_file_changed(&nothing));
    assert_int_equal(mesh_file_read(&file, &text, &bytes, &error), STATUS_OK);
    assert_string_equal(text, "{\"a\": 1}");
    assert_int_equal(bytes, 8);
    free(text);
    static char large[MESH_FILE_BYTES_MAX + 2];
    memset(large, ' ', sizeof(large) - 1);
    char path[64];
    snprintf(path, sizeof(path), "/tmp/shoal-test-dataplane.%d", (int)getpid());
    write_file(path, large);
    struct mesh_file too_large = {.given = path};
    assert_int_equal(mesh_file_read(&too_large, &text, &bytes, &error), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "it has more than 1048576 bytes"));
    mesh_file_blame(&nothing, "key", &error);
    assert_string_equal(error.text, "mesh: key: it has more than 1048576 bytes");
    unlink(path);
}

TEST_MAIN()
