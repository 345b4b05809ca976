/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small parts of a mesh's node, each by itself: where etcd is, as text and as file; which address
 * is published; whose a model is, by its type; tags of calls that wait, also used by several
 * threads at once.
 *
 * ctest: presets=dev,tsan because tags are taken by several threads
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../test.h"
#include "base/check.h"
#include "coordinator/config/config_types.h"
#include "coordinator/mesh/mesh_address.h"
#include "coordinator/mesh/mesh_pending.h"
#include "coordinator/mesh/mesh_store.h"
#include "coordinator/mesh/mesh_types.h"
#include "mesh/core/cluster/pool_names.h"

/* ---- where etcd is ---- */

TEST_CASE(test_endpoints)
{
    struct etcd_place place;
    struct error error = ERROR_NONE;
    assert_int_equal(
        etcd_place_parse("http://a:1, b:2,https://[::1]:3;rootPrefix=/x", &place, &error),
        STATUS_OK);
    assert_int_equal(place.endpoint_count, 3);
    assert_string_equal(place.endpoints[0], "http://a:1");
    assert_string_equal(place.endpoints[1], "http://b:2");
    assert_string_equal(place.endpoints[2], "https://[::1]:3");
    assert_string_equal(place.root, "/x");
    assert_null(place.user);
    etcd_place_fini(&place);
    static const char *const bad[] = {"a:1,,b:2", "", "a:1,", "a:1;prefix=x",
                                      "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        assert_int_equal(etcd_place_parse(bad[i], &place, &error), STATUS_INVALID_ARGUMENT);
        etcd_place_fini(&place);
    }
}

static const char file_path[] = "/tmp/shoal-test-mesh-edges.json";

static enum status
load(const char *text, struct etcd_place *place, struct error *error)
{
    char path[64];
    snprintf(path, sizeof(path), "%s.%d", file_path, (int)getpid());
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    fclose(file);
    *error = ERROR_NONE;
    enum status status = etcd_place_load(path, place, error);
    unlink(path);
    return status;
}

TEST_CASE(test_file)
{
    struct etcd_place place;
    struct error error;
    assert_int_equal(load("{\"endpoints\": \"a:1,http://b:2\", \"userid\": \"u\", \"password\": "
                          "\"p\", \"root_prefix\": \"/r\", \"certificate_file\": \"ca.pem\", "
                          "\"client_key_file\": \"/k.pem\", \"more\": 1}",
                          &place, &error),
                     STATUS_OK);
    assert_string_equal(place.endpoints[0], "https://a:1"); /* there is a certificate */
    assert_string_equal(place.endpoints[1], "http://b:2");
    assert_string_equal(place.user, "u");
    assert_string_equal(place.password, "p");
    assert_string_equal(place.root, "/r");
    assert_string_equal(place.ca_file, "/tmp/ca.pem");
    assert_string_equal(place.key_file, "/k.pem");
    assert_null(place.cert_file);
    etcd_place_fini(&place);
    assert_int_equal(load("{\"endpoints\": \"a:1\", \"certificate\": \"-----ca\", "
                          "\"client_certificate\": \"-----own\", \"client_key\": \"-----key\"}",
                          &place, &error),
                     STATUS_OK);
    assert_string_equal(place.endpoints[0], "https://a:1");
    assert_string_equal(place.ca_pem, "-----ca");
    assert_string_equal(place.cert_pem, "-----own");
    assert_string_equal(place.key_pem, "-----key");
    assert_null(place.ca_file);
    etcd_place_fini(&place);
    assert_int_equal(load("{\"endpoints\": \"a:1\", \"tls_mode\": \"TLS\"}", &place, &error),
                     STATUS_OK);
    assert_string_equal(place.endpoints[0], "https://a:1");
    assert_string_equal(place.root, "");
    etcd_place_fini(&place);
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"", "line "},
        {"[]", "not a JSON object"},
        {"{}", "\"endpoints\" must be a string"},
        {"{\"endpoints\": [\"a\"]}", "\"endpoints\" must be a string"},
        {"{\"endpoints\": \"\"}", "an endpoint is empty"},
        {"{\"endpoints\": \"a:1\", \"userid\": 5}", "\"userid\" must be a string"},
        {"{\"endpoints\": \"a:1\", \"override_authority\": \"b\"}",
         "\"override_authority\" is not taken"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++) {
        assert_int_equal(load(bad[i].text, &place, &error), STATUS_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, bad[i].part));
        assert_non_null(strstr(error.text, file_path));
        etcd_place_fini(&place);
    }
    assert_int_equal(etcd_place_load("/nowhere/etcd.json", &place, &error),
                     STATUS_INVALID_ARGUMENT);
    assert_string_equal(error.text,
                        "/nowhere/etcd.json: it cannot be opened: No such file or directory");
    etcd_place_fini(&place);
}

