/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of the gateway's kinds. */
#include "serving/manifest/schema.h"

/* ---- rows ---- */

#define ROW(name, type, need, detail, fields, least)                                               \
    {                                                                                              \
        name, type, need, detail, fields, least                                                    \
    }
#define TEXT(name) ROW(name, FIELD_TEXT, FIELD_OPTIONAL, NULL, NULL, 0)
#define NEEDED(name) ROW(name, FIELD_TEXT, FIELD_REQUIRED, NULL, NULL, 0)
#define WORD(name, words) ROW(name, FIELD_TEXT, FIELD_OPTIONAL, words, NULL, 0)
#define NUMBER(name, least) ROW(name, FIELD_NUMBER, FIELD_OPTIONAL, NULL, NULL, least)
#define TEXTS(name) ROW(name, FIELD_TEXTS, FIELD_OPTIONAL, NULL, NULL, 0)
#define MAP(name) ROW(name, FIELD_MAP, FIELD_OPTIONAL, NULL, any_text, 0)
#define OBJECT(name, fields) ROW(name, FIELD_OBJECT, FIELD_OPTIONAL, NULL, fields, 0)
#define OBJECT_NEEDED(name, fields) ROW(name, FIELD_OBJECT, FIELD_REQUIRED, NULL, fields, 0)
#define OBJECTS(name, fields) ROW(name, FIELD_OBJECTS, FIELD_OPTIONAL, NULL, fields, 0)
#define OBJECTS_NEEDED(name, fields) ROW(name, FIELD_OBJECTS, FIELD_REQUIRED, NULL, fields, 0)
#define REFUSED(name, why) ROW(name, FIELD_REFUSED, FIELD_OPTIONAL, why, NULL, 0)
#define END ROW(NULL, FIELD_TEXT, FIELD_OPTIONAL, NULL, NULL, 0)

/* Files of llm-d leave the version out. */
#define DOCUMENT(spec)                                                                             \
    TEXT("apiVersion"), NEEDED("kind"), OBJECT_NEEDED("metadata", manifest_metadata),              \
        OBJECT_NEEDED("spec", spec), ROW("status", FIELD_DROPPED, FIELD_OPTIONAL, NULL, NULL, 0),  \
        END

static const struct schema_field any_text[] = {TEXT("value"), END};

static const struct schema_field pool_ref[] = {TEXT("group"), WORD("kind", "InferencePool"),
                                               NEEDED("name"), END};

/* ---- InferencePool ---- */

static const struct schema_field selector[] = {MAP("matchLabels"), END};
static const struct schema_field port[] = {
    ROW("number", FIELD_NUMBER, FIELD_REQUIRED, NULL, NULL, 1), END};
static const struct schema_field picker[] = {
    TEXT("group"),
    TEXT("kind"),
    NEEDED("name"),
    OBJECT("port", port),
    WORD("failureMode", "FailOpen|FailClose"),
    END,
};
static const struct schema_field pool_spec[] = {
    OBJECT_NEEDED("selector", selector),
    OBJECTS("targetPorts", port),
    WORD("appProtocol", "http"),
    OBJECT("endpointPickerRef", picker),
    END,
};
const struct schema_field manifest_pool_fields[] = {DOCUMENT(pool_spec)};

/* ---- InferenceObjective ---- */

static const struct schema_field objective_spec[] = {NUMBER("priority", INT32_MIN),
                                                     OBJECT("poolRef", pool_ref), END};
const struct schema_field manifest_objective_fields[] = {DOCUMENT(objective_spec)};

/* ---- InferenceModelRewrite ---- */

static const struct schema_field model_match[] = {WORD("type", "Exact"), NEEDED("value"), END};
static const struct schema_field rewrite_match[] = {OBJECT_NEEDED("model", model_match), END};
static const struct schema_field rewrite_target[] = {NEEDED("modelRewrite"), NUMBER("weight", 1),
                                                     END};
static const struct schema_field rewrite_rule[] = {OBJECTS("matches", rewrite_match),
                                                   OBJECTS_NEEDED("targets", rewrite_target), END};
static const struct schema_field rewrite_spec[] = {OBJECT_NEEDED("poolRef", pool_ref),
                                                   OBJECTS_NEEDED("rules", rewrite_rule), END};
