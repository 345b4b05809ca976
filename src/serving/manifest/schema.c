/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/manifest/schema.h"

#include <stdlib.h>
#include <string.h>

/* ---- rows ---- */

#define TEXT(name)                                                                                 \
    {                                                                                              \
        name, FIELD_TEXT, FIELD_OPTIONAL, NULL, NULL, 0                                            \
    }
#define NEEDED(name)                                                                               \
    {                                                                                              \
        name, FIELD_TEXT, FIELD_REQUIRED, NULL, NULL, 0                                            \
    }
#define WORD(name, words)                                                                          \
    {                                                                                              \
        name, FIELD_TEXT, FIELD_OPTIONAL, words, NULL, 0                                           \
    }
#define BOOL(name)                                                                                 \
    {                                                                                              \
        name, FIELD_BOOL, FIELD_OPTIONAL, NULL, NULL, 0                                            \
    }
#define NUMBER(name, least)                                                                        \
    {                                                                                              \
        name, FIELD_NUMBER, FIELD_OPTIONAL, NULL, NULL, least                                      \
    }
#define MAP(name)                                                                                  \
    {                                                                                              \
        name, FIELD_MAP, FIELD_OPTIONAL, NULL, any_text, 0                                         \
    }
#define AMOUNTS(name)                                                                              \
    {                                                                                              \
        name, FIELD_MAP, FIELD_OPTIONAL, NULL, any_amount, 0                                       \
    }
#define BYTES(name)                                                                                \
    {                                                                                              \
        name, FIELD_MAP, FIELD_OPTIONAL, NULL, any_bytes, 0                                        \
    }
#define TEXTS(name)                                                                                \
    {                                                                                              \
        name, FIELD_TEXTS, FIELD_OPTIONAL, NULL, NULL, 0                                           \
    }
#define POINT(name)                                                                                \
    {                                                                                              \
        name, FIELD_POINT, FIELD_OPTIONAL, NULL, NULL, 0                                           \
    }
#define OBJECT(name, fields)                                                                       \
    {                                                                                              \
        name, FIELD_OBJECT, FIELD_OPTIONAL, NULL, fields, 0                                        \
    }
#define OBJECT_NEEDED(name, fields)                                                                \
    {                                                                                              \
        name, FIELD_OBJECT, FIELD_REQUIRED, NULL, fields, 0                                        \
    }
#define OBJECTS(name, fields)                                                                      \
    {                                                                                              \
        name, FIELD_OBJECTS, FIELD_OPTIONAL, NULL, fields, 0                                       \
    }
#define OBJECTS_NEEDED(name, fields)                                                               \
    {                                                                                              \
        name, FIELD_OBJECTS, FIELD_REQUIRED, NULL, fields, 0                                       \
    }
#define DROPPED(name)                                                                              \
    {                                                                                              \
        name, FIELD_DROPPED, FIELD_OPTIONAL, NULL, NULL, 0                                         \
    }
#define REFUSED(name, why)                                                                         \
    {                                                                                              \
        name, FIELD_REFUSED, FIELD_OPTIONAL, why, NULL, 0                                          \
    }
#define END                                                                                        \
    {                                                                                              \
        NULL, FIELD_TEXT, FIELD_OPTIONAL, NULL, NULL, 0                                            \
    }

static const struct schema_field any_text[] = {TEXT("value"), END};
static const struct schema_field any_amount[] = {
    {"value", FIELD_AMOUNT, FIELD_OPTIONAL, NULL, NULL, 0}, END};
static const struct schema_field any_bytes[] = {
    {"value", FIELD_BASE64, FIELD_OPTIONAL, NULL, NULL, 0}, END};

#define COMMON NEEDED("apiVersion"), NEEDED("kind"), OBJECT_NEEDED("metadata", manifest_metadata)

/* ---- ServingRuntime, ClusterServingRuntime ---- */

static const struct schema_field formats[] = {
    NEEDED("name"), TEXT("version"), BOOL("autoSelect"), NUMBER("priority", 0), END,
};

