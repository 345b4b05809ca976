/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `mesh` and `tls` beyond single keys: what the store may be, what does not go with a mesh, where
 * an external runtime may be, and the environment of KServe ModelMesh's container: that it turns a
 * mesh on, that the file comes first, that every variable arrives or is refused by its name, and
 * that without MM_SERVICE_NAME and `mesh` none is looked at.
 */
#include "base/clock.h"
#include "test_config_rig.h"

#define WITH_MODELS                                                                                \
    "pipelines:\n- name: p\n  models: {root: r, memory_mib: 99}\n"                                 \
    "  stages: [{name: s, modelet: ./m.so}]\n"

#define WITH_TYPES                                                                                 \
    "pipelines:\n- name: p\n  models: {root: r, memory_mib: 99, types: [t, b]}\n"                  \
    "  stages: [{name: s, modelet: ./m.so}]\n"

static const char *const variables[] = {
    "MM_SERVICE_NAME",
    "TAS_SERVICE_NAME",
    "KV_STORE",
    "ZOOKEEPER",
    "MM_KVSTORE_PREFIX",
    "WKUBE_POD_NAME",
    "WKUBE_POD_IPADDR",
    "INTERNAL_GRPC_SOCKET_PATH",
    "INTERNAL_GRPC_PORT",
    "INTERNAL_SERVING_GRPC_SOCKET_PATH",
    "INTERNAL_SERVING_GRPC_PORT",
    "MM_LABELS",
    "MM_LOCATION",
    "MM_ZONE",
    "MM_TYPE_CONSTRAINTS",
    "MM_TYPE_CONSTRAINTS_PATH",
    "MM_DATAPLANE_CONFIG",
    "MM_DATAPLANE_CONFIG_PATH",
    "MM_SCALEUP_RPM_THRESHOLD",
    "MM_LOAD_FAILURE_EXPIRY_TIME_MS",
    "MM_DEFAULT_VMODEL_OWNER",
    "MM_SVC_GRPC_PORT",
    "TAS_SVC_GRPC_PORT",
    "MM_SVC_GRPC_MAX_MSG_SIZE",
    "SHUTDOWN_TIMEOUT_MS",
    "MM_PROBE_PORT",
    "MM_PRESTOP_WAIT_PORT",
    "MM_METRICS",
    "KV_READ_ONLY",
    "MM_ENABLE_SSL",
    "MM_TLS_KEY_CERT_PATH",
    "MM_TLS_PRIVATE_KEY_PATH",
    "MM_TLS_PRIVATE_KEY_PASSPHRASE",
    "MM_TLS_TRUST_CERT_PATH",
    "MM_TLS_CLIENT_AUTH",
    "MM_SVC_GRPC_PRIVATE_KEY_PATH",
    "TAS_SVC_GRPC_PRIVATE_KEY_PATH",
    "MM_AUTO_REGISTER_MODELS",
    "MM_AUTO_REGISTER_MODELS_PATH",
    "MM_AUTO_REGISTER_MODEL",
    "MM_AUTO_REGISTER_MODEL_PATH",
    "MM_PAYLOAD_PROCESSORS",
    "MM_PAYLOAD_PROCESSORS_THREADS",
    "MM_PAYLOAD_PROCESSORS_CAPACITY",
    "MM_LOG_EACH_INVOKE",
    "MM_LOG_REQUEST_HEADERS",
    "MM_SEND_DEST_ID",
    "MM_INFO_METRICS",
    "MM_MULTI_PARALLELISM",
    "MM_MAX_INFLIGHT_PER_MODEL_COPY",
    "MM_CONC_SCALEUP_BANDWIDTH_PCT",
    "MM_SVC_GRPC_MAX_HEADERS_SIZE",
    "MM_SVC_GRPC_MAX_CONNECTION_AGE_SECS",
    "MM_SVC_GRPC_MAX_CONNECTION_AGE_GRACE_SECS",
    "MM_LOG_PROMETHEUS_REQS",
    "MM_FAILFAST_UPGRADE_ENABLED",
    "BOOTSTRAP_CLEARANCE_PERIOD_MS",
};

static int
no_environment(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(variables); i++)
        unsetenv(variables[i]);
    return 0;
}

/* The text has one mistake, that part of which is said of the environment. */
static void
expect_refused(const char *text, const char *part)
{
    struct config config;
    struct config_errors errors;
    rig_parse(text, strlen(text), &config, &errors);
    if (errors.count != 1 || strstr(errors.lines[0], part) == NULL) {
        rig_print(&errors);
        fail_msg("wanted \"%s\"", part);
    }
    config_errors_free(&errors);
    config_free(&config);
}

TEST_CASE(test_off)
{
    for (size_t i = 2; i < ARRAY_COUNT(variables); i++) /* but for the two that turn it on */
        setenv(variables[i], "nonsense of all kinds", 1);
    struct config config = rig_good(WITH_MODELS);
    assert_false(config.mesh.on);
    assert_null(config.mesh.store);
    assert_int_equal(config.message_bytes_max, 16 << 20);
    config_free(&config);
}