const struct schema_field manifest_rewrite_fields[] = {DOCUMENT(rewrite_spec)};

/* ---- InferenceModel ---- */

static const struct schema_field target_model[] = {NEEDED("name"), NUMBER("weight", 1), END};
static const struct schema_field model_spec[] = {
    NEEDED("modelName"),
    WORD("criticality", "Critical|Standard|Sheddable"),
    OBJECTS("targetModels", target_model),
    OBJECT_NEEDED("poolRef", pool_ref),
    END,
};
const struct schema_field manifest_model_fields[] = {DOCUMENT(model_spec)};

/* ---- what routes have in common ---- */

static const struct schema_field parent_ref[] = {
    TEXT("group"),     TEXT("kind"), TEXT("namespace"), NEEDED("name"), TEXT("sectionName"),
    NUMBER("port", 1), END,
};
#define ALWAYS_RETRIED "429, 503 and failures before the first byte are retried, at once: remove it"
static const struct schema_field retry[] = {
    NUMBER("attempts", 0),
    REFUSED("codes", ALWAYS_RETRIED),
    REFUSED("backoff", ALWAYS_RETRIED),
    END,
};

/* ---- LLMRoute: what one adapter has may stand in spec, for all of backendRefs ---- */

static const struct schema_field adapter[] = {NEEDED("name"), TEXT("path"), END};
static const struct schema_field quantile[] = {NUMBER("numerator", 1), NUMBER("denominator", 1),
                                               END};
static const struct schema_field latency[] = {NEEDED("value"), OBJECT("quantile", quantile), END};
static const struct schema_field llm_objective[] = {
    ROW("type", FIELD_TEXT, FIELD_REQUIRED, "OutputTokenLatency", NULL, 0),
    OBJECT_NEEDED("latency", latency), END};
static const struct schema_field metrics[] = {WORD("format", "Prometheus"), END};

#define OF_ADAPTER                                                                                 \
    OBJECT("adapter", adapter), NUMBER("priority", INT32_MIN),                                     \
        OBJECTS("objectives", llm_objective), OBJECT("metrics", metrics)

static const struct schema_field llm_backend[] = {
    TEXT("group"), WORD("kind", "InferencePool"), NEEDED("name"), NUMBER("weight", 0), OF_ADAPTER,
    END,
};
static const struct schema_field llm_spec[] = {
    OBJECTS("parentRefs", parent_ref),
    OBJECTS_NEEDED("backendRefs", llm_backend),
    OF_ADAPTER,
    TEXTS("fallbacks"),
    OBJECT("retry", retry),
    END,
};
const struct schema_field manifest_llm_route_fields[] = {DOCUMENT(llm_spec)};

/* ---- HTTPRoute ---- */

#define ANY_REQUEST "every request to the gateway takes the one rule: remove it"
static const struct schema_field path_match[] = {WORD("type", "PathPrefix"), WORD("value", "/|/v1"),
                                                 END};
static const struct schema_field http_match[] = {
    OBJECT("path", path_match),
    REFUSED("headers", ANY_REQUEST),
    REFUSED("method", ANY_REQUEST),
    REFUSED("queryParams", ANY_REQUEST),
    END,
};
static const struct schema_field http_backend[] = {
    TEXT("group"),
    ROW("kind", FIELD_TEXT, FIELD_REQUIRED, "InferencePool", NULL, 0),
    NEEDED("name"),
    TEXT("namespace"),
    NUMBER("port", 1),
    NUMBER("weight", 0),
    REFUSED("filters", "requests pass as they are: remove it"),
    END,
};
static const struct schema_field http_rule[] = {
    TEXT("name"),
    OBJECTS("matches", http_match),
    OBJECTS_NEEDED("backendRefs", http_backend),
    OBJECT("retry", retry),
    REFUSED("filters", "requests pass as they are: remove it"),
    REFUSED("sessionPersistence", "set a weight for session-affinity-scorer, and remove it"),
    REFUSED("timeouts", "set total_timeout_ms in the gateway's configuration, and remove it"),
    END,
};
static const struct schema_field http_spec[] = {
    OBJECTS("parentRefs", parent_ref),
    REFUSED("hostnames", ANY_REQUEST),
    OBJECTS_NEEDED("rules", http_rule),
    END,
};
const struct schema_field manifest_http_route_fields[] = {DOCUMENT(http_spec)};