static const struct schema_field key_ref[] = {
    TEXT("name"),
    NEEDED("key"),
    BOOL("optional"),
    END,
};
static const struct schema_field field_ref[] = {TEXT("apiVersion"), NEEDED("fieldPath"), END};
static const struct schema_field resource_ref[] = {
    TEXT("containerName"),
    NEEDED("resource"),
    {"divisor", FIELD_AMOUNT, FIELD_OPTIONAL, NULL, NULL, 0},
    END,
};
static const struct schema_field value_from[] = {
    OBJECT("secretKeyRef", key_ref),
    OBJECT("configMapKeyRef", key_ref),
    OBJECT("fieldRef", field_ref),
    OBJECT("resourceFieldRef", resource_ref),
    END,
};
static const struct schema_field env[] = {
    NEEDED("name"),
    TEXT("value"),
    OBJECT("valueFrom", value_from),
    END,
};

static const struct schema_field resources[] = {
    AMOUNTS("limits"),
    AMOUNTS("requests"),
    REFUSED("claims", "there are no resource claims here: remove it"),
    END,
};

#define NO_PROBE "runtimeStatus says whether a runtime is ready, and its death is seen: remove it"
#define NO_LIFECYCLE "the mesh starts and ends runtimes by itself: remove it"
#define NO_VOLUME "a container here is a process of the host and sees its files: name their path"

static const struct schema_field containers[] = {
    NEEDED("name"),
    NEEDED("image"),
    TEXTS("command"),
    TEXTS("args"),
    OBJECTS("env", env),
    OBJECT("resources", resources),
    WORD("imagePullPolicy", "Always|IfNotPresent|Never"),
    TEXT("workingDir"),
    REFUSED("envFrom", "only single variables are taken: list them in env"),
    REFUSED("lifecycle", NO_LIFECYCLE),
    REFUSED("livenessProbe", NO_PROBE),
    REFUSED("ports", "grpcEndpoint and grpcDataEndpoint name the ports: remove it"),
    REFUSED("readinessProbe", NO_PROBE),
    REFUSED("securityContext", "a container here is a process of the node's user: remove it"),
    REFUSED("startupProbe", NO_PROBE),
    REFUSED("volumeDevices", NO_VOLUME),
    REFUSED("volumeMounts", NO_VOLUME),
    END,
};

static const struct schema_field storage_helper[] = {BOOL("disabled"), END};

static const struct schema_field adapter[] = {
    WORD("serverType", "triton|mlserver|ovms|torchserve|tfserving"),
    NUMBER("runtimeManagementPort", 1),
    NUMBER("memBufferBytes", 0),
    NUMBER("modelLoadingTimeoutMillis", 1),
    OBJECTS("env", env),
    END,
};

static const struct schema_field tolerations[] = {
    TEXT("key"),
    WORD("operator", "Exists|Equal"),
    TEXT("value"),
    WORD("effect", "NoSchedule|PreferNoSchedule|NoExecute"),
    NUMBER("tolerationSeconds", 0),
    END,
};

static const struct schema_field expressions[] = {
    NEEDED("key"),
    {"operator", FIELD_TEXT, FIELD_REQUIRED, "In|NotIn|Exists|DoesNotExist|Gt|Lt", NULL, 0},
    TEXTS("values"),
    END,
};
static const struct schema_field node_term[] = {
    OBJECTS("matchExpressions", expressions),
    OBJECTS("matchFields", expressions),
    END,
};
static const struct schema_field node_terms[] = {OBJECTS_NEEDED("nodeSelectorTerms", node_term),
                                                 END};