TEST_CASE(test_defaults)
{
    char host[256];
    assert_int_equal(gethostname(host, sizeof(host)), 0);
    struct config config = rig_good("mesh: {}\n" WITH_MODELS);
    const struct config_mesh *mesh = &config.mesh;
    assert_true(mesh->on);
    assert_int_equal(mesh->store_kind, CONFIG_STORE_MEMORY);
    assert_null(mesh->store_place);
    assert_string_equal(mesh->prefix, "tas-runtime");
    assert_string_equal(mesh->service, "shoal");
    assert_string_equal(mesh->labels, "");
    assert_string_equal(mesh->names, "models");
    assert_null(mesh->vmodel_owner);
    assert_int_equal(mesh->scaleup_rpm, 2000);
    assert_int_equal(mesh->failure_expiry_ns, 900 * NS_PER_S);
    assert_int_equal(mesh->clearance_ns, 180 * NS_PER_S);
    assert_int_equal(mesh->scaleup_percent, 90);
    assert_int_equal(mesh->waiting_max, 0);
    assert_int_equal(mesh->store_waiting_max, 4096);
    assert_int_equal(config.probes.count + config.prestop.count, 0);
    assert_string_equal(config.pipelines[0].models.watch, "no");
    size_t bytes = strlen(host);
    assert_string_equal(mesh->instance, bytes > 12  ? host + bytes - 12
                                        : bytes > 0 ? host
                                                    : "shoal");
    config_free(&config);
}

TEST_CASE(test_stores)
{
    static const struct {
        const char *text;
        enum config_store kind;
        const char *place;
    } good[] = {
        {"file:x", CONFIG_STORE_FILE, "/etc/shoal/x"},
        {"file:/a b", CONFIG_STORE_FILE, "/a b"},
        {"etcd:http://a:1,b:2", CONFIG_STORE_ENDPOINTS, "http://a:1,b:2"},
        {"etcd:a:1;rootPrefix=/x", CONFIG_STORE_ENDPOINTS, "a:1;rootPrefix=/x"},
        {"etcd:/e/connection", CONFIG_STORE_ETCD_FILE, "/e/connection"},
        {"etcd:e.json", CONFIG_STORE_ETCD_FILE, "/etc/shoal/e.json"},
    };
    static const char *const bad[] = {"disk",   "file:",        "etcd:", "etcd:;rootPrefix=x",
                                      "Memory", "etcd:a:1, b:2"};
    char text[512];
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        snprintf(text, sizeof(text), "mesh: {instance: i, store: \"%s\"}\n" WITH_MODELS,
                 good[i].text);
        struct config config = rig_good(text);
        assert_int_equal(config.mesh.store_kind, good[i].kind);
        if (good[i].place[0] == '/' && good[i].text[5] != '/')
            assert_string_equal(strrchr(config.mesh.store_place, '/'), strrchr(good[i].place, '/'));
        else
            assert_string_equal(config.mesh.store_place, good[i].place);
        config_free(&config);
    }
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        snprintf(text, sizeof(text), "mesh: {instance: i, store: \"%s\"}\n" WITH_MODELS, bad[i]);
        rig_bad(text, 1, "`store`: ");
    }
}

TEST_CASE(test_exclusive_keys)
{
    rig_bad("mesh: {}\n" PIPELINES, 1, "`mesh`, but no pipeline has `models`");
    rig_bad("mesh: {}\npipelines:\n- name: p\n"
            "  models: {root: ., memory_mib: 1, default_size_mib: 1}\n" STAGES,
            4,
            "`default_size_mib` is 1 of `memory_mib` (1), and a mesh keeps a tenth of that free");
    rig_bad("mesh: {}\npipelines:\n- name: p\n"
            "  models: {root: ., memory_mib: 19, default_size_mib: 18}\n" STAGES,
            4, "Give `memory_mib` at least 20");
    rig_bad("mesh: {}\nruntime: [\"port:1\"]\n" WITH_MODELS, 2, "`runtime` and `mesh` exclude");
    rig_bad("mesh: {}\npipelines:\n- name: p\n"
            "  models: {root: r, memory_mib: 99, watch: yes}\n" STAGES,
            4, "`watch: yes` and `mesh` exclude");
    rig_bad("mesh: {store: memory, peers: [\"port:1\"]}\n" WITH_MODELS, 1, "`peers` needs etcd");
    rig_bad("mesh: {address: a}\n" WITH_MODELS, 1, "`address` needs etcd");
    rig_bad("mesh: {store_waiting_max: 1}\n" WITH_MODELS, 1, "`store_waiting_max` needs etcd");
    struct config config = rig_good("mesh: {labels: [b, 'a:1|x', b], type_constraints: t, "
                                    "dataplane: d, register: r}\n" WITH_MODELS);
    assert_string_equal(strrchr(config.mesh.dataplane, '/'), "/d");
    assert_string_equal(strrchr(config.mesh.registered, '/'), "/r");
    assert_string_equal(config.mesh.labels, "a:1|x,b");
    assert_string_equal(strrchr(config.mesh.type_constraints, '/'), "/t");
    config_free(&config);
}