/* ---- what is published ---- */

TEST_CASE(test_addresses)
{
    static const struct {
        const char *listen, *address;
        int port;
        const char *reported; /* NULL: refused */
        const char *store;    /* NULL: memory */
    } cases[] = {
        {"port:8080", "10.1.2.3", 8080, "10.1.2.3:8080", NULL},
        {"port:0", "10.1.2.3", 41234, "10.1.2.3:41234", NULL},
        {"port:8080", "pod.svc:99", 8080, "pod.svc:99", NULL},
        {"port:8080", "fe80::1", 8080, "[fe80::1]:8080", NULL},
        {"port:8080", "[fe80::1]:7", 8080, "[fe80::1]:7", NULL},
        {"port:8080", "[fe80::1]", 8080, "[fe80::1]:8080", NULL},
        {"127.0.0.1:0", NULL, 41234, "127.0.0.1:41234", NULL},
        {"[::1]:8080", NULL, 8080, "[::1]:8080", NULL},
        {"127.0.0.1:0", NULL, 9, "127.0.0.1:9", "http://localhost:1,http://[::1]:2;rootPrefix=/x"},
        {"127.0.1.1:0", NULL, 9, NULL, "http://192.0.2.1:2379"},
        {"[::1]:0", NULL, 9, NULL, "http://127.0.0.1:1,https://192.0.2.1:2379"},
        {"localhost:0", NULL, 9, NULL, "192.0.2.1"},
        {"192.0.2.2:0", NULL, 9, "192.0.2.2:9", "192.0.2.1:2379"},
        {"port:0", "127.0.0.1", 9, "127.0.0.1:9", "http://192.0.2.1:2379"},
        {"unix:/x", NULL, 0, NULL, NULL},
        {"unix:/x", "a", 0, NULL, NULL},
        {"unix:/x", "a:1", 0, "a:1", NULL},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        char reported[MESH_ADDRESS_BYTES] = "";
        struct error error = ERROR_NONE;
        const struct config_mesh config = {
            .peers = {.items = {(char *)(uintptr_t)cases[i].listen}, .count = 1},
            .address = (char *)(uintptr_t)cases[i].address,
            .store_kind = cases[i].store != NULL ? CONFIG_STORE_ENDPOINTS : CONFIG_STORE_MEMORY,
            .store_place = (char *)(uintptr_t)cases[i].store,
        };
        enum status status = mesh_address_find(&config, cases[i].port, reported, &error);
        if (cases[i].reported == NULL) {
            assert_int_equal(status, STATUS_FAILED_PRECONDITION);
            assert_non_null(strstr(error.text, "address"));
            continue;
        }
        assert_int_equal(status, STATUS_OK);
        assert_string_equal(reported, cases[i].reported);
    }
}

TEST_CASE(test_versions)
{
    assert_true(mesh_version("0.1.0") < mesh_version("0.1.1"));
    assert_true(mesh_version("0.9.999") < mesh_version("0.10.0"));
    assert_true(mesh_version("1.0.0") < mesh_version("2"));
    assert_int_equal(mesh_version(""), 0);
}

/* ---- tags ---- */

struct item {
    struct pending_item item;
    _Atomic int cancelled;
    _Atomic int destroyed;
};

static void
on_cancel(struct pending_item *item)
{
    atomic_fetch_add(&((struct item *)(void *)item)->cancelled, 1);
}

static void
on_destroy(struct pending_item *item)
{
    atomic_fetch_add(&((struct item *)(void *)item)->destroyed, 1);
}

static struct item
item_make(void)
{
    return (struct item){.item = {.on_cancel = on_cancel, .destroy = on_destroy}};
}

TEST_CASE(test_tags)
{
    struct pending *table = pending_create(2);
    struct item items[3] = {item_make(), item_make(), item_make()};
    uint64_t first = pending_add(table, &items[0].item);
    uint64_t second = pending_add(table, &items[1].item);
    assert_true(tag_is_pending(first) && tag_is_pending(second) && first != second);
    assert_int_equal(pending_add(table, &items[2].item), 0);
    assert_int_equal(pending_count(table), 2);
    pending_cancel(table, first);
    assert_int_equal(items[0].cancelled, 1);
    assert_int_equal(items[1].cancelled, 0);
    pending_remove(&items[0].item);
    pending_remove(&items[0].item);
    pending_cancel(table, first);
    assert_int_equal(items[0].cancelled, 1);
    uint64_t third = pending_add(table, &items[2].item); /* the same place, another use of it */
    assert_true(third != 0 && third != first);
    pending_cancel(table, first);
    assert_int_equal(items[2].cancelled, 0);
    pending_cancel(table, third ^ UINT64_C(1) << 20); /* no such place */
    pending_cancel(table, 0);
    pending_ref(&items[0].item);
    pending_unref(&items[0].item);
    assert_int_equal(items[0].destroyed, 0);
    pending_unref(&items[0].item);
    assert_int_equal(items[0].destroyed, 1);
    pending_remove(&items[1].item);
    pending_remove(&items[2].item);
    pending_destroy(table);
}