static const struct schema_field preferred_term[] = {
    {"weight", FIELD_NUMBER, FIELD_REQUIRED, NULL, NULL, 1},
    OBJECT_NEEDED("preference", node_term),
    END,
};
static const struct schema_field node_affinity[] = {
    OBJECT("requiredDuringSchedulingIgnoredDuringExecution", node_terms),
    OBJECTS("preferredDuringSchedulingIgnoredDuringExecution", preferred_term),
    END,
};
#define NO_PODS "there are no pods here; nodeAffinity selects nodes: remove it"
static const struct schema_field affinity[] = {
    OBJECT("nodeAffinity", node_affinity),
    REFUSED("podAffinity", NO_PODS),
    REFUSED("podAntiAffinity", NO_PODS),
    END,
};

static const struct schema_field runtime_spec[] = {
    OBJECTS("supportedModelFormats", formats),
    BOOL("multiModel"),
    BOOL("disabled"),
    TEXTS("protocolVersions"),
    OBJECTS_NEEDED("containers", containers),
    POINT("grpcEndpoint"),
    POINT("grpcDataEndpoint"),
    OBJECT("storageHelper", storage_helper),
    NUMBER("replicas", 0),
    MAP("nodeSelector"),
    OBJECT("affinity", affinity),
    OBJECTS("tolerations", tolerations),
    OBJECT("builtInAdapter", adapter),
    MAP("labels"),
    MAP("annotations"),
    REFUSED("httpDataEndpoint", "the mesh serves HTTP by itself: remove it"),
    REFUSED("imagePullSecrets", "no image is pulled here: remove it"),
    REFUSED("volumes", NO_VOLUME),
    REFUSED("workerSpec", "one runtime is on one node: remove it"),
    END,
};
static const struct schema_field runtime[] = {
    COMMON,
    OBJECT_NEEDED("spec", runtime_spec),
    DROPPED("status"),
    END,
};

/* ---- InferenceService ---- */

#define IN_RUNTIME "all models of a runtime share its containers: set it in the ServingRuntime"
#define NO_SCALE "a runtime's `replicas` say on how many nodes it runs: remove it"

static const struct schema_field format[] = {NEEDED("name"), TEXT("version"), END};

static const struct schema_field storage[] = {
    TEXT("key"), TEXT("path"), MAP("parameters"), TEXT("schemaPath"), END,
};
static const struct schema_field model[] = {
    OBJECT_NEEDED("modelFormat", format),
    TEXT("runtime"),
    TEXT("protocolVersion"),
    TEXT("storageUri"),
    OBJECT("storage", storage),
    REFUSED("args", IN_RUNTIME),
    REFUSED("command", IN_RUNTIME),
    REFUSED("env", IN_RUNTIME),
    REFUSED("image", IN_RUNTIME),
    REFUSED("resources", IN_RUNTIME),
    REFUSED("runtimeVersion", "name the runtime by `runtime`"),
    REFUSED("volumeMounts", IN_RUNTIME),
    END,
};
#define FRAMEWORK "write predictor.model with this word as modelFormat.name"
static const struct schema_field isvc_predictor[] = {
    OBJECT_NEEDED("model", model),
    REFUSED("affinity", IN_RUNTIME),
    REFUSED("containers", "a container of one model only is not supported: write a ServingRuntime"),
    REFUSED("lightgbm", FRAMEWORK),
    REFUSED("maxReplicas", NO_SCALE),
    REFUSED("minReplicas", NO_SCALE),
    REFUSED("nodeSelector", IN_RUNTIME),
    REFUSED("onnx", FRAMEWORK),
    REFUSED("pmml", FRAMEWORK),
    REFUSED("pytorch", FRAMEWORK),
    REFUSED("scaleMetric", NO_SCALE),
    REFUSED("scaleTarget", NO_SCALE),
    REFUSED("serviceAccountName", "there are no service accounts here: storage.key names the "
                                  "credentials"),
    REFUSED("sklearn", FRAMEWORK),
    REFUSED("tensorflow", FRAMEWORK),
    REFUSED("tolerations", IN_RUNTIME),
    REFUSED("triton", FRAMEWORK),
    REFUSED("xgboost", FRAMEWORK),
    END,
};
static const struct schema_field isvc_spec[] = {
    OBJECT_NEEDED("predictor", isvc_predictor),
    REFUSED("explainer", "only a predictor is supported: remove it"),
    REFUSED("transformer", "only a predictor is supported: a pipeline's stages transform"),
    END,
};
static const struct schema_field isvc[] = {
    COMMON,
    OBJECT_NEEDED("spec", isvc_spec),
    DROPPED("status"),
    END,
};