TEST_CASE(test_images)
{
    rig_bad("mesh: {runtime: \"h:1\", images: {a: b}}\n", 1, "`runtime` and `images` exclude");
    rig_bad("mesh: {images: {a: b}}\n" WITH_MODELS, 3, "needs `types`");
    rig_bad("mesh: {run_commands: \"on\"}\n" WITH_MODELS, 1, "`run_commands` without `images`");
    rig_bad("mesh: {node_labels: [a=b]}\n" WITH_MODELS, 1, "`node_labels` without `images`");
    rig_bad("mesh: {images: {}, node_labels: [a]}\n", 1, "\"a\" must be KEY=VALUE");
    rig_bad("mesh: {images: {}, node_taints: [a=b]}\n", 1, "\"a=b\" must be KEY=VALUE:EFFECT");
    rig_bad("mesh: {images: {}, node_taints: [\"a:Never\"]}\n", 1, "must be KEY=VALUE:EFFECT");
    struct config config =
        rig_good("mesh: {images: {\"a.b/c:1\": \"/d e\"}, node_labels: [z=1, a=2],"
                 " node_taints: [\"k=v:NoSchedule\", \"k:NoExecute\"]}\n");
    assert_string_equal(config.mesh.images[0], "a.b/c:1=/d e");
    assert_null(config.mesh.images[1]);
    assert_string_equal(config.mesh.run_commands, "off");
    assert_string_equal(config.mesh.node_labels, "a=2,z=1");
    assert_string_equal(config.mesh.node_taints, "k:NoExecute,k=v:NoSchedule");
    config_free(&config);
}

TEST_CASE(test_external_runtime)
{
    static const char *const bad[] = {"8085", "port:8085",  "unix:", "h:0",
                                      "h:x",  "http://h:1", "a b:1"};
    char text[512];
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        snprintf(text, sizeof(text), "mesh: {runtime: \"%s\"}\n", bad[i]);
        rig_bad(text, 1, "`runtime`: ");
        snprintf(text, sizeof(text), "mesh: {runtime: \"h:1\", runtime_calls: \"%s\"}\n", bad[i]);
        rig_bad(text, 1, "`runtime_calls`: ");
    }
    snprintf(text, sizeof(text), "mesh: {runtime: \"unix:/%0120d\"}\n", 1);
    rig_bad(text, 1, "the path of a socket must have at most");
    rig_bad("mesh: {runtime_calls: \"h:1\"}\n" WITH_MODELS, 1, "`runtime_calls` without `runtime`");
    rig_bad("mesh: {runtime: \"h:1\"}\n" WITH_MODELS, 3, "a runtime of `mesh` needs `types`");
    rig_bad("mesh: {runtime: \"h:1\", runtime_types: [a]}\n", 1,
            "is for a node that has `runtime` and");
    rig_bad("mesh: {runtime_types: [a]}\n" WITH_MODELS, 1, "is for a node that has `runtime` and");
    rig_bad("mesh: {runtime: \"h:1\", runtime_types: [a, b, c]}\n" WITH_TYPES, 1,
            "\"b\" is in the `types` of a pipeline, too");
    rig_bad("mesh: {adapter: {server_type: triton, model_repository: r, memory_mib: "
            "999}}\n" WITH_MODELS,
            1, "`adapter` without `runtime`");
    rig_bad("mesh: {runtime: \"h:1\", adapter: {server_type: triton, model_repository: r, "
            "memory_mib: 129}}\n",
            1, "must hold `buffer_mib` and two models");
    rig_bad("models_cache_gib: 0\nfiles_root: f\nmesh: {runtime: \"h:1\"}\n", 2,
            "`files_root` without `models_cache_gib`");
    struct config config =
        rig_good("files_root: f\nmesh: {runtime: \"h:1\", adapter: {"
                 "server_type: mlserver, model_repository: r, memory_mib: 130}}\n");
    assert_string_equal(strrchr(config.mesh.adapter.repository, '/'), "/r");
    assert_int_equal(config.mesh.adapter.buffer_bytes, 128 << 20);
    config_free(&config);
    config = rig_good("mesh: {runtime: \"[::1]:8085\", runtime_calls: unix:a}\n");
    assert_int_equal(config.pipeline_count, 0);
    assert_string_equal(config.mesh.runtime, "[::1]:8085");
    assert_memory_equal(config.mesh.runtime_calls, "unix:/", 6);
    assert_string_equal(strrchr(config.mesh.runtime_calls, '/'), "/a");
    assert_null(config.mesh.runtime_types);
    config_free(&config);
    config = rig_good("mesh: {runtime: \"h:1\", runtime_types: [e, d, e]}\n" WITH_TYPES);
    assert_string_equal(config.mesh.runtime_types, "d,e");
    config_free(&config);
}

TEST_CASE(test_environment_of_a_runtime)
{
    setenv("MM_SERVICE_NAME", "mine", 1);
    setenv("INTERNAL_GRPC_PORT", "8086", 1);
    setenv("INTERNAL_SERVING_GRPC_SOCKET_PATH", "/tmp/mmesh/grpc.sock", 1);
    struct config config = rig_good("front_threads: 2\n");
    assert_string_equal(config.mesh.runtime, "localhost:8086");
    assert_string_equal(config.mesh.runtime_calls, "unix:/tmp/mmesh/grpc.sock");
    config_free(&config);
    setenv("INTERNAL_GRPC_PORT", "none", 1);
    expect_refused("front_threads: 2\n", "localhost:none");
}

