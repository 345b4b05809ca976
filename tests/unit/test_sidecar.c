/* SPDX-License-Identifier: Apache-2.0 */
/* Proves what is taken from config.pbtxt and model-settings.json, what is refused by which name,
 * and what is ignored by name; and that nesting, length and rubbish are refused. */

#include <stdio.h>
#include <string.h>

#include "../test.h"
#include "base/check.h"
#include "coordinator/models/pbtxt.h"
#include "coordinator/models/sidecar.h"

static struct sidecar
triton(const char *text)
{
    struct sidecar sidecar = {.format = NULL};
    struct error error = ERROR_NONE;
    if (sidecar_read_triton(&sidecar, "m", text, strlen(text), &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return sidecar;
}

TEST_CASE(test_triton)
{
    struct sidecar seen = triton("# a comment\nname: \"m\" platform: 'onnxruntime_onnx';\n"
                                 "max_batch_size: 8, input [ { name: \"x\" dims: [ 1, -1 ] } ]\n"
                                 "input { name: \"y\" } instance_group <count: 1>");
    assert_string_equal(seen.format->name, "onnx");
    assert_string_equal(seen.format_member, "platform");
    assert_string_equal(seen.ignored[SIDECAR_TRITON], "instance_group");
    assert_int_equal(seen.tensors.rows_max, 8);
    assert_int_equal(seen.tensors.count, 2);
    assert_string_equal(seen.tensors.at[1].name, "y");
    assert_true(release_policy_takes(&seen.policy, "7", 0));
    assert_false(release_policy_takes(&seen.policy, "6", 1));
    seen = triton("backend: \"f\" \"il\"");
    assert_string_equal(seen.format->name, "xgboost");
    seen = triton("version_policy: { latest { num_versions: 2 } }");
    assert_true(release_policy_takes(&seen.policy, "6", 1));
    assert_false(release_policy_takes(&seen.policy, "5", 2));
    seen = triton("version_policy { all {} }");
    assert_true(release_policy_takes(&seen.policy, "5", 9));
    seen = triton("version_policy: { specific: { versions: [3, 5] versions: 8 } }");
    for (int i = 1; i < 10; i++) {
        char number[8];
        snprintf(number, sizeof(number), "%d", i);
        assert_int_equal(release_policy_takes(&seen.policy, number, 0), i == 3 || i == 5 || i == 8);
    }
}

TEST_CASE(test_tensors)
{
    static const struct handshake_tensor in = {
        .name = "x", .datatype = SHOAL_FP32, .rank = 2, .shape = {-1, 4}};
    static const struct handshake_tensor out = {
        .name = "z", .datatype = SHOAL_BYTES, .rank = SHOAL_RANK_ANY};
    const struct oip_model_info model = {
        .inputs = &in, .input_count = 1, .outputs = &out, .output_count = 1};
    static const struct {
        const char *text, *said; /* NULL: they fit */
    } cases[] = {
        {"input { name: 'x' data_type: TYPE_FP32 dims: [-1, 4] }", NULL},
        {"input { name: 'x' dims: [8, -1] }", NULL},
        {"max_batch_size: 8 input [{ name: 'x' dims: 4 }]", NULL},
        {"input { name: 'other' data_type: TYPE_INT8 dims: 9 }", NULL},
        {"output { name: 'z' data_type: TYPE_STRING dims: [1, 2, 3] }", NULL},
        {"output { name: 'x' dims: 9 }", NULL},
        {"input { name: 'x' dims: 4 }", "input \"x\": the model has other dims"},
        {"max_batch_size: 1 input { name: 'x' dims: [-1, 4] }", "other dims"},
        {"input { name: 'x' dims: [-1, 5] }", "other dims"},
        {"input { name: 'x' data_type: TYPE_FP64 dims: [-1, 4] }", "other data_type"},
        {"input { name: 'x' data_type: X }", "other data_type"},
        {"output { name: 'z' data_type: TYPE_FP32 }",
         "output \"z\": the model has other data_type"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct sidecar seen = triton(cases[i].text);
        struct error error = ERROR_NONE;
        enum status status = sidecar_check_tensors(&seen.tensors, &model, &error);
        if ((status == STATUS_OK) != (cases[i].said == NULL) ||
            (cases[i].said != NULL && strstr(error.text, cases[i].said) == NULL))
            fail_msg("%s: %s", cases[i].text, error.text);
    }
}

TEST_CASE(test_triton_refused)
{
    static const char *const cases[][2] = {
        {"name: \"other\"", "config.pbtxt: line 1: name: \"other\""},
        {"\n\nplatform: \"tensorflow\"", "config.pbtxt: line 3: platform: \"tensorflow\""},
        {"backend: \"python\"", "line 1: backend: \"python\""},
        {"max_batch_size: many", "max_batch_size: \"many\" is not a whole number"},
        {"version_policy { oldest { } }", "version_policy: oldest is not known"},
        {"version_policy { latest { num_versions: -1 } }", "version_policy: \"-1\""},
        {"version_policy { specific { versions: [01] } }", "version_policy: \"01\""},
        {"version_policy { specific { versions: [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1] } }",
         "more than 16 versions"},
        {"name", "':' or '{' is missing"},
        {"name:", "a value is missing"},
        {"name: \"m", "a string does not end"},
        {"name: \"m\n\"", "a string does not end"},
        {"input [ { ", "a message does not end"},
        {"input { > ", "a name is missing"},
        {"input: [1 2]", "',' or ']' is missing"},
        {"[ext.ension]: 1", "a name is missing"},
        {"\x7f"
         "ELF\x02\x01",
         "a name is missing"},
        {"a{a{a{a{a{a{a{a{a{a{a{a{a{a{a{a{a{", "nested too deeply"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct sidecar sidecar = {.format = NULL};
        struct error error = ERROR_NONE;
        assert_int_equal(
            sidecar_read_triton(&sidecar, "m", cases[i][0], strlen(cases[i][0]), &error),
            STATUS_INVALID_ARGUMENT);
        if (strstr(error.text, cases[i][1]) == NULL)
            fail_msg("%s: %s", cases[i][0], error.text);
    }
    /* names without end */
    struct sidecar sidecar = {.format = NULL};
    struct error error = ERROR_NONE;
    char name[PBTXT_PATH_BYTES + 8];
    memset(name, 'n', sizeof(name));
    assert_int_equal(sidecar_read_triton(&sidecar, "m", name, sizeof(name), &error),
                     STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "names are too long"));
}

static enum status
order(struct sidecar *sidecar, const char *text, struct error *error)
{
    *sidecar = (struct sidecar){.format = NULL};
    error_clear(error);
    return sidecar_read_order(sidecar, "m", text, strlen(text), error);
}

TEST_CASE(test_order)
{
    struct error error = ERROR_NONE;
    struct sidecar seen;
    /* as ModelConfig tells it, and in protobuf's own form of JSON */
    assert_int_equal(
        order(&seen,
              "{\"name\": \"m\", \"platform\": \"xgboost\", \"backend\": \"\", \"input\": "
              "[{\"name\": \"x\", \"data_type\": \"TYPE_FP32\", \"dims\": [4]}], "
              "\"maxBatchSize\": \"16\", \"versionPolicy\": {\"specific\": {\"versions\": "
              "[\"3\", 5]}}, \"instance_group\": null, \"dynamic_batching\": "
              "{\"preferred_batch_size\": [4], \"max_queue_delay_microseconds\": 7}}",
              &error),
        STATUS_OK);
    assert_string_equal(seen.format->name, "xgboost");
    assert_int_equal(seen.tensors.rows_max, 16);
    assert_string_equal(seen.tensors.at[0].datatype, "TYPE_FP32");
    assert_int_equal(seen.tensors.at[0].shape[0], 4);
    assert_true(release_policy_takes(&seen.policy, "5", 0));
    assert_false(release_policy_takes(&seen.policy, "4", 0));
    static const struct handshake_tensor in = {
        .name = "x", .datatype = SHOAL_FP32, .rank = 2, .shape = {-1, 4}};
    struct oip_model_info model = {.platform = "xgboost", .inputs = &in, .input_count = 1};
    assert_int_equal(sidecar_check_loaded(&seen, &model, &error), STATUS_OK);
    model.platform = "onnxruntime";
    assert_int_equal(sidecar_check_loaded(&seen, &model, &error), STATUS_INVALID_ARGUMENT);
    assert_int_equal(order(&seen, "{}", &error), STATUS_OK);
    assert_int_equal(seen.tensors.rows_max, 0);
    static const char *const cases[][2] = {
        {"\"max_batch_size\"", "config: "},
        {"[]", "config: it is not a JSON object"},
        {"{\"max_batch_size\": -1}", "config: max_batch_size: \"-1\" is not a whole number"},
        {"{\"max_batch_size\": 1.5}", "max_batch_size: \"1.5\""},
        {"{\"max_batch_size\": 12345678901}", "max_batch_size: \"12345678901\""},
        {"{\"name\": \"n\"}", "config: name: \"n\""},
        {"{\"instanceGroup\": [{\"count\": 4}], \"optimization\": {}}",
         "config: not supported: leave out instance_group, optimization"},
        {"{\"optimization\": 1, \"\": 2, \"\": {}}", "config: "},
        {"{\"optimization\": 1, \"\": 2}", "leave out optimization, \"\""},
        {"{\"version_policy\": {\"oldest\": {}}}", "version_policy: oldest is not known"},
        {"{\"a\": [[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]}", "config: nested too deeply"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        assert_int_equal(order(&seen, cases[i][0], &error), STATUS_INVALID_ARGUMENT);
        if (strstr(error.text, cases[i][1]) == NULL)
            fail_msg("%s: %s", cases[i][0], error.text);
    }
    char name[160] = "{\"";
    memset(name + 2, 'n', 150);
    memcpy(name + 152, "\": 1}", sizeof("\": 1}"));
    assert_int_equal(order(&seen, name, &error), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "names are too long"));
}

TEST_CASE(test_mlserver)
{
    static const char nameless[] = "{\"platform\": 1, \"\": 2, \"parameters\": {\"\": 3}}";
    static const char text[] =
        "{\"name\": \"m\", \"implementation\": \"mlserver_xgboost.XGBoostModel\", \"platform\": "
        "\"\","
        " \"parameters\": {\"uri\": \"./sub/a.json\", \"version\": \"v0.1.0\", \"extra\": {}}}";
    struct sidecar sidecar = {.format = NULL};
    struct error error = ERROR_NONE;
    assert_int_equal(sidecar_read_mlserver(&sidecar, "m", text, strlen(text), &error), STATUS_OK);
    assert_string_equal(sidecar.format->name, "xgboost");
    assert_string_equal(sidecar.file, "sub/a.json");
    assert_string_equal(sidecar.version, "v0.1.0");
    assert_string_equal(sidecar.ignored[SIDECAR_MLSERVER], "platform, parameters.extra");
    assert_int_equal(sidecar_check_format(&sidecar, &model_formats[0], &error), STATUS_OK);
    assert_int_equal(sidecar_check_format(&sidecar, &model_formats[1], &error),
                     STATUS_INVALID_ARGUMENT);
    assert_string_equal(error.text, "implementation says xgboost, but the file is of format onnx");
    sidecar = (struct sidecar){.format = NULL};
    assert_int_equal(sidecar_read_mlserver(&sidecar, "m", nameless, strlen(nameless), &error),
                     STATUS_OK);
    assert_string_equal(sidecar.ignored[SIDECAR_MLSERVER], "platform, \"\", parameters.");
    static const char *const cases[][2] = {
        {"{\"name\": \"n\"}", "model-settings.json: name: \"n\""},
        {"{\"implementation\": \"mlserver_sklearn.SKLearnModel\"}",
         "implementation: \"mlserver_sk"},
        {"{\"parameters\": {\"uri\": \"/etc/passwd\"}}", "parameters.uri: must be relative"},
        {"{\"parameters\": {\"uri\": \"s3://b/m\"}}", "parameters.uri: must be relative"},
        {"{\"parameters\": {\"version\": \"12345678901234567890\"}}", "parameters.version: has 20"},
        {"[]", "model-settings.json: line 1: not an object"},
        {"{", "model-settings.json: line 1: "},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        error_clear(&error);
        assert_int_equal(
            sidecar_read_mlserver(&sidecar, "m", cases[i][0], strlen(cases[i][0]), &error),
            STATUS_INVALID_ARGUMENT);
        if (strstr(error.text, cases[i][1]) == NULL)
            fail_msg("%s: %s", cases[i][0], error.text);
    }
}

TEST_MAIN()