/* ---- Predictor ---- */

static const struct schema_field s3[] = {NEEDED("secretKey"), TEXT("bucket"), END};
static const struct schema_field predictor_storage[] = {
    OBJECT("s3", s3),
    TEXT("key"),
    TEXT("path"),
    MAP("parameters"),
    TEXT("schemaPath"),
    REFUSED("persistentVolumeClaim", "write storage.parameters with `type: pvc` and `name`"),
    END,
};
static const struct schema_field runtime_name[] = {NEEDED("name"), END};
static const struct schema_field predictor_spec[] = {
    OBJECT_NEEDED("modelType", format),
    TEXT("path"),
    TEXT("schemaPath"),
    OBJECT("storage", predictor_storage),
    OBJECT("runtime", runtime_name),
    TEXT("protocolVersion"),
    REFUSED("gpu", "choose a runtime on nodes with a GPU by `runtime`"),
    REFUSED("serviceAccountName", "there are no service accounts here: storage names the "
                                  "credentials"),
    END,
};
static const struct schema_field predictor[] = {
    COMMON,
    OBJECT_NEEDED("spec", predictor_spec),
    DROPPED("status"),
    END,
};

/* ---- Secret, ConfigMap ---- */

static const struct schema_field secret[] = {
    COMMON, TEXT("type"), BYTES("data"), MAP("stringData"), BOOL("immutable"), END,
};
static const struct schema_field config_map[] = {
    COMMON, MAP("data"), BYTES("binaryData"), BOOL("immutable"), END,
};

/* ---- config.yaml of the ConfigMap model-serving-config ---- */

#define NO_POD "there are no pods here, a node is configured by its file: remove it"

static const struct schema_field scale[] = {BOOL("enabled"), NUMBER("gracePeriodSeconds", 0), END};
static const struct schema_field config[] = {
    NUMBER("podsPerRuntime", 1),
    OBJECT("scaleToZero", scale),
    TEXT("inferenceServiceName"),
    NUMBER("inferenceServicePort", 1),
    WORD("storageSecretName", "storage-config"),
    REFUSED("allowAnyPVC", "claims are the folders in `pvc_mounts` of a node: remove it"),
    REFUSED("builtInServerTypes", "they are those of builtInAdapter.serverType: remove it"),
    REFUSED("enableAccessLogging", "set `access_log` of each node"),
    REFUSED("grpcMaxMessageSizeBytes", "set `message_mib` of each node"),
    REFUSED("headlessService", NO_POD),
    REFUSED("imagePullSecrets", NO_POD),
    REFUSED("internalModelMeshEnvVars", NO_POD),
    REFUSED("metrics", "set `metrics` of each node"),
    REFUSED("modelMeshEndpoint", NO_POD),
    REFUSED("modelMeshImage", NO_POD),
    REFUSED("modelMeshResources", NO_POD),
    REFUSED("payloadProcessors", "payloads are not copied to other servers: remove it"),
    REFUSED("restProxy", "set `http` of each node"),
    REFUSED("runtimePodAnnotations", NO_POD),
    REFUSED("runtimePodLabels", "set `labels` in `mesh` of each node"),
    REFUSED("serviceAccountName", NO_POD),
    REFUSED("storageHelperImage", "a node fetches models itself, `models_cache_gib`: remove it"),
    REFUSED("storageHelperResources", NO_POD),
    REFUSED("tls", "set `tls` of each node"),
    END,
};

const struct schema manifest_config_schema = {.name = "config.yaml", .fields = config};