/* Where that container looks if nothing is said, and only if nothing else could load models. */
TEST_CASE(test_a_runtime_that_nobody_has_named)
{
    setenv("MM_SERVICE_NAME", "mine", 1);
    struct config config = rig_good("front_threads: 2\n");
    assert_string_equal(config.mesh.runtime, "unix:/tmp/mmesh/grpc.sock");
    assert_string_equal(config.mesh.runtime_else, "localhost:8085");
    assert_null(config.mesh.runtime_calls);
    config_free(&config);
    setenv("INTERNAL_SERVING_GRPC_PORT", "8001", 1);
    config = rig_good("mesh: {service: ours}\n");
    assert_string_equal(config.mesh.runtime, "unix:/tmp/mmesh/grpc.sock");
    assert_string_equal(config.mesh.runtime_calls, "localhost:8001");
    assert_string_equal(config.probes.items[0],
                        "port:8089"); /* with any other content of the file */
    assert_string_equal(config.prestop.items[0], "port:8090");
    config_free(&config);
    unsetenv("INTERNAL_SERVING_GRPC_PORT");
    config = rig_good(WITH_MODELS);
    assert_null(config.mesh.runtime);
    config_free(&config);
    config = rig_good("mesh: {runtime: 'h:1'}\n");
    assert_string_equal(config.mesh.runtime, "h:1");
    assert_null(config.mesh.runtime_else);
    config_free(&config);
    unsetenv("MM_SERVICE_NAME");
    rig_bad("mesh: {}\n" PIPELINES, 1, "`mesh`, but no pipeline has `models`");
}

TEST_CASE(test_environment_alone)
{
    setenv("MM_SERVICE_NAME", "mine", 1);
    setenv("KV_STORE", "etcd:http://e:2379", 1);
    setenv("MM_KVSTORE_PREFIX", "mm", 1);
    setenv("WKUBE_POD_NAME", "modelmesh-serving-triton-5d4f-abcde", 1);
    setenv("WKUBE_POD_IPADDR", "10.1.2.3", 1);
    setenv("MM_LABELS", "mt:b:1,mt:a", 1);
    setenv("MM_LOCATION", "here", 1);
    setenv("MM_ZONE", "z", 1);
    setenv("MM_TYPE_CONSTRAINTS", "{\"t\": {}}", 1);
    setenv("MM_DATAPLANE_CONFIG_PATH", "/d", 1);
    setenv("MM_SCALEUP_RPM_THRESHOLD", "77", 1);
    setenv("MM_LOAD_FAILURE_EXPIRY_TIME_MS", "5000", 1);
    setenv("BOOTSTRAP_CLEARANCE_PERIOD_MS", "7000", 1);
    setenv("MM_FAILFAST_UPGRADE_ENABLED", "true", 1);
    setenv("MM_CONC_SCALEUP_BANDWIDTH_PCT", "70", 1);
    setenv("MM_MAX_INFLIGHT_PER_MODEL_COPY", "5", 1);
    setenv("MM_DEFAULT_VMODEL_OWNER", "me", 1);
    setenv("MM_SVC_GRPC_PORT", "8099", 1);
    setenv("MM_SVC_GRPC_MAX_MSG_SIZE", "12345", 1);
    setenv("SHUTDOWN_TIMEOUT_MS", "90000", 1);
    setenv("KV_READ_ONLY", "false", 1);
    setenv("MM_PROBE_PORT", "NONE", 1);
    setenv("MM_METRICS", "prometheus:port=2113;scheme=http;fq_names=true;mem_detail=all", 1);
    struct config config = rig_good(WITH_MODELS);
    const struct config_mesh *mesh = &config.mesh;
    assert_true(mesh->on);
    assert_string_equal(mesh->service, "mine");
    assert_int_equal(mesh->store_kind, CONFIG_STORE_ENDPOINTS);
    assert_string_equal(mesh->store_place, "http://e:2379");
    assert_string_equal(mesh->prefix, "mm");
    assert_string_equal(mesh->instance, "n-5d4f-abcde");
    assert_string_equal(mesh->address, "10.1.2.3");
    assert_string_equal(mesh->labels, "mt:a,mt:b:1");
    assert_string_equal(mesh->location, "here");
    assert_string_equal(mesh->zone, "z");
    assert_string_equal(mesh->type_constraints, "{\"t\": {}}");
    assert_string_equal(mesh->dataplane, "/d");
    assert_int_equal(mesh->scaleup_rpm, 77);
    assert_int_equal(mesh->failure_expiry_ns, 5 * NS_PER_S);
    assert_int_equal(mesh->clearance_ns, 7 * NS_PER_S);
    assert_int_equal(mesh->scaleup_percent, 70);
    assert_int_equal(mesh->waiting_max, 5);
    assert_string_equal(mesh->vmodel_owner, "me");
    assert_int_equal(config.listen.count, 1);
    assert_string_equal(config.listen.items[0], "port:8099");
    assert_int_equal(config.message_bytes_max, 12345);
    assert_int_equal(config.drain_timeout_ns, 85 * NS_PER_S);
    assert_int_equal(config.probes.count, 0);
    assert_string_equal(config.prestop.items[0], "port:8090");
    assert_int_equal(config.metrics.count, 1);
    assert_string_equal(config.metrics.items[0], "port:2113");
    assert_true(mesh->metrics_fq_names && !mesh->metrics_tls && !mesh->metrics_per_model);
    config_free(&config);
}

