/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manifests: the full examples of ModelMesh Serving's documentation are read as they are, the ids,
 * types and keys are those that its controller has printed into its documentation, and every kind
 * of mistake is reported with its line and field.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../test.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "serving/manifest/manifest.h"

static struct manifest_file
good(const char *text)
{
    struct manifest_file file;
    struct error error = ERROR_NONE;
    if (manifest_read("f", text, strlen(text), &file, &error) != STATUS_OK)
        fail_msg("%s", file.mistake_count > 0 ? file.mistakes[0] : error.text);
    return file;
}

/* The only mistake is this one. */
static void
bad(const char *text, const char *mistake)
{
    struct manifest_file file;
    struct error error = ERROR_NONE;
    assert_int_equal(manifest_read("f", text, strlen(text), &file, &error),
                     STATUS_INVALID_ARGUMENT);
    if (file.mistake_count != 1 || strstr(file.mistakes[0], mistake) == NULL)
        fail_msg("\"%s\" is not the only mistake: %u, \"%s\"", mistake, file.mistake_count,
                 file.mistakes[0]);
    manifest_file_free(&file);
}

#define META(name) "metadata: {name: " name "}\n"
#define ISVC "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\n"
#define PREDICTOR "apiVersion: serving.kserve.io/v1alpha1\nkind: Predictor\n"
#define RUNTIME "apiVersion: serving.kserve.io/v1alpha1\nkind: ServingRuntime\n"
#define CLUSTER_RUNTIME "apiVersion: serving.kserve.io/v1alpha1\nkind: ClusterServingRuntime\n"
#define BOUNDS(annotations)                                                                        \
    ISVC "metadata: {name: i, annotations: {" annotations "}}\n"                                   \
         "spec: {predictor: {model: {modelFormat: {name: f}, storage: {path: p}}}}\n"
#define MODEL(rest)                                                                                \
    ISVC META("i") "spec: {predictor: {model: {modelFormat: {name: f}, " rest "}}}\n"
#define SPEC(rest) RUNTIME META("r") "spec:\n  containers: [{name: c, image: i}]\n" rest "\n"

/* ---- the documents ---- */

static const char full_runtime[] =
    RUNTIME "metadata:\n"
            "  name: example-runtime\n"
            "spec:\n"
            "  supportedModelFormats:\n"
            "    - name: my_model_format # name of the model\n"
            "      version: \"1\"\n"
            "      autoSelect: true\n"
            "  containers:\n"
            "    - args:\n"
            "        - arg1\n"
            "        - arg2\n"
            "      command:\n"
            "        - command\n"
            "        - command2\n"
            "      env:\n"
            "        - name: name\n"
            "          value: value\n"
            "        - name: fromSecret\n"
            "          valueFrom:\n"
            "            secretKeyRef:\n"
            "              key: mykey\n"
            "      image: image\n"
            "      name: name\n"
            "      resources:\n"
            "        limits:\n"
            "          memory: 200Mi\n"
            "      imagePullPolicy: IfNotPresent\n"
            "      workingDir: \"/container/working/dir\"\n"
            "  multiModel: true\n"
            "  disabled: false\n"
            "  storageHelper:\n"
            "    disabled: true\n"
            "  grpcEndpoint: port:1234 # or unix:/path\n"
            "  grpcDataEndpoint: port:1234 # or unix:/path\n"
            "  # To influence pod scheduling, one or more of the following can be used\n"
            "  nodeSelector: # https://kubernetes.io/docs/concepts/scheduling-eviction/\n"
            "    kubernetes.io/arch: \"amd64\"\n"
            "  affinity: # https://kubernetes.io/docs/concepts/scheduling-eviction/\n"
            "    nodeAffinity:\n"
            "      requiredDuringSchedulingIgnoredDuringExecution:\n"
            "        nodeSelectorTerms:\n"
            "          - matchExpressions:\n"
            "              - key: \"kubernetes.io/arch\"\n"
            "                operator: In\n"
            "                values:\n"
            "                  - \"amd64\"\n"
            "  tolerations: # https://kubernetes.io/docs/concepts/scheduling-eviction/\n"
            "    - key: \"example-key\"\n"
            "      operator: \"Exists\"\n"
            "      effect: \"NoSchedule\"\n";

static const char full_service[] = "---\n" ISVC "metadata:\n"
                                   "  name: my-mnist-isvc\n"
                                   "  annotations:\n"
                                   "    serving.kserve.io/deploymentMode: ModelMesh\n"
                                   "spec:\n"
                                   "  predictor:\n"
                                   "    model:\n"
                                   "      modelFormat:\n"
                                   "        name: my_model_format\n"
                                   "        version: \"1\"\n"
                                   "      storage:\n"
                                   "        key: my_storage\n"
                                   "        path: my_models/mnist-model\n"
                                   "        parameters:\n"
                                   "          bucket: my_bucket\n";

