/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline's `method` and `id_path`: what is taken and kept, and every way to write them wrong,
 * with line and rule.
 */
#include "test_config_rig.h"

#define BOUND(text) "pipelines:\n- name: p\n" text STAGES
#define MODELS "  models: {root: /, memory_mib: 1}\n"

TEST_CASE(test_kept)
{
    static const char *const methods[] = {"/a.B/C", "/S/m", "/a.b_1.C2/D_3", "/inference.Other/X",
                                          "/_/_"};
    for (size_t i = 0; i < ARRAY_COUNT(methods); i++) {
        char text[256];
        snprintf(text, sizeof(text), BOUND("  method: %s\n"), methods[i]);
        struct config config = rig_good(text);
        assert_string_equal(config.pipelines[0].method, methods[i]);
        assert_null(config.pipelines[0].id_path);
        assert_int_equal(config.pipelines[0].id_path_count, 0);
        config_free(&config);
    }
    struct config config =
        rig_good(BOUND(MODELS "  method: /a.B/C\n  id_path: [1, 536870911, 18999, 20000]\n"));
    static const uint32_t path[] = {1, 536870911, 18999, 20000};
    assert_int_equal(config.pipelines[0].id_path_count, 4);
    assert_memory_equal(config.pipelines[0].id_path, path, sizeof(path));
    config_free(&config);
    config = rig_good(PIPELINES);
    assert_null(config.pipelines[0].method);
    config_free(&config);
}

TEST_CASE(test_method_refused)
{
    static const char form[] = "`method` must be like \"/package.Service/Method\"";
    static const char own[] = "is of a service that this node has itself";
    static const struct {
        const char *method;
        const char *part;
    } cases[] = {
        {"a.B/C", form},
        {"/a.B", form},
        {"/a.B/", form},
        {"//C", form},
        {"/a.B/C/D", form},
        {"/a..B/C", form},
        {"/a.B./C", form},
        {"/.a/C", form},
        {"/a.1B/C", form},
        {"/a.B/1", form},
        {"/a B/C", form},
        {"/a.B/C ö", form},
        {"/a-b.C/D", form},
        {"http://host/a.B/C", form},
        {"/C", form},
        {"/inference.GRPCInferenceService/ModelInfer", own},
        {"/inference.GRPCInferenceService/New", own},
        {"/grpc.health.v1.Health/Check", own},
        {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", own},
        {"/mmesh.ModelRuntime/loadModel", own},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        char text[256];
        snprintf(text, sizeof(text), BOUND("  method: '%s'\n"), cases[i].method);
        rig_bad(text, 3, cases[i].part);
    }
    rig_bad(BOUND("  method: /a.B/C\n") "- name: q\n  method: /a.B/C\n" STAGES, 6,
            "/a.B/C is answered by the pipeline that begins on line 2: a method has one pipeline");
    rig_bad(BOUND("  local_clients: 1\n  method: /a.B/C\n"), 3, "`local_clients` with a `method`");
}

TEST_CASE(test_id_path_refused)
{
    static const struct {
        const char *path;
        const char *part;
    } cases[] = {
        {"1", "must be a list of field numbers (1 to 16 elements), not"},
        {"[]", "is out of range: must be 1 to 16 elements"},
        {"[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "`id_path` has 17 elements: must be at most 16"},
        {"[0]", "must list numbers of protobuf fields (1 to 536870911, but for 19000 to 19999)"},
        {"[-1]", "not \"-1\""},
        {"[536870912]", "not \"536870912\""},
        {"[19000]", "not \"19000\""},
        {"[19999]", "not \"19999\""},
        {"[1.5]", "not \"1.5\""},
        {"[\"1\"]", "must list numbers of protobuf fields"},
        {"[[1]]", "not a list"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        char text[256];
        snprintf(text, sizeof(text), BOUND(MODELS "  method: /a.B/C\n  id_path: %s\n"),
                 cases[i].path);
        rig_bad(text, 5, cases[i].part);
    }
    rig_bad(BOUND(MODELS "  id_path: [1]\n"), 4, "`id_path` without a `method`");
    rig_bad(BOUND("  method: /a.B/C\n  id_path: [1]\n"), 4, "`id_path` without `models`");
}

TEST_MAIN()