/* The other way to say what test_environment_alone says. */
TEST_CASE(test_other_names)
{
    setenv("TAS_SERVICE_NAME", "old", 1);
    setenv("MM_TYPE_CONSTRAINTS_PATH", "/t", 1);
    setenv("MM_DATAPLANE_CONFIG", "{}", 1);
    setenv("INTERNAL_GRPC_SOCKET_PATH", "/r.sock", 1);
    setenv("TAS_SVC_GRPC_PORT", "8098", 1);
    setenv("MM_PROBE_PORT", "81", 1);
    setenv("MM_PRESTOP_WAIT_PORT", "82", 1);
    setenv("MM_FAILFAST_UPGRADE_ENABLED", "false", 1);
    setenv("BOOTSTRAP_CLEARANCE_PERIOD_MS", "7000", 1);
    setenv("MM_MAX_INFLIGHT_PER_MODEL_COPY", "-1", 1);
    setenv("SHUTDOWN_TIMEOUT_MS", "6999", 1);
    struct config config = rig_good("front_threads: 2\n");
    const struct config_mesh *mesh = &config.mesh;
    assert_int_equal(mesh->clearance_ns, 0);
    assert_int_equal(config.drain_timeout_ns, 2 * NS_PER_S);
    assert_int_equal(mesh->waiting_max, 65536);
    assert_true(mesh->on);
    assert_string_equal(mesh->service, "old");
    assert_string_equal(mesh->type_constraints, "/t");
    assert_string_equal(mesh->dataplane, "{}");
    assert_string_equal(mesh->runtime, "unix:/r.sock");
    assert_string_equal(config.listen.items[0], "port:8098");
    assert_string_equal(config.probes.items[0], "port:81");
    assert_string_equal(config.prestop.items[0], "port:82");
    config_free(&config);
    setenv("MM_SERVICE_NAME", "new", 1);
    setenv("MM_SVC_GRPC_PORT", "8099", 1);
    config = rig_good("front_threads: 2\n");
    assert_string_equal(config.mesh.service, "new");
    assert_string_equal(config.listen.items[0], "port:8099");
    config_free(&config);
    unsetenv("MM_SERVICE_NAME");
    unsetenv("INTERNAL_GRPC_SOCKET_PATH");
    unsetenv("MM_PROBE_PORT");
    config = rig_good("front_threads: 2\n"); /* the old name says where a runtime may be, too */
    assert_string_equal(config.mesh.runtime, "unix:/tmp/mmesh/grpc.sock");
    assert_string_equal(config.probes.items[0], "port:8089");
    config_free(&config);
}

/* Variables without meaning here are reported, unless they ask for nothing. */
TEST_CASE(test_passed_over)
{
    size_t position = 0;
    const char *name = NULL;
    const char *instead = NULL;
    setenv("MM_SERVICE_NAME", "mine", 1);
    setenv("MM_LOG_EACH_INVOKE", "false", 1);
    setenv("MM_MULTI_PARALLELISM", "0", 1);
    setenv("MM_INFO_METRICS", "", 1);
    setenv("INTERNAL_GRPC_PORT", "8085", 1);
    struct config config = rig_good("front_threads: 2\n");
    assert_false(config_passed_over(&config, &position, &name, &instead));
    setenv("MM_PAYLOAD_PROCESSORS", "http://p", 1);
    setenv("MM_SEND_DEST_ID", "true", 1);
    position = 0;
    assert_true(config_passed_over(&config, &position, &name, &instead));
    assert_string_equal(name, "MM_PAYLOAD_PROCESSORS");
    assert_non_null(strstr(instead, "traces"));
    assert_true(config_passed_over(&config, &position, &name, &instead));
    assert_string_equal(name, "MM_SEND_DEST_ID");
    assert_false(config_passed_over(&config, &position, &name, &instead));
    config_free(&config);
}

/* That deployment names a runtime always; where pipelines load all models there is nothing for it.
 */