static const char full_predictor[] = "---\n" PREDICTOR "metadata:\n"
                                     "  name: my-mnist-predictor\n"
                                     "spec:\n"
                                     "  modelType:\n"
                                     "    name: my_model_type\n"
                                     "    version: \"1\"\n"
                                     "  path: my_models/mnist-model\n"
                                     "  storage:\n"
                                     "    s3:\n"
                                     "      secretKey: my_storage\n"
                                     "      bucket: my_bucket\n";

TEST_CASE(test_documents_full_examples)
{
    char text[8192];
    snprintf(text, sizeof(text), "%s%s%s", full_runtime, full_service, full_predictor);
    struct manifest_file file = good(text);
    assert_int_equal(file.count, 3);
    assert_string_equal(
        file.items[0].json,
        "{\"apiVersion\":\"serving.kserve.io/v1alpha1\",\"kind\":\"ServingRuntime\",\"metadata\":{"
        "\"name\":\"example-runtime\"},\"spec\":{\"supportedModelFormats\":[{\"name\":"
        "\"my_model_format\",\"version\":\"1\",\"autoSelect\":true}],\"multiModel\":true,"
        "\"disabled\":false,\"containers\":[{\"name\":\"name\",\"image\":\"image\",\"command\":["
        "\"command\",\"command2\"],\"args\":[\"arg1\",\"arg2\"],\"env\":[{\"name\":\"name\","
        "\"value\":\"value\"},{\"name\":\"fromSecret\",\"valueFrom\":{\"secretKeyRef\":{\"key\":"
        "\"mykey\"}}}],\"resources\":{\"limits\":{\"memory\":\"200Mi\"}},\"imagePullPolicy\":"
        "\"IfNotPresent\",\"workingDir\":\"/container/working/dir\"}],\"grpcEndpoint\":"
        "\"port:1234\",\"grpcDataEndpoint\":\"port:1234\",\"storageHelper\":{\"disabled\":true},"
        "\"nodeSelector\":{\"kubernetes.io/arch\":\"amd64\"},\"affinity\":{\"nodeAffinity\":{"
        "\"requiredDuringSchedulingIgnoredDuringExecution\":{\"nodeSelectorTerms\":[{"
        "\"matchExpressions\":[{\"key\":\"kubernetes.io/arch\",\"operator\":\"In\",\"values\":["
        "\"amd64\"]}]}]}}},\"tolerations\":[{\"key\":\"example-key\",\"operator\":\"Exists\","
        "\"effect\":\"NoSchedule\"}]}}");
    const struct manifest_model *model = &file.items[1].model;
    assert_string_equal(file.items[1].wanted.owner, "isvc");
    assert_string_equal(model->type, "mt:my_model_format:1");
    assert_string_equal(model->path, "my_models/mnist-model");
    assert_string_equal(model->key,
                        "{\"storage_key\":\"my_storage\",\"storage_params\":{\"bucket\":"
                        "\"my_bucket\"},\"model_type\":{\"name\":\"my_model_format\",\"version\":"
                        "\"1\"}}");
    model = &file.items[2].model;
    assert_string_equal(file.items[2].wanted.owner, "ksp");
    assert_string_equal(model->type, "mt:my_model_type:1");
    assert_string_equal(model->path, "my_models/mnist-model");
    assert_string_equal(model->key,
                        "{\"storage_key\":\"my_storage\",\"storage_params\":{\"bucket\":"
                        "\"my_bucket\"},\"model_type\":{\"name\":\"my_model_type\",\"version\":"
                        "\"1\"}}");
    manifest_file_free(&file);
}

/* A written manifest is read as the same. */
TEST_CASE(test_canonical_form_is_read_as_itself)
{
    const char *const texts[] = {
        full_runtime,
        full_service,
        full_predictor,
        "apiVersion: v1\nkind: Secret\n" META("storage-config") "stringData: {b: \"a\\tb\\u00e9\\\\"
                                                                "\\\"\", a: \"{}\"}\n",
        "apiVersion: v1\nkind: ConfigMap\n" META("c") "data: {a: \"x \\N \\L \\P \\x7f \\x80 "
                                                      "\\ufeff \\ufffe \\uffff\\u00e9\\uffe9\"}\n",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct manifest_file first = good(texts[i]);
        struct manifest_file second = good(first.items[0].json);
        assert_string_equal(first.items[0].json, second.items[0].json);
        manifest_file_free(&first);
        manifest_file_free(&second);
    }
}

/* ---- as the controller writes them ---- */

/* Ids from ModelMesh Serving's documentation: docs/predictors/README.md, docs/example-models.md;
 * and its rules for URIs. */
