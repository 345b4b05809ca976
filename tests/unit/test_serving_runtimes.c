/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ServingRuntimes as a node would run them: Kubernetes' amounts and references to variables, its
 * rules for the choice of nodes, images and commands, values of variables, labels and addresses.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../test.h"
#include "serving/runtimes/amount.h"
#include "serving/runtimes/expand.h"
#include "serving/runtimes/plan.h"

TEST_CASE(test_amounts)
{
    static const struct {
        const char *text;
        uint64_t milli;
    } cases[] = {
        {"0", 0},
        {"2", 2000},
        {"500m", 500},
        {"0.5", 500},
        {"1.5Gi", UINT64_C(1610612736000)},
        {"200Mi", UINT64_C(209715200000)},
        {"1k", 1000000},
        {"1Ki", 1024000},
        {"0.0001", 1},
        {"16E", UINT64_MAX},
        {"999999999999999999Ei", UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(amount_milli(cases[i].text), cases[i].milli);
    assert_int_equal(amount_divide(1500, 1000), 2);
    assert_int_equal(amount_divide(2000, 1000), 2);
    assert_int_equal(amount_divide(1500, 1), 1500);
    assert_int_equal(amount_divide(0, 1000), 0);
}

TEST_CASE(test_references)
{
    static const struct {
        const char *text;
        const char *becomes;
    } cases[] = {
        {"plain", "plain"}, {"$(A)", "1"},    {"x$(A)y$(B)z", "x1y22z"}, {"$(NONE)", "$(NONE)"},
        {"$$(A)", "$(A)"},  {"$$$(A)", "$1"}, {"$$$$(A)", "$$(A)"},      {"$A $", "$A $"},
        {"$(A", "$(A"},     {"$()", "$()"},   {"$(C)", "$(A)"},
    };
    struct variables variables = {0};
    variables_put(&variables, strdup("A=0"));
    variables_put(&variables, strdup("B=22"));
    variables_put(&variables, strdup("A=1"));
    variables_put(&variables, strdup("C=$(A)"));
    assert_int_equal(variables.count, 3);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *text = expand(cases[i].text, &variables, 16);
        assert_string_equal(text, cases[i].becomes);
        free(text);
    }
    assert_null(expand("$(B)$(B)$(B)", &variables, 5));
    variables_fini(&variables);
}

/* ---- plans ---- */

static enum runtime_value
no_value(void *context, enum manifest_kind kind, const char *name, const char *key,
         struct bytes *value)
{
    (void)context;
    (void)key;
    if (kind != MANIFEST_SECRET || strcmp(name, "there") != 0)
        return RUNTIME_VALUE_NO_OBJECT;
    if (strcmp(key, "word") != 0)
        return RUNTIME_VALUE_NO_KEY;
    bytes_put_text(value, "hush");
    return RUNTIME_VALUE_FOUND;
}

static char program[] = "a.b/c/server=/bin/sh -c";
static char other[] = "tool=sh";
static char deep[] = "into=run --by=sh";
static char *images[] = {program, other, deep, NULL};
static char path[] = "PATH=/nowhere:/bin";
static char *passed[] = {path, NULL};

static struct runtime_host
host_of(void)
{
    return (struct runtime_host){.instance = "here",
                                 .address = "10.0.0.1",
                                 .images = images,
                                 .passed = passed,
                                 .labels = "disk=ssd,size=7,zone=east",
                                 .memory_bytes = 1 << 30,
                                 .cpu_milli = 4000,
                                 .value = no_value};
}

/* The plan of a runtime with one container of image `tool`; `spec` and `container` are more of
 * their fields, as JSON. */
static void
make(const struct runtime_host *host, const char *spec, const char *container,
     struct runtime_plan *plan)
{
    struct manifest_file file;
    struct error error = ERROR_NONE;
    char text[16384];
    snprintf(text, sizeof(text),
             "{\"apiVersion\": \"serving.kserve.io/v1alpha1\", \"kind\": \"ServingRuntime\","
             " \"metadata\": {\"name\": \"r\"}, \"spec\": {\"multiModel\": true, %s"
             " \"containers\": [{\"name\": \"c\", %s}]}}",
             spec, container);
    if (manifest_read("test", text, strlen(text), &file, &error) != STATUS_OK)
        fail_msg("%s", file.mistake_count > 0 ? file.mistakes[0] : error.text);
    runtime_plan_make(&file.items[0], host, plan);
    manifest_file_free(&file);
}

#define SPEC "\"grpcEndpoint\": \"port:8085\","
#define TOOL "\"image\": \"tool\""

static void
check_problem(const struct runtime_host *host, const char *spec, const char *container,
              const char *problem)
{
    struct runtime_plan plan;
    make(host, spec, container, &plan);
    if (problem == NULL && plan.problem != NULL)
        fail_msg("%s", plan.problem);
    if (problem != NULL && (plan.problem == NULL || strstr(plan.problem, problem) == NULL))
        fail_msg("%s: not \"%s\"", plan.problem != NULL ? plan.problem : "none", problem);
    runtime_plan_fini(&plan);
}

TEST_CASE(test_images_and_commands)
{
    static const struct {
        const char *container;
        const char *problem;
    } cases[] = {
        {TOOL, NULL},
        {"\"image\": \"tool:v1\"", NULL},
        {"\"image\": \"tool@sha256:00\"", NULL},
        {"\"image\": \"a.b/c/server:1\"", NULL},
        {"\"image\": \"a.b:5000/tool\"", "image \"a.b:5000/tool\" is no program of this node"},
        {"\"image\": \"too\"", "image \"too\" is no program"},
        {TOOL ", \"command\": []", NULL},
        {TOOL ", \"command\": [\"sh\"]", NULL},
        {TOOL ", \"command\": [\"sh\", \"-c\"]", "command \"sh\" is not the one"},
        {TOOL ", \"command\": [\"/bin/true\"]", "command \"/bin/true\" is not the one"},
        {"\"image\": \"a.b/c/server\", \"command\": [\"/bin/sh\", \"-c\"]", NULL},
        {TOOL ", \"env\": [{\"name\": \"LD_PRELOAD\", \"value\": \"x\"}]", "LD_PRELOAD"},
        {TOOL ", \"env\": [{\"name\": \"BASH_ENV\", \"value\": \"$(x)\"}]", "BASH_ENV"},
        {TOOL ", \"env\": [{\"name\": \"PATH\", \"value\": \"/tmp\"}]", "\"PATH\" makes"},
        {TOOL ", \"env\": [{\"name\": \"PATHS\", \"value\": \"/tmp\"}]", NULL},
        {"\"image\": \"into=run --by\"", "is no program of this node"}, /* into a command */
    };
    struct runtime_host host = host_of();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_problem(&host, SPEC, cases[i].container, cases[i].problem);
    host.commands = RUNTIME_COMMANDS_ANY;
    check_problem(&host, SPEC, TOOL ", \"command\": [\"/bin/true\"]", NULL);
    check_problem(&host, SPEC, TOOL ", \"env\": [{\"name\": \"LD_PRELOAD\", \"value\": \"x\"}]",
                  NULL);
    check_problem(&host, SPEC, TOOL ", \"command\": [\"no-such-program\"]",
                  "command \"no-such-program\" is no program of this host");
    check_problem(&host, SPEC, TOOL ", \"command\": [\"bin/sh\"]", "is no program of this host");
    check_problem(&host, SPEC, TOOL ", \"command\": [\"/etc/passwd\"]", "is no program");
    check_problem(&host, SPEC, TOOL ", \"command\": [\"/bin\"]", "is no program");
    check_problem(&host, "", TOOL, "grpcEndpoint is missing");
}

TEST_CASE(test_choice_of_nodes)
{
#define TERMS(terms)                                                                               \
    SPEC "\"affinity\": {\"nodeAffinity\": {\"requiredDuringSchedulingIgnoredDuringExecution\": "  \
         "{\"nodeSelectorTerms\": [" terms "]}}},"
#define WHERE(key, operator, values)                                                               \
    TERMS("{\"matchExpressions\": [{\"key\": \"" key "\", \"operator\": \""                        \
          operator"\", \"values\": [" values "]}]}")
    static const struct {
        const char *spec;
        const char *problem;
    } cases[] = {
        {SPEC "\"nodeSelector\": {\"disk\": \"ssd\", \"kubernetes.io/os\": \"linux\"},", NULL},
        {SPEC "\"nodeSelector\": {\"kubernetes.io/hostname\": \"here\"},", NULL},
        {SPEC "\"nodeSelector\": {\"disk\": \"hdd\"},", "must be \"hdd\""},
        {SPEC "\"nodeSelector\": {\"dis\": \"ssd\"},", "no label dis"},
        {WHERE("zone", "In", "\"west\", \"east\""), NULL},
        {WHERE("zone", "In", "\"west\""), "affinity"},
        {WHERE("zone", "NotIn", "\"west\""), NULL},
        {WHERE("zone", "NotIn", "\"east\""), "affinity"},
        {WHERE("none", "NotIn", "\"east\""), NULL},
        {WHERE("none", "Exists", ""), "affinity"},
        {WHERE("zone", "Exists", ""), NULL},
        {WHERE("zone", "DoesNotExist", ""), "affinity"},
        {WHERE("none", "DoesNotExist", ""), NULL},
        {WHERE("size", "Gt", "\"6\""), NULL},
        {WHERE("size", "Gt", "\"7\""), "affinity"},
        {WHERE("size", "Lt", "\"8\""), NULL},
        {WHERE("none", "Lt", "\"8\""), "affinity"},
        {TERMS("{}"), "affinity"},
        {TERMS("{}, {\"matchFields\": [{\"key\": \"metadata.name\", \"operator\": \"In\", "
               "\"values\": [\"here\"]}]}"),
         NULL},
    };
    struct runtime_host host = host_of();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_problem(&host, cases[i].spec, TOOL, cases[i].problem);
}

TEST_CASE(test_taints)
{
#define TOLERATES(fields) SPEC "\"tolerations\": [{" fields "}],"
    static const struct {
        const char *spec;
        bool tolerated;
    } cases[] = {
        {SPEC, false},
        {TOLERATES("\"operator\": \"Exists\""), true},
        {TOLERATES("\"key\": \"gpu\", \"operator\": \"Exists\""), true},
        {TOLERATES("\"key\": \"cpu\", \"operator\": \"Exists\""), false},
        {TOLERATES("\"key\": \"gpu\", \"value\": \"yes\""), true},
        {TOLERATES("\"key\": \"gpu\", \"operator\": \"Equal\", \"value\": \"yes\""), true},
        {TOLERATES("\"key\": \"gpu\", \"value\": \"no\""), false},
        {TOLERATES("\"key\": \"gpu\", \"operator\": \"Exists\", \"effect\": \"NoSchedule\""), true},
        {TOLERATES("\"key\": \"gpu\", \"operator\": \"Exists\", \"effect\": \"NoExecute\""), false},
        {TOLERATES("\"value\": \"yes\""), false},
    };
    struct runtime_host host = host_of();
    struct runtime_plan plan;
    host.taints = "gpu=yes:NoSchedule,old:PreferNoSchedule";
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_problem(&host, cases[i].spec, TOOL,
                      cases[i].tolerated ? NULL
                                         : "none is for this node's taint gpu=yes:NoSchedule");
    make(&host, TOLERATES("\"key\": \"gpu\", \"operator\": \"Exists\""), TOOL, &plan);
    assert_true(plan.preference < 0); /* of the other taint */
    runtime_plan_fini(&plan);
}

/* ---- what a plan has ---- */

static const char *
variable_of(const struct runtime_container *container, const char *name)
{
    size_t bytes = strlen(name);
    for (char **one = container->environment; *one != NULL; one++)
        if (strncmp(*one, name, bytes) == 0 && (*one)[bytes] == '=')
            return *one + bytes + 1;
    return "";
}

TEST_CASE(test_values)
{
    struct runtime_host host = host_of();
    struct runtime_plan plan;
    make(&host, SPEC,
         TOOL
         ", \"args\": [\"$(W)\", \"$(PATH)\"], \"resources\": {\"limits\": {\"memory\": \"1Ki\"}},"
         " \"env\": [{\"name\": \"E\"}, {\"name\": \"EARLY\", \"value\": \"$(W)\"},"
         " {\"name\": \"W\", \"valueFrom\": {\"secretKeyRef\": {\"name\": \"there\", \"key\": "
         "\"word\"}}},"
         " {\"name\": \"OPT\", \"valueFrom\": {\"secretKeyRef\": {\"name\": \"there\", \"key\": "
         "\"x\","
         " \"optional\": true}}},"
         " {\"name\": \"IP\", \"valueFrom\": {\"fieldRef\": {\"fieldPath\": \"status.podIP\"}}},"
         " {\"name\": \"MEM\", \"valueFrom\": {\"resourceFieldRef\": {\"resource\": "
         "\"requests.memory\"}}},"
         " {\"name\": \"CPU\", \"valueFrom\": {\"resourceFieldRef\": {\"resource\": "
         "\"limits.cpu\"}}},"
         " {\"name\": \"REQ\", \"valueFrom\": {\"resourceFieldRef\": {\"resource\": "
         "\"requests.cpu\"}}}]",
         &plan);
    assert_null(plan.problem);
    const struct runtime_container *made = &plan.containers[0];
    assert_string_equal(made->program, "/bin/sh");
    assert_string_equal(made->arguments[0], "sh");
    assert_string_equal(made->arguments[1], "hush");
    assert_string_equal(made->arguments[2], "$(PATH)"); /* no variable of the manifest */
    assert_string_equal(variable_of(made, "EARLY"), "$(W)");
    assert_string_equal(variable_of(made, "W"), "hush");
    assert_string_equal(variable_of(made, "IP"), "10.0.0.1");
    assert_string_equal(variable_of(made, "MEM"), "1024"); /* the limit */
    assert_string_equal(variable_of(made, "CPU"), "4");    /* the host's */
    assert_string_equal(variable_of(made, "REQ"), "0");
    assert_string_equal(variable_of(made, "PATH"), "/nowhere:/bin");
    assert_int_equal(made->memory_bytes, 1024);
    assert_string_equal(made->folder, "/");
    runtime_plan_fini(&plan);
}

/* References to references, each twice: 1 GiB in the end. */
TEST_CASE(test_texts_are_limited)
{
    struct runtime_host host = host_of();
    struct bytes text = {0};
    char one[80];
    bytes_put_text(&text, TOOL ", \"env\": [{\"name\": \"V0\", \"value\": \"x\"}");
    for (int i = 1; i <= 30; i++) {
        snprintf(one, sizeof(one), ", {\"name\": \"V%d\", \"value\": \"$(V%d)$(V%d)\"}", i, i - 1,
                 i - 1);
        bytes_put_text(&text, one);
    }
    bytes_put_text(&text, "]");
    bytes_put_char(&text, '\0');
    assert_false(text.failed);
    check_problem(&host, SPEC, text.data, "have more than 1 MiB");
    bytes_fini(&text);
    bytes_put_text(&text, TOOL ", \"env\": [{\"name\": \"V\"}");
    for (int i = 0; i < 256; i++)
        bytes_put_text(&text, ", {\"name\": \"V\"}");
    bytes_put_text(&text, "]");
    bytes_put_char(&text, '\0');
    assert_false(text.failed);
    check_problem(&host, SPEC, text.data, "env has more than 256 variables");
    bytes_fini(&text);
}

TEST_CASE(test_addresses_and_labels)
{
    struct runtime_host host = host_of();
    struct runtime_plan plan;
    struct runtime_plan same;
    make(&host,
         "\"grpcEndpoint\": \"unix:/a/m.sock\", \"grpcDataEndpoint\": \"unix:/a/d.sock\", "
         "\"replicas\": 3, \"storageHelper\": {\"disabled\": true}, \"protocolVersions\": "
         "[\"grpc-v2\"], \"supportedModelFormats\": [{\"name\": \"onnx\", \"version\": \"1\", "
         "\"autoSelect\": true}, {\"name\": \"onnx\", \"autoSelect\": true}, {\"name\": \"tf\"}],",
         TOOL, &plan);
    assert_string_equal(plan.management, "unix:/a/m.sock");
    assert_string_equal(plan.calls, "unix:/a/d.sock");
    assert_string_equal(plan.labels, "mt:onnx,mt:onnx:1,pv:grpc-v2,rt:r");
    assert_int_equal(plan.replicas, 3);
    assert_false(plan.fetches);
    make(&host, SPEC "\"grpcDataEndpoint\": \"port:8085\",", TOOL, &same);
    assert_string_equal(same.management, "127.0.0.1:8085");
    assert_null(same.calls);
    assert_true(same.fetches);
    assert_true(same.replicas == UINT64_MAX);
    assert_false(runtime_plan_same(&plan, &same));
    assert_true(runtime_plan_same(&same, &same));
    runtime_plan_fini(&plan);
    make(&host, SPEC "\"grpcDataEndpoint\": \"port:8085\",", TOOL ", \"args\": [\"x\"]", &plan);
    assert_false(runtime_plan_same(&plan, &same));
    runtime_plan_fini(&plan);
    runtime_plan_fini(&same);
    check_problem(&host, SPEC "\"supportedModelFormats\": [{\"name\": \"a,runs:other\"}],", TOOL,
                  "\"a,runs:other\" has a comma");
}

#define ADAPTED(more)                                                                              \
    "\"builtInAdapter\": {\"serverType\": \"triton\", \"memBufferBytes\": 1024" more               \
    "}, \"grpcDataEndpoint\": \"port:8001\","
#define REQUESTS(memory) ", \"resources\": {\"requests\": {\"memory\": \"" memory "\"}}"

TEST_CASE(test_adapter)
{
    struct runtime_host host = host_of();
    struct runtime_plan plan;
    struct runtime_plan changed;
    host.repository = "/var/models";
    make(&host, ADAPTED(", \"runtimeManagementPort\": 8001"),
         TOOL REQUESTS("8Mi") ", \"args\": [\"x=/models/_triton_models/,/models/_triton_models\", "
                              "\"/models/_mlserver_models\"], \"env\": [{\"name\": \"DIR\", "
                              "\"value\": \"/models/_triton_models\"}]",
         &plan);
    assert_null(plan.problem);
    assert_string_equal(plan.adapter, "triton");
    assert_string_equal(plan.management, "127.0.0.1:8001");
    assert_null(plan.calls);
    assert_int_equal(plan.capacity_bytes, (8 << 20) - 1024);
    assert_string_equal(plan.containers[0].arguments[1], "x=/var/models/,/var/models");
    assert_string_equal(plan.containers[0].arguments[2], "/models/_mlserver_models");
    assert_string_equal(variable_of(&plan.containers[0], "DIR"), "/var/models");
    assert_true(runtime_plan_same(&plan, &plan));
    make(&host, ADAPTED(", \"modelLoadingTimeoutMillis\": 1000"), TOOL REQUESTS("8Mi"), &changed);
    assert_false(runtime_plan_same(&plan, &changed));
    runtime_plan_fini(&changed);
    runtime_plan_fini(&plan);
    check_problem(&host, ADAPTED(""), TOOL, "container \"c\": resources: requests: memory must be");
    host.repository = NULL;
    host.no_repository = "no home";
    check_problem(&host, ADAPTED(""), TOOL REQUESTS("8Mi"), "no folder for models: no home");
    check_problem(&host, "\"builtInAdapter\": {\"serverType\": \"ovms\"},", TOOL,
                  "grpcEndpoint is missing");
}

/* The node is not the adapter of a server whose adapter is a container. */
TEST_CASE(test_an_adapter_of_its_own)
{
    struct runtime_host host = host_of();
    struct runtime_plan plan;
    make(&host, ADAPTED("") SPEC, TOOL "}, {\"name\": \"triton-adapter\", " TOOL, &plan);
    assert_null(plan.problem);
    assert_null(plan.adapter);
    assert_string_equal(plan.management, "127.0.0.1:8085");
    runtime_plan_fini(&plan);
}

TEST_MAIN()