TEST_CASE(test_a_runtime_that_is_not_needed)
{
    size_t position = 0;
    const char *name = NULL;
    const char *instead = NULL;
    setenv("MM_SERVICE_NAME", "mine", 1);
    setenv("INTERNAL_GRPC_PORT", "8085", 1);
    setenv("INTERNAL_SERVING_GRPC_PORT", "8001", 1);
    struct config config = rig_good(WITH_MODELS);
    assert_null(config.mesh.runtime);
    assert_null(config.mesh.runtime_calls);
    assert_true(config_passed_over(&config, &position, &name, &instead));
    assert_string_equal(name, "INTERNAL_GRPC_PORT");
    assert_true(config_passed_over(&config, &position, &name, &instead));
    assert_string_equal(name, "INTERNAL_SERVING_GRPC_PORT");
    assert_false(config_passed_over(&config, &position, &name, &instead));
    config_free(&config);
    config = rig_good(WITH_TYPES);
    assert_string_equal(config.mesh.runtime, "localhost:8085");
    assert_string_equal(config.mesh.runtime_calls, "localhost:8001");
    config_free(&config);
    rig_bad("mesh: {runtime: \"h:1\"}\n" WITH_MODELS, 3, "a runtime of `mesh` needs `types`");
}

TEST_CASE(test_metrics_of_the_environment)
{
    static const struct {
        const char *text;
        const char *address; /* NULL: none */
        bool fq_names, tls, per_model;
    } good[] = {
        {"disabled", NULL, false, false, false},
        {"prometheus", "port:2112", false, true, false},
        {"prometheus:", "port:2112", false, true, false},
        {"prometheus:scheme=http", "port:2112", false, false, false},
        {"prometheus:port=9;scheme=https;per_model_metrics=true", "port:9", false, true, true},
        {"prometheus:fq_names=false;per_model_metrics=false;port=8", "port:8", false, true, false},
    };
    setenv("MM_SERVICE_NAME", "mine", 1);
    for (size_t i = 0; i < ARRAY_COUNT(good); i++) {
        setenv("MM_METRICS", good[i].text, 1);
        struct config config = rig_good(WITH_MODELS);
        assert_int_equal(config.metrics.count, good[i].address != NULL);
        if (good[i].address != NULL)
            assert_string_equal(config.metrics.items[0], good[i].address);
        assert_int_equal(config.mesh.metrics_fq_names, good[i].fq_names);
        assert_int_equal(config.mesh.metrics_tls, good[i].tls);
        assert_int_equal(config.mesh.metrics_per_model, good[i].per_model);
        config_free(&config);
    }
    struct config config = rig_good("metrics: port:1\n" WITH_MODELS);
    assert_string_equal(config.metrics.items[0], "port:1");
    assert_false(config.mesh.metrics_tls);
    config_free(&config);
}

TEST_CASE(test_the_file_comes_first)
{
    setenv("KV_STORE", "nonsense", 1);
    setenv("MM_SERVICE_NAME", "theirs", 1);
    setenv("MM_SCALEUP_RPM_THRESHOLD", "77", 1);
    setenv("MM_SVC_GRPC_PORT", "8099", 1);
    struct config config = rig_good("mesh: {store: memory, service: ours}\n"
                                    "listen: [\"port:1\"]\nprobes: \"port:2\"\n" WITH_MODELS);
    assert_string_equal(config.mesh.service, "ours");
    assert_int_equal(config.mesh.store_kind, CONFIG_STORE_MEMORY);
    assert_int_equal(config.mesh.scaleup_rpm, 77);
    assert_string_equal(config.listen.items[0], "port:1");
    assert_int_equal(config.probes.count, 1);
    assert_string_equal(config.probes.items[0], "port:2");
    config_free(&config);
}