TEST_CASE(test_ids_of_the_controller)
{
#define S3(format, path)                                                                           \
    PREDICTOR META("p") "spec: {modelType: {name: " format "}, path: " path                        \
                        ", storage: {s3: {secretKey: localMinIO}}}\n"
    static const struct {
        const char *text, *id;
    } rows[] = {
        {ISVC META("example-mnist-isvc") "spec: {predictor: {model: {modelFormat: {name: sklearn}, "
                                         "storage: {key: localMinIO, path: "
                                         "sklearn/mnist-svm.joblib}}}}",
         "example-mnist-isvc__isvc-6b2eb0b8bf"},
        {S3("keras", "keras/mnist.h5"), "p__ksp-f3ccc51d50"},
        {S3("onnx", "onnx/mnist.onnx"), "p__ksp-0dbc77db1a"},
        {S3("sklearn", "sklearn/mnist-svm.joblib"), "p__ksp-7702c1b55a"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct manifest_file file = good(rows[i].text);
        assert_string_equal(file.items[0].model.id, rows[i].id);
        manifest_file_free(&file);
    }
}

TEST_CASE(test_types_paths_and_keys)
{
    static const struct {
        const char *text, *type, *path, *key;
    } rows[] = {
        {MODEL("protocolVersion: grpc-v2, storage: {path: p}"), "mt:f|pv:grpc-v2", "p",
         "{\"model_type\":{\"name\":\"f\"}}"},
        {MODEL("runtime: r, protocolVersion: v2, storage: {path: p, schemaPath: s}"), "rt:r", "p",
         "{\"model_type\":{\"name\":\"f\"},\"schema_path\":\"s\"}"},
        {MODEL("storageUri: 's3://b/a/c', storage: {key: k, parameters: {z: \"<1>\", type: x}}"),
         "mt:f", "a/c",
         "{\"storage_key\":\"k\",\"storage_params\":{\"bucket\":\"b\",\"type\":\"s3\",\"z\":"
         "\"\\u003c1\\u003e\"},\"model_type\":{\"name\":\"f\"}}"},
        {MODEL("storageUri: 'pvc://claim/a'"), "mt:f", "a",
         "{\"storage_params\":{\"name\":\"claim\",\"type\":\"pvc\"},\"model_type\":{\"name\":"
         "\"f\"}}"},
        {MODEL("storageUri: 'https://h:1/a/b'"), "mt:f", "a/b",
         "{\"storage_params\":{\"type\":\"http\",\"url\":\"https://h:1\"},\"model_type\":{\"name\":"
         "\"f\"}}"},
        {MODEL("storageUri: 'https://acc.blob.core.windows.net/con/a/b'"), "mt:f", "a/b",
         "{\"storage_params\":{\"account_name\":\"acc\",\"container\":\"con\",\"type\":\"azure\"},"
         "\"model_type\":{\"name\":\"f\"}}"},
        {PREDICTOR META("p") "spec: {modelType: {name: f}, path: x}", "mt:f", "",
         "{\"model_type\":{\"name\":\"f\"}}"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct manifest_file file = good(rows[i].text);
        assert_string_equal(file.items[0].model.type, rows[i].type);
        assert_string_equal(file.items[0].model.path, rows[i].path);
        assert_string_equal(file.items[0].model.key, rows[i].key);
        manifest_file_free(&file);
    }
}

TEST_CASE(test_built_in_adapters)
{
    struct manifest_file file =
        good(SPEC("  builtInAdapter: {serverType: mlserver, runtimeManagementPort: 8002, "
                  "memBufferBytes: 5, modelLoadingTimeoutMillis: 700, env: ["
                  "{name: LOADING_CONCURRENCY, value: '3'}, {name: DEFAULT_MODELSIZE, value: '9'}, "
                  "{name: MODELSIZE_MULTIPLIER, value: '2.75'}]}"));
    const struct manifest_adapter *adapter = &file.items[0].adapter;
    assert_string_equal(adapter->server_type, "mlserver");
    assert_int_equal(adapter->port, 8002);
    assert_int_equal(adapter->buffer_bytes, 5);
    assert_int_equal(adapter->load_timeout_ms, 700);
    assert_int_equal(adapter->loaders, 3);
    assert_int_equal(adapter->default_bytes, 9);
    assert_int_equal(adapter->size_percent, 275);
    manifest_file_free(&file);
    file = good(SPEC("  builtInAdapter: {serverType: triton}"));
    adapter = &file.items[0].adapter;
    assert_int_equal(adapter->port, 8001);
    assert_int_equal(adapter->buffer_bytes, 134217728);
    assert_int_equal(adapter->load_timeout_ms, 90000);
    assert_int_equal(adapter->size_percent, 125);
    manifest_file_free(&file);
    file = good(RUNTIME "metadata: {name: r, annotations: {maxLoadingConcurrency: '2'}}\nspec:\n"
                        "  containers: [{name: c, image: i}]\n"
                        "  builtInAdapter: {serverType: triton}\n");
    assert_int_equal(file.items[0].adapter.loaders, 2);
    manifest_file_free(&file);
    bad(RUNTIME "metadata: {name: r, annotations: {maxLoadingConcurrency: many}}\nspec:\n"
                "  containers: [{name: c, image: i}]\n  builtInAdapter: {serverType: triton}\n",
        "f:3: metadata.annotations: maxLoadingConcurrency must be a number of 1 to 64, not "
        "\"many\"");
#define NOTED(note)                                                                                \
    RUNTIME "metadata: {name: r, annotations: {" note "}}\nspec:\n"                                \
            "  containers: [{name: c, image: i}]\n"
    file = good(NOTED("perModelConcurrencyLimit: '7'"));
    assert_null(file.items[0].adapter.server_type);
    assert_int_equal(file.items[0].adapter.model_calls_max, 7);
    assert_false(file.items[0].adapter.ignores_calls_max);
    manifest_file_free(&file);
    file = good(NOTED("perModelConcurrencyLimit: '-1', maxLoadingConcurrency: many"));
    assert_int_equal(file.items[0].adapter.model_calls_max, 0);
    assert_true(file.items[0].adapter.ignores_calls_max);
    manifest_file_free(&file);
    file = good(SPEC("  builtInAdapter: {serverType: triton, env: [{name: "
                     "LIMIT_PER_MODEL_CONCURRENCY, value: '3'}]}"));
    assert_int_equal(file.items[0].adapter.model_calls_max, 3);
    manifest_file_free(&file);
    file = good(SPEC("  builtInAdapter: {serverType: ovms, env: [{name: ANY, value: x}]}"));
    assert_null(file.items[0].adapter.server_type);
    manifest_file_free(&file);
    bad(SPEC("  builtInAdapter: {serverType: triton, env: [{name: LOG, value: '1'}]}"),
        "f:6: spec.builtInAdapter.env: \"LOG\" is not known: LOADING_CONCURRENCY, ");
    bad(SPEC("  builtInAdapter: {serverType: triton, env: [{name: RUNTIME_PORT}]}"),
        "spec.builtInAdapter.env: \"RUNTIME_PORT\" has no value");
    bad(SPEC("  builtInAdapter: {serverType: triton, env: [{name: LOADING_CONCURRENCY, value: "
             "'0'}]}"),
        "env: LOADING_CONCURRENCY must be a number of 1 to 64, not \"0\"");
    bad(SPEC("  builtInAdapter: {serverType: mlserver, env: [{name: LOADTIME_TIMEOUT, value: "
             "'100.5'}]}"),
        "env: LOADTIME_TIMEOUT must be a number");
}

/* ---- mistakes ---- */

TEST_CASE(test_each_mistake_names_its_field)
{
    static const struct {
        const char *text, *mistake;
    } rows[] = {
        {"", "f:1: the file is empty"},
        {"---\n---\n", "f:1: the file is empty"},
        {"a: [", "not YAML"},
        {"- a", "f:1: a manifest has apiVersion, kind and metadata"},
        {"apiVersion: v1\nkind: Pod\n", "f:2: kind: \"Pod\" is not supported"},
        {"apiVersion: v2\nkind: Secret\n" META("s"), "f:1: apiVersion: must be v1"},
        {"kind: Secret\n" META("s"), "f:1: a manifest has apiVersion, kind and metadata"},
        {"kind: LLMRoute\n" META("r") "spec: {backendRefs: [{name: p, adapter: {name: 'x y'}}]}",
         "f:3: adapter.name: must be a model's name"},
        {"kind: InferencePool\n" META("p") "spec: {selector: {}, targetPorts: [{}]}",
         "f:3: spec.targetPorts[0].number: is missing"},
        {"apiVersion: v1\nkind: Secret\nmetadata: {}\n", "f:3: metadata.name: is missing"},
        {"apiVersion: v1\nkind: Secret\n" META("S"), "f:3: metadata.name: must have 1 to 253"},
        {"apiVersion: v1\nkind: Secret\n" META("s") "data: {a: 'x y'}",
         "f:4: data.a: must be bytes in base64 without blanks (stringData takes plain texts), not "
         "the present value"},
        {"apiVersion: v1\nkind: Secret\n" META("s") "stringData: {a: b, a: c}",
         "stringData.a: is given twice"},
        {"apiVersion: v1\nkind: Secret\nkind: Secret\n" META("s"), "f:3: kind: is given twice"},
        {"apiVersion: v1\nkind: Secret\n" META("s") "---\napiVersion: v1\nkind: Secret\n" META("s"),
         "f:5: Secret \"s\" is also on line 1"},
        {SPEC("  supportedModelFormats: [{name: f, version: 1}]"),
         "f:6: spec.supportedModelFormats[0].version: must be a string, and is a number"},
        {SPEC("  multiModel: 'true'"), "f:6: spec.multiModel: must be true or false, not \"true\""},
        {SPEC("  replicas: -1"), "f:6: spec.replicas: must be an integer from 0, not \"-1\""},
        {SPEC("  grpcEndpoint: 8085"), "f:6: spec.grpcEndpoint: must be an endpoint: port:NUMBER"},
        {SPEC("  grpcEndpoint: port:70000"), "f:6: spec.grpcEndpoint: must be an endpoint"},
        {SPEC("  grpcEndpoint: 'unix:/a/m'\n  grpcDataEndpoint: 'unix:/b/d'"),
         "f:7: spec.grpcDataEndpoint: must be in the folder of grpcEndpoint (unix:/a/m)"},
        {SPEC("  httpDataEndpoint: port:1"), "f:6: spec.httpDataEndpoint: is not supported: the"},
        {SPEC("  replica: 1"), "f:6: spec.replica: is not a field of it"},
        {SPEC("  tolerations: [{operator: Is}]"),
         "spec.tolerations[0].operator: must be one of Exists|Equal, not \"Is\""},
        {RUNTIME META("r") "spec: {containers: []}", "spec.containers: at least one is needed"},
        {RUNTIME META("r") "spec: {containers: [{name: c, image: i, readinessProbe: {}}]}",
         "f:4: spec.containers[0].readinessProbe: is not supported: runtimeStatus says"},
        {RUNTIME META("r") "spec: {containers: [{name: c, image: i}, {name: c, image: j}]}",
         "spec.containers: \"c\" is there twice"},
        {RUNTIME META("r") "spec: {containers: [{name: c, image: i, resources: {limits: {memory: "
                           "2 GB}}}]}",
         "spec.containers[0].resources.limits.memory: must be an amount"},
        {RUNTIME META("r") "spec: {containers: [{name: c, image: i, env: [{name: e, value: a, "
                           "valueFrom: {fieldRef: {fieldPath: p}}}]}]}",
         "env: \"e\" has value and valueFrom"},
        {RUNTIME META("r") "spec: {containers: [{name: c, image: i, env: [{name: e, valueFrom: "
                           "{}}]}]}",
         "env: \"e\": valueFrom must have one source"},
        {MODEL("storage: {key: k}"), "must have either storageUri or storage.path"},
        {MODEL("storageUri: 's3://b/p', storage: {path: p}"), "must have either storageUri or"},
        {MODEL("storageUri: 'ftp://b/p'"), "storageUri: must be s3:, gs:, pvc:, http: or https:"},
        {MODEL("storageUri: 's3://b/p%20q'"), "storageUri: must be s3:"},
        {ISVC "metadata: {name: i, annotations: {serving.kserve.io/deploymentMode: Serverless}}\n"
              "spec: {predictor: {model: {modelFormat: {name: f}, storage: {path: p}}}}",
         "f:3: metadata.annotations.serving.kserve.io/deploymentMode: must be ModelMesh, not"},
        {PREDICTOR META("p") "spec: {modelType: {name: f}, path: p, storage: {path: q}}",
         "Only one of spec.path and spec.storage.path can be specified"},
        {PREDICTOR META("p") "spec: {modelType: {name: f}, storage: {key: k, s3: {secretKey: k}}}",
         "spec.storage.s3 cannot be specified with any other keys in spec.storage"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        bad(rows[i].text, rows[i].mistake);
}

/* "Spec Attributes", which both documents have, in their order. Each is read, refuses what it
 * cannot be, by name, and is refused by name under another name: none is passed over. */
TEST_CASE(test_documents_attributes)
{
#define OWN(container) RUNTIME META("r") "spec: {containers: [{" container "}]}\n"
    static const struct {
        const char *name, *good, *bad, *mistake;
    } rows[] = {
        {"multiModel", SPEC("  multiModel: true"), SPEC("  multiModel: 1"),
         "spec.multiModel: must"},
        {"disabled", SPEC("  disabled: true"), SPEC("  disabled: no"), "spec.disabled: must"},
        {"containers", OWN("name: c, image: i"), RUNTIME META("r") "spec: {containers: c}\n",
         "spec.containers: must"},
        {"image", OWN("name: c, image: i"), OWN("name: c"), "spec.containers[0].image: is missing"},
        {"command", OWN("name: c, image: i, command: [a]"), OWN("name: c, image: i, command: a"),
         "spec.containers[0].command: must"},
        {"args", OWN("name: c, image: i, args: [a]"), OWN("name: c, image: i, args: [{}]"),
         "spec.containers[0].args[0]: must"},
        {"resources", OWN("name: c, image: i, resources: {requests: {cpu: 1m}}"),
         OWN("name: c, image: i, resources: {requests: {cpu: few}}"),
         "spec.containers[0].resources.requests.cpu: must"},
        {"imagePullPolicy", OWN("name: c, image: i, imagePullPolicy: Always"),
         OWN("name: c, image: i, imagePullPolicy: Often"),
         "spec.containers[0].imagePullPolicy: must"},
        {"workingDir", OWN("name: c, image: i, workingDir: /d"),
         OWN("name: c, image: i, workingDir: [/d]"), "spec.containers[0].workingDir: must"},
        {"grpcEndpoint", SPEC("  grpcEndpoint: port:1"), SPEC("  grpcEndpoint: port:x"),
         "spec.grpcEndpoint: must"},
        {"grpcDataEndpoint", SPEC("  grpcDataEndpoint: 'unix:/d/s'"),
         SPEC("  grpcDataEndpoint: 'unix:s'"), "spec.grpcDataEndpoint: must"},
        {"supportedModelFormats", SPEC("  supportedModelFormats: [{name: f}]"),
         SPEC("  supportedModelFormats: f"), "spec.supportedModelFormats: must"},
        {"name", SPEC("  supportedModelFormats: [{name: f}]"),
         SPEC("  supportedModelFormats: [{version: '1'}]"),
         "spec.supportedModelFormats[0].name: is missing"},
        {"version", SPEC("  supportedModelFormats: [{name: f, version: '1'}]"),
         SPEC("  supportedModelFormats: [{name: f, version: 1}]"),
         "spec.supportedModelFormats[0].version: must"},
        {"storageHelper", SPEC("  storageHelper: {disabled: true}"),
         SPEC("  storageHelper: {disabled: 1}"), "spec.storageHelper.disabled: must"},
        {"nodeSelector", SPEC("  nodeSelector: {a: b}"), SPEC("  nodeSelector: [a]"),
         "spec.nodeSelector: must"},
        {"affinity", SPEC("  affinity: {nodeAffinity: {}}"), SPEC("  affinity: {podAffinity: {}}"),
         "spec.affinity.podAffinity: is not supported"},
        {"tolerations", SPEC("  tolerations: [{operator: Exists}]"),
         SPEC("  tolerations: [{effect: Never}]"), "spec.tolerations[0].effect: must"},
        {"replicas", SPEC("  replicas: 2"), SPEC("  replicas: two"), "spec.replicas: must"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char other[512];
        struct manifest_file file = good(rows[i].good);
        manifest_file_free(&file);
        bad(rows[i].bad, rows[i].mistake);

        const char *end = strstr(strstr(rows[i].good, "spec:"), rows[i].name);
        assert_non_null(end);
        end += strlen(rows[i].name);
        snprintf(other, sizeof(other), "%.*sX%s", (int)(end - rows[i].good), rows[i].good, end);
        struct error error = ERROR_NONE;
        assert_int_equal(manifest_read("f", other, strlen(other), &file, &error),
                         STATUS_INVALID_ARGUMENT);
        snprintf(other, sizeof(other), "%sX: is not a field of it", rows[i].name);
        bool is_reported = false;
        for (uint32_t k = 0; k < file.mistake_count; k++)
            is_reported = is_reported || strstr(file.mistakes[k], other) != NULL;
        if (!is_reported)
            fail_msg("\"%s\" is no mistake: %s", other, file.mistakes[0]);
        manifest_file_free(&file);
    }
}

TEST_CASE(test_configuration_annotations_and_marks)
{
    static const struct {
        const char *text, *mistake;
    } rows[] = {
        {"apiVersion: v1\nkind: ConfigMap\n" META("model-serving-config") "data: {other: x}",
         "f:4: data.other: is not supported: only config.yaml is"},
        {"apiVersion: v1\nkind: ConfigMap\n" META(
             "model-serving-config") "data:\n  config.yaml: |\n    podsPerRuntime: 0\n",
         "f:5: data.config.yaml:1: podsPerRuntime: must be an integer from 1"},
        {"apiVersion: v1\nkind: ConfigMap\n" META(
             "model-serving-config") "data:\n  config.yaml: |\n    podsPerRuntime: 1\n    "
                                     "restProxy: {enabled: true}\n",
         "f:5: data.config.yaml:2: restProxy: is not supported: set `http`"},
        {ISVC "metadata: {name: i, annotations: {serving.kserve.io/min-scale: '2'}}\n"
              "spec: {predictor: {model: {modelFormat: {name: f}, storage: {path: p}}}}",
         "f:3: metadata.annotations.serving.kserve.io/min-scale: is not supported: write "
         "shoal.dev/"},
        {BOUNDS("shoal.dev/min-copies: '1001'"),
         "f:3: metadata.annotations.shoal.dev/min-copies: must be a number from 0 to 1000, not "},
        {BOUNDS("shoal.dev/max-copies: '0'"),
         "f:3: metadata.annotations.shoal.dev/max-copies: must"},
        {BOUNDS("shoal.dev/max-copies: '-1'"),
         "f:3: metadata.annotations.shoal.dev/max-copies: must"},
        {BOUNDS("shoal.dev/min-copies: ''"),
         "f:3: metadata.annotations.shoal.dev/min-copies: must"},
        {BOUNDS("shoal.dev/min-copies: '99999999999999999999'"),
         "f:3: metadata.annotations.shoal.dev/min-copies: must be a number from 0 to 1000, not "},
        {BOUNDS("shoal.dev/size-mib: 1.5Gi"),
         "f:3: metadata.annotations.shoal.dev/size-mib: must be a number from 1 to 16777216, not "},
        {BOUNDS("shoal.dev/min-copies: '3', shoal.dev/max-copies: '2'"),
         "f:3: metadata.annotations.shoal.dev/max-copies: must be at least min-copies (3), not 2"},
        {"apiVersion: v1\nkind: Secret\n"
         "metadata: {name: s, annotations: {shoal.dev/min-copies: '2'}}\n",
         "f:3: metadata.annotations.shoal.dev/min-copies: is for an InferenceService or a "
         "Predictor"},
        {"apiVersion: v1\nkind: Secret\n" META("s") "stringData: {a: &hush x}",
         "f:4: anchors (&…) are not supported"},
        {"apiVersion: v1\nkind: Secret\n" META("s") "stringData: {a: *hush}",
         "f:4: aliases (*…) are not supported"},
        {"apiVersion: v1\nkind: Secret\n" META("s") "stringData: {a: !hush x}",
         "f:4: tags (!…) are not supported"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        bad(rows[i].text, rows[i].mistake);
}

TEST_CASE(test_configuration)
{
#define CONFIG(text)                                                                               \
    "apiVersion: v1\nkind: ConfigMap\n" META("model-serving-config") "data: {config.yaml: '{" text \
                                                                     "}'}\n"
    static const struct {
        const char *text;
        int64_t grace_ns;
    } rows[] = {
        {CONFIG("podsPerRuntime: 3"), TIME_NEVER_NS},
        {CONFIG("podsPerRuntime: 3, scaleToZero: {}"), 60 * (int64_t)NS_PER_S},
        {CONFIG("podsPerRuntime: 3, scaleToZero: {gracePeriodSeconds: 0}"), 0},
        {CONFIG("podsPerRuntime: 3, scaleToZero: {enabled: true, gracePeriodSeconds: 7}"),
         7 * (int64_t)NS_PER_S},
        {CONFIG("podsPerRuntime: 3, scaleToZero: {enabled: false, gracePeriodSeconds: 7}"),
         TIME_NEVER_NS},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct manifest_file config = good(rows[i].text);
        assert_int_equal(config.items[0].pods_per_runtime, 3);
        assert_int_equal(config.items[0].grace_ns, rows[i].grace_ns);
        manifest_file_free(&config);
    }
}

static char *
repeat(const char *before, const char *text, const char *after, size_t times)
{
    struct bytes made = {0};
    bytes_put_text(&made, before);
    for (size_t i = 0; i < times; i++)
        bytes_put_text(&made, text);
    bytes_put(&made, after, strlen(after) + 1);
    assert_false(made.failed);
    return made.data;
}

/* Lists whose effect grows faster than their length, and names that would not be read back. */
TEST_CASE(test_counts_and_names_have_limits)
{
    const struct {
        char *text;
        const char *mistake;
    } rows[] = {
        {repeat(RUNTIME META("r") "spec: {containers: [", "{name: c, image: i},", "]}\n", 9000),
         "spec.containers: has 9000 entries: must be at most 64"},
        {repeat(SPEC("  supportedModelFormats: ["), "{name: f},", "]\n", 257),
         "spec.supportedModelFormats: has 257 entries: must be at most 256"},
        {repeat(SPEC("  protocolVersions: ["), "v2,", "]\n", 17),
         "spec.protocolVersions: has 17 entries: must be at most 16"},
        {repeat("apiVersion: v1\nkind: ConfigMap\n" META("c") "data:\n  ? ", "k", "\n  : v\n", 318),
         "a name must have at most 317 printable ASCII characters"},
        {repeat("apiVersion: v1\nkind: ConfigMap\n" META("c") "data: {", "\xc3\xa9", ": v}\n", 1),
         "a name must have at most 317 printable ASCII characters"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bad(rows[i].text, rows[i].mistake);
        free(rows[i].text);
    }
}

/* kubectl leaves a copy of the values in an annotation. */
TEST_CASE(test_values_of_a_secret_are_hidden)
{
    struct manifest_file file = good(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s, annotations: {a: b, "
        "kubectl.kubernetes.io/last-applied-configuration: '{\"data\":{\"k\":\"aHVzaA==\"}}'}}\n"
        "data: {k: aHVzaA==}\nstringData: {l: \"hu\\Nsh\"}\n");
    char *hidden = manifest_hide(&file.items[0]);
    assert_null(strstr(hidden, "aHVzaA"));
    assert_null(strstr(hidden, "hu"));
    assert_non_null(strstr(hidden, "\"a\":\"b\""));
    free(hidden);
    manifest_file_free(&file);
}

/* One mistake hides neither the next nor another document. */
TEST_CASE(test_all_mistakes_are_listed)
{
    static const char text[] = SPEC("  replica: 1\n  replicas: x") "---\n" MODEL("runtime: r");
    struct manifest_file file;
    struct error error = ERROR_NONE;
    assert_int_equal(manifest_read("f", text, strlen(text), &file, &error),
                     STATUS_INVALID_ARGUMENT);
    assert_int_equal(file.mistake_count, 3);
    assert_string_equal(error.text, "f: 3 mistakes");
    manifest_file_free(&file);
}

/* An object as `kubectl get -o yaml` prints it. */
TEST_CASE(test_fields_of_a_server_are_left_out)
{
    struct manifest_file file = good(
        PREDICTOR "metadata: {name: p, uid: u, resourceVersion: '7', generation: 2, "
                  "creationTimestamp: null}\nspec: {modelType: {name: f}}\nstatus: {any: [1]}\n");
    assert_string_equal(file.items[0].json,
                        "{\"apiVersion\":\"serving.kserve.io/v1alpha1\",\"kind\":\"Predictor\","
                        "\"metadata\":{\"name\":\"p\"},\"spec\":{\"modelType\":{\"name\":\"f\"}}}");
    manifest_file_free(&file);
}

TEST_CASE(test_bounds_of_a_model)
{
    struct manifest_file file = good(BOUNDS(
        "shoal.dev/min-copies: '2', shoal.dev/max-copies: '1000', shoal.dev/size-mib: '16777216'"));
    struct manifest_file none = good(BOUNDS(""));
    const struct serving_bounds *bounds = &file.items[0].wanted.bounds;
    assert_int_equal(bounds->copies_min, 2);
    assert_int_equal(bounds->copies_max, 1000);
    assert_int_equal(bounds->size_mib, 16777216);
    assert_int_equal(none.items[0].wanted.bounds.copies_min, 0);
    assert_string_equal(file.items[0].model.id, none.items[0].model.id); /* it is the same model */
    manifest_file_free(&file);
    manifest_file_free(&none);
}

/* The two kinds of runtimes have the same fields. */
TEST_CASE(test_runtime_of_the_cluster)
{
    char text[4096];
    const char *spec = strstr(full_runtime, "metadata:");
    snprintf(text, sizeof(text), CLUSTER_RUNTIME "%s", spec);
    struct manifest_file file = good(text);
    struct manifest_file namespaced = good(full_runtime);
    const struct manifest *manifest = &file.items[0];
    assert_int_equal(manifest->kind, MANIFEST_CLUSTER_SERVING_RUNTIME);
    assert_true(manifest_is_runtime(manifest->kind));
    assert_string_equal(manifest->name, "example-runtime");
    assert_string_equal(manifest->runtime.name, "example-runtime");
    assert_true(manifest->runtime.multi_model);
    assert_int_equal(manifest->runtime.format_count, 1);
    assert_string_equal(strstr(manifest->json, "\"metadata\""),
                        strstr(namespaced.items[0].json, "\"metadata\""));
    manifest_file_free(&file);
    manifest_file_free(&namespaced);
    bad(CLUSTER_RUNTIME META("r") "spec: {containers: []}",
        "f:4: spec.containers: at least one is needed");
}

TEST_CASE(test_kinds_by_the_words_of_kubectl)
{
    enum manifest_kind kind = MANIFEST_KINDS;
    assert_true(manifest_kind_find("isvc", &kind));
    assert_int_equal(kind, MANIFEST_INFERENCE_SERVICE);
    assert_true(manifest_kind_find("ServingRuntime", &kind));
    assert_int_equal(kind, MANIFEST_SERVING_RUNTIME);
    assert_true(manifest_kind_find("clusterservingruntimes", &kind));
    assert_int_equal(kind, MANIFEST_CLUSTER_SERVING_RUNTIME);
    assert_true(manifest_kind_find("cm", &kind));
    assert_int_equal(kind, MANIFEST_CONFIG_MAP);
    assert_false(manifest_kind_find("pod", &kind));
}

TEST_MAIN()