enum { ROUNDS = 20000 };

static _Atomic uint64_t shown_tag;
static _Atomic bool over;

static void *
cancel_all(void *context)
{
    while (!atomic_load(&over))
        pending_cancel(context, atomic_load(&shown_tag));
    return NULL;
}

static void
on_destroy_free(struct pending_item *item)
{
    free(item);
}

/* A cancelled call is there, even if it goes at this moment. */
TEST_CASE(test_tags_at_once)
{
    struct pending *table = pending_create(4);
    pthread_t thread;
    atomic_store(&over, false);
    assert_int_equal(pthread_create(&thread, NULL, cancel_all, table), 0);
    for (int i = 0; i < ROUNDS; i++) {
        struct item *item = calloc(1, sizeof(*item));
        assert_non_null(item);
        item->item.on_cancel = on_cancel;
        item->item.destroy = on_destroy_free;
        atomic_store(&shown_tag, pending_add(table, &item->item));
        pending_remove(&item->item);
        pending_unref(&item->item);
    }
    atomic_store(&over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pending_destroy(table);
}

/* ---- types ---- */

static char root[] = "/r";
static char tree[] = "tree";
static char forest[] = "forest";
static char text[] = "text";
static char nothing[] = "no-models";
static char address[] = "h:1";
static char named[] = "onnx,plan";
static char *of_first[] = {tree, forest};
static char *of_second[] = {text};
static struct config_pipeline pipelines[] = {
    {.models = {.root = root, .types = of_first, .type_count = 2}},
    {.name = nothing},
    {.models = {.root = root, .types = of_second, .type_count = 1}},
};

/* The pool that loads models of that type and key. */
static uint32_t
pool_of(const struct config *config, const char *type, const char *key)
{
    struct mesh_pools pools;
    char name[MESH_POOL_NAME_BYTES];
    mesh_types_pools(config, &pools);
    mesh_types_pool_name(type, key, name);
    struct pool_names *names = pool_names_create((const char *const *)pools.types, pools.count);
    uint32_t pool = pool_names_find(names, pool_name_number(name));
    free(names);
    mesh_types_pools_fini(&pools);
    return pool;
}

/* Pools 0 and 1 are the pipelines with models, 2 is the runtime. */
TEST_CASE(test_pool_of_a_type)
{
    enum { NO_RUNTIME, ALL_OTHERS, NAMED, WAYS };
    static const struct {
        const char *type;
        const char *key;
        uint32_t pools[WAYS];
    } cases[] = {
        {"tree", "", {0, 0, 0}},
        {"text", "", {1, 1, 1}},
        {"mt:forest:1.2|pv:grpc-v2", "{}", {0, 0, 0}},
        {"rt:text", "", {1, 1, 1}},
        {"onnx", "", {POOL_UNNAMED, 2, 2}},
        {"mt:onnx:2", "", {POOL_UNNAMED, 2, 2}},
        {"onn", "", {POOL_UNNAMED, 2, POOL_UNNAMED}}, /* nobody's */
        {"plan,onnx", "", {POOL_UNNAMED, 2, POOL_UNNAMED}},
        {"", "", {POOL_UNNAMED, 2, POOL_UNNAMED}},
        {"tre", "", {POOL_UNNAMED, 2, POOL_UNNAMED}},
        {"onnx", "{\"model_type\": {\"name\": \"tree\"}}", {0, 0, 0}}, /* the key's counts */
        {"tree", "{\"model_type\": \"plan\"}", {POOL_UNNAMED, 2, 2}},
        {"tree", "not JSON", {0, 0, 0}},
        {"onnx", "[1]", {POOL_UNNAMED, 2, 2}},
        {"onnx", "{\"model_type\": 7}", {POOL_UNNAMED, 2, 2}},
    };
    struct config config = {.pipelines = pipelines, .pipeline_count = 3};
    for (int way = NO_RUNTIME; way < WAYS; way++) {
        config.mesh.runtime = way == NO_RUNTIME ? NULL : address;
        config.mesh.runtime_types = way == NAMED ? named : NULL;
        assert_int_equal(config_types_are_shared(&config), way != NO_RUNTIME);
        for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
            assert_int_equal(pool_of(&config, cases[i].type, cases[i].key), cases[i].pools[way]);
    }
    config.pipelines = &pipelines[1];
    config.pipeline_count = 1;
    assert_false(config_types_are_shared(&config));
}

TEST_MAIN()