TEST_CASE(test_refused)
{
    static const struct {
        const char *name, *value, *part;
    } bad[] = {
        {"KV_STORE", "zookeeper:z", "`store`: \"zookeeper:z\" is not a store"},
        {"ZOOKEEPER", "z:1", "environment variable ZOOKEEPER: refused"},
        {"MM_SCALEUP_RPM_THRESHOLD", "9",
         "environment variable MM_SCALEUP_RPM_THRESHOLD: `scaleup_rpm` is out of range"},
        {"MM_LABELS", "a,b c", "environment variable MM_LABELS: `labels` must list labels"},
        {"MM_SVC_GRPC_PORT", "grpc", "environment variable MM_SVC_GRPC_PORT: `listen`: the port"},
        {"MM_SVC_GRPC_MAX_MSG_SIZE", "16M", "MM_SVC_GRPC_MAX_MSG_SIZE: must be a number of bytes"},
        {"MM_SVC_GRPC_MAX_MSG_SIZE", "0", "must be a number of bytes"},
        {"SHUTDOWN_TIMEOUT_MS", "soon", "environment variable SHUTDOWN_TIMEOUT_MS: "},
        {"WKUBE_POD_NAME", "a/b", "environment variable WKUBE_POD_NAME: `instance` must be a name"},
        {"KV_READ_ONLY", "true", "environment variable KV_READ_ONLY: refused"},
        {"MM_METRICS", "statsd:port=8126", "environment variable MM_METRICS: must be `prometheus`"},
        {"MM_METRICS", "prometheus:port=x", "environment variable MM_METRICS: `metrics`: the port"},
        {"MM_METRICS", "prometheus:scheme=ftp", "\"scheme\": must be port, scheme"},
        {"MM_METRICS", "prometheus:what", "\"what\": must be port"},
        {"MM_METRICS", "prometheus:fq_names=yes", "fq_names: must be `true` or `false`"},
        {"MM_FAILFAST_UPGRADE_ENABLED", "yes", "must be `true` or `false`"},
        {"MM_CONC_SCALEUP_BANDWIDTH_PCT", "9", "`scaleup_percent` is out of range"},
        {"MM_MAX_INFLIGHT_PER_MODEL_COPY", "-1x", "MM_MAX_INFLIGHT_PER_MODEL_COPY: `waiting_max`"},
        {"BOOTSTRAP_CLEARANCE_PERIOD_MS", "-1", "BOOTSTRAP_CLEARANCE_PERIOD_MS: `clearance_ms`"},
        {"MM_ENABLE_SSL", "true", "environment variable MM_ENABLE_SSL: refused"},
        {"MM_TLS_KEY_CERT_PATH", "/c", "but no MM_TLS_PRIVATE_KEY_PATH"},
        {"MM_TLS_PRIVATE_KEY_PATH", "/k", "but no MM_TLS_KEY_CERT_PATH"},
        {"MM_TLS_PRIVATE_KEY_PASSPHRASE", "p",
         "environment: MM_TLS_PRIVATE_KEY_PASSPHRASE, but no MM_TLS_KEY_CERT_PATH and "},
        {"MM_TLS_TRUST_CERT_PATH", "/a,/b", "MM_TLS_TRUST_CERT_PATH: several files"},
        {"MM_TLS_CLIENT_AUTH", "REQUIRE", "without them there is no TLS"},
        {"MM_TLS_CLIENT_AUTH", "maybe", "`client_auth` must be a word"},
        {"MM_SVC_GRPC_PRIVATE_KEY_PATH", "/k", "it means TLS between nodes, too"},
        {"TAS_SVC_GRPC_PRIVATE_KEY_PATH", "/k", "it means TLS between nodes, too"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        setenv(bad[i].name, bad[i].value, 1);
        expect_refused("mesh: {}\n" WITH_MODELS, bad[i].part);
        unsetenv(bad[i].name);
    }
}

/* One of four, as a text or a file; the file's key comes first. */
TEST_CASE(test_registered)
{
    static const char *const names[] = {"MM_AUTO_REGISTER_MODELS", "MM_AUTO_REGISTER_MODEL",
                                        "MM_AUTO_REGISTER_MODELS_PATH",
                                        "MM_AUTO_REGISTER_MODEL_PATH"};
    static const char *const texts[] = {"[]", " \n{}", "/m", "[{}]"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        for (size_t j = 0; j < ARRAY_COUNT(texts); j++) {
            setenv(names[i], texts[j], 1);
            struct config config = rig_good("mesh: {}\n" WITH_MODELS);
            assert_string_equal(config.mesh.registered, texts[j]);
            config_free(&config);
        }
        struct config config = rig_good("mesh: {register: '[1]'}\n" WITH_MODELS);
        assert_string_equal(config.mesh.registered, "[1]");
        config_free(&config);
        for (size_t j = i + 1; j < ARRAY_COUNT(names); j++) {
            setenv(names[j], "[]", 1);
            expect_refused("mesh: {}\n" WITH_MODELS, names[j]);
            expect_refused("mesh: {}\n" WITH_MODELS, ": another one sets `register` already");
            unsetenv(names[j]);
        }
        unsetenv(names[i]);
    }
    struct config config = rig_good("mesh: {}\n" WITH_MODELS);
    assert_null(config.mesh.registered);
    config_free(&config);
}

TEST_CASE(test_environment_of_tls)
{
    setenv("MM_TLS_KEY_CERT_PATH", "/t/tls.crt", 1);
    setenv("MM_TLS_PRIVATE_KEY_PATH", "/t/tls.key", 1);
    setenv("MM_ENABLE_SSL", "false", 1);
    struct config config = rig_good("mesh: {}\n" WITH_MODELS);
    assert_string_equal(config.tls.certificate, "/t/tls.crt");
    assert_string_equal(config.tls.key, "/t/tls.key");
    assert_null(config.tls.ca);
    assert_null(config.tls.key_password);
    assert_string_equal(config.tls.client_auth, "none");
    config_free(&config);
    setenv("MM_TLS_PRIVATE_KEY_PASSPHRASE", "secret", 1);
    config = rig_good("mesh: {}\n" WITH_MODELS);
    assert_string_equal(config.tls.key_password, "secret");
    assert_null(config.tls.key_password_file);
    assert_string_equal(getenv("MM_TLS_PRIVATE_KEY_PASSPHRASE"), ""); /* nobody else finds it */
    config_free(&config);
    config = rig_good("mesh: {}\n" WITH_MODELS);
    assert_null(config.tls.key_password);
    config_free(&config);
    setenv("MM_TLS_TRUST_CERT_PATH", "/t/ca.crt", 1); /* which asks nobody for anything yet */
    config = rig_good("mesh: {}\n" WITH_MODELS);
    assert_string_equal(config.tls.ca, "/t/ca.crt");
    assert_string_equal(config.tls.client_auth, "none");
    config_free(&config);
    static const char *const words[][2] = {{"require", "required"},
                                           {"REQUIRE", "required"},
                                           {"Optional", "optional"},
                                           {"NONE", "none"}};
    for (size_t i = 0; i < ARRAY_COUNT(words); i++) {
        setenv("MM_TLS_CLIENT_AUTH", words[i][0], 1);
        config = rig_good("mesh: {}\n" WITH_MODELS);
        assert_string_equal(config.tls.client_auth, words[i][1]);
        config_free(&config);
    }
    setenv("MM_TLS_CLIENT_AUTH", "REQUIRE", 1);
    unsetenv("MM_TLS_TRUST_CERT_PATH");
    expect_refused("mesh: {}\n" WITH_MODELS, "without `client_ca` (MM_TLS_TRUST_CERT_PATH)");
    /* the file's, as a whole */
    setenv("MM_TLS_PRIVATE_KEY_PASSPHRASE", "p", 1);
    setenv("MM_ENABLE_SSL", "true", 1);
    config =
        rig_good("mesh: {instance: i, store: 'etcd:e:1', tls: {certificate: a, key: b, ca: c}}\n"
                 "tls: {certificate: /own.pem, key: own.key}\n" WITH_MODELS);
    assert_string_equal(config.tls.certificate, "/own.pem");
    assert_string_equal(strrchr(config.tls.key, '/'), "/own.key");
    assert_null(config.tls.client_auth);
    assert_null(config.tls.key_password);
    assert_string_equal(getenv("MM_TLS_PRIVATE_KEY_PASSPHRASE"), "");
    config_free(&config);
}

TEST_CASE(test_environment_secret_is_not_reported)
{
    static char secret[65538]; /* more than is taken */
    memset(secret, 's', sizeof(secret) - 1);
    setenv("MM_TLS_KEY_CERT_PATH", "/t/tls.crt", 1);
    setenv("MM_TLS_PRIVATE_KEY_PATH", "/t/tls.key", 1);
    setenv("MM_TLS_PRIVATE_KEY_PASSPHRASE", secret, 1);
    struct config config;
    struct config_errors errors;
    rig_parse("mesh: {}\n" WITH_MODELS, strlen("mesh: {}\n" WITH_MODELS), &config, &errors);
    assert_int_equal(errors.count, 1);
    assert_non_null(strstr(errors.lines[0], "MM_TLS_PRIVATE_KEY_PASSPHRASE: more than 65536"));
    assert_null(strstr(errors.lines[0], "sss"));
    config_errors_free(&errors);
    config_free(&config);
}

TEST_CASE(test_tls)
{
    struct config config =
        rig_good("tls: {certificate: a.pem, key: /k/a.key, client_ca: c, client_auth: optional,\n"
                 "      key_password_file: a.word}\n"
                 "mesh:\n  instance: i\n  store: etcd:e:1\n"
                 "  tls: {certificate: n.pem, key: n.key, ca: /c.pem, peer_name: mesh.example,\n"
                 "        key_password_file: /n.word}\n" WITH_MODELS);
    assert_string_equal(strrchr(config.tls.certificate, '/'), "/a.pem");
    assert_string_equal(config.tls.key, "/k/a.key");
    assert_string_equal(strrchr(config.tls.ca, '/'), "/c");
    assert_string_equal(config.tls.client_auth, "optional");
    assert_string_equal(strrchr(config.mesh.tls.certificate, '/'), "/n.pem");
    assert_string_equal(config.mesh.tls.ca, "/c.pem");
    assert_string_equal(strrchr(config.tls.key_password_file, '/'), "/a.word");
    assert_true(config.tls.key_password_file[0] == '/');
    assert_string_equal(config.mesh.tls.key_password_file, "/n.word");
    assert_string_equal(config.mesh.tls.peer_name, "mesh.example");
    config_free(&config);
    config = rig_good(PIPELINES);
    assert_null(config.tls.certificate);
    assert_null(config.mesh.tls.certificate);
    config_free(&config);
    rig_bad("tls: yes\n" PIPELINES, 1, "`tls` must be a map");
    rig_bad("tls:\n  certificate: a\n" PIPELINES, 2, "`key` is missing");
    rig_bad("tls: {certificate: a, key: b, ca: c}\n" PIPELINES, 1,
            "is not a key of `tls` at the top");
    rig_bad("tls: {certificate: a, key: b, key_password: secret}\n" PIPELINES, 1,
            "is not a key of `tls` at the top: did you mean `key_password_file`?");
    rig_bad("tls: {certificate: a, key: b, client_auth: required}\n" PIPELINES, 1,
            "without `client_ca`");
    rig_bad("tls: {certificate: a, key: b, client_ca: c, client_auth: yes}\n" PIPELINES, 1,
            "`client_auth` must be a word (required|optional|none)");
    rig_bad("mesh: {instance: i, store: 'etcd:e:1', tls: {certificate: a, key: b}}\n" WITH_MODELS,
            1, "`ca` is missing: the mesh's `tls` needs it");
    rig_bad("mesh: {tls: {certificate: a, key: b, ca: c}}\n" WITH_MODELS, 1, "`tls` needs etcd");
}

int
main(void)
{
    no_environment(NULL);
    return TEST_RUN(.teardown = no_environment);
}