/* ---- kinds ---- */

#define X_VERSIONS "inference.networking.x-k8s.io/v1alpha2|llm-d.ai/v1alpha2"

const struct schema manifest_schemas[MANIFEST_KINDS] = {
    [MANIFEST_SERVING_RUNTIME] = {"ServingRuntime",
                                  "servingruntime.serving.kserve.io",
                                  {"servingruntime", "servingruntimes"},
                                  "serving.kserve.io/v1alpha1",
                                  runtime},
    [MANIFEST_CLUSTER_SERVING_RUNTIME] = {"ClusterServingRuntime",
                                          "clusterservingruntime.serving.kserve.io",
                                          {"clusterservingruntime", "clusterservingruntimes"},
                                          "serving.kserve.io/v1alpha1",
                                          runtime},
    [MANIFEST_INFERENCE_SERVICE] = {"InferenceService",
                                    "inferenceservice.serving.kserve.io",
                                    {"isvc", "inferenceservice", "inferenceservices"},
                                    "serving.kserve.io/v1beta1",
                                    isvc},
    [MANIFEST_PREDICTOR] = {"Predictor",
                            "predictor.serving.kserve.io",
                            {"predictor", "predictors"},
                            "serving.kserve.io/v1alpha1",
                            predictor},
    [MANIFEST_SECRET] = {"Secret", "secret", {"secret", "secrets"}, "v1", secret},
    [MANIFEST_CONFIG_MAP] =
        {"ConfigMap", "configmap", {"configmap", "configmaps", "cm"}, "v1", config_map},
    [MANIFEST_POOL] = {"InferencePool",
                       "inferencepool.inference.networking.k8s.io",
                       {"inferencepool", "inferencepools"},
                       "inference.networking.k8s.io/v1",
                       manifest_pool_fields},
    [MANIFEST_OBJECTIVE] = {"InferenceObjective",
                            "inferenceobjective.inference.networking.x-k8s.io",
                            {"inferenceobjective", "inferenceobjectives"},
                            X_VERSIONS,
                            manifest_objective_fields},
    [MANIFEST_REWRITE] = {"InferenceModelRewrite",
                          "inferencemodelrewrite.inference.networking.x-k8s.io",
                          {"inferencemodelrewrite", "inferencemodelrewrites"},
                          X_VERSIONS,
                          manifest_rewrite_fields},
    [MANIFEST_MODEL] = {"InferenceModel",
                        "inferencemodel.inference.networking.x-k8s.io",
                        {"inferencemodel", "inferencemodels"},
                        "inference.networking.x-k8s.io/v1alpha2",
                        manifest_model_fields},
    [MANIFEST_LLM_ROUTE] = {"LLMRoute",
                            "llmroute.inference.x-k8s.io",
                            {"llmroute", "llmroutes"},
                            "inference.x-k8s.io/v1alpha1",
                            manifest_llm_route_fields},
    [MANIFEST_HTTP_ROUTE] = {"HTTPRoute",
                             "httproute.gateway.networking.k8s.io",
                             {"httproute", "httproutes"},
                             "gateway.networking.k8s.io/v1",
                             manifest_http_route_fields},
};

const char *
manifest_kind_name(enum manifest_kind kind)
{
    return manifest_schemas[kind].name;
}

const char *
manifest_kind_resource(enum manifest_kind kind)
{
    return manifest_schemas[kind].resource;
}

bool
manifest_kind_find(const char *word, enum manifest_kind *kind)
{
    for (enum manifest_kind at = 0; at < MANIFEST_KINDS; at++) {
        const struct schema *schema = &manifest_schemas[at];
        bool is = strcmp(word, schema->name) == 0 || strcmp(word, schema->resource) == 0;
        for (size_t i = 0; i < 4 && schema->words[i] != NULL && !is; i++)
            is = strcmp(word, schema->words[i]) == 0;
        if (is) {
            *kind = at;
            return true;
        }
    }
    return false;
}
