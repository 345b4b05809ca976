/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the mesh core's tables: names, heaps, types and the ledger by hand, then names
 * and heaps with random steps against oracles that look through everything; and how large a model's
 * record is.
 */
#include <stdio.h>
#include <string.h>

#include "../random.h"
#include "../test.h"
#include "base/clock.h"
#include "mesh/core/cluster/tables.h"
#include "mesh/core/containers/heap.h"
#include "mesh/core/containers/names.h"
#include "mesh/core/copies/ledger.h"

TEST_CASE(test_names)
{
    struct names names;
    names_init(&names, 3, 1);
    assert_int_equal(names_find(&names, "a"), NAME_NONE);
    uint32_t a = names_hold(&names, "a");
    assert_int_equal(names_hold(&names, "a"), a);
    uint32_t b = names_hold(&names, "b");
    assert_int_not_equal(a, b);
    assert_int_equal(names_hold(&names, ""), 2);
    assert_int_equal(names_hold(&names, "d"), NAME_NONE); /* the limit */
    names_release(&names, a);
    assert_int_equal(names_find(&names, "a"), a); /* once held twice */
    names_release(&names, a);
    assert_int_equal(names_find(&names, "a"), NAME_NONE);
    assert_int_equal(names_hold(&names, "d"), a); /* used again */
    assert_string_equal(names_text(&names, a), "d");
    names_fini(&names);
}

enum { TEXTS = 300, STEPS = 30000 };

TEST_CASE(test_names_at_random)
{
    uint64_t seed = random_seed((uint64_t)clock_now_ns());
    static uint32_t held[TEXTS];
    static uint32_t number[TEXTS];
    memset(held, 0, sizeof(held));
    struct names names;
    names_init(&names, TEXTS, seed);
    for (int step = 0; step < STEPS; step++) {
        uint32_t i = (uint32_t)(random_draw(&seed) % TEXTS);
        char text[64];
        snprintf(text, sizeof(text), "%s-%u", i % 2 ? "model-with-a-rather-long-name" : "m", i);
        assert_int_equal(names_find(&names, text), held[i] > 0 ? number[i] : NAME_NONE);
        if (random_draw(&seed) % 2 && held[i] < 3) {
            uint32_t got = names_hold(&names, text);
            assert_true(held[i] == 0 || got == number[i]);
            number[i] = got;
            held[i]++;
            assert_string_equal(names_text(&names, got), text);
        } else if (held[i] > 0) {
            names_release(&names, number[i]);
            held[i]--;
        }
    }
    uint32_t live = 0;
    for (uint32_t i = 0; i < TEXTS; i++)
        live += held[i] > 0;
    assert_int_equal(names.live, live);
    names_fini(&names);
}

enum { ITEMS = 64 };

TEST_CASE(test_heap_at_random)
{
    uint64_t seed = random_seed((uint64_t)clock_now_ns());
    int64_t key[ITEMS] = {0};
    bool in[ITEMS] = {0};
    struct heap heap = {0};
    for (int step = 0; step < STEPS; step++) {
        uint32_t item = (uint32_t)(random_draw(&seed) % ITEMS);
        if (random_draw(&seed) % 3) {
            key[item] = (int64_t)(random_draw(&seed) % 50) - 25;
            in[item] = true;
            heap_set(&heap, item, key[item]);
        } else {
            in[item] = false;
            heap_remove(&heap, item);
        }
        uint32_t least = HEAP_NONE;
        for (uint32_t i = 0; i < ITEMS; i++) {
            assert_int_equal(heap_has(&heap, i), in[i]);
            if (in[i] && (least == HEAP_NONE || key[i] < key[least]))
                least = i;
        }
        assert_int_equal(heap_first(&heap), least);
        assert_true(heap_first_key(&heap) == (least == HEAP_NONE ? INT64_MAX : key[least]));
    }
    heap_fini(&heap);
}

TEST_CASE(test_ledger)
{
    assert_int_equal(ledger_units(0), 0);
    assert_int_equal(ledger_units(1), 1);
    assert_int_equal(ledger_units(8192), 1);
    assert_int_equal(ledger_units(8193), 2);
    assert_int_equal(ledger_units(UINT64_MAX), UINT32_MAX);
    /* 1 GiB, 50 MiB, six loaders: 75 MiB are kept back */
    struct ledger ledger = {0};
    ledger_open(&ledger, 1 << 17, 6, 6400);
    assert_int_equal(ledger.reserve, 9600);
    assert_int_equal(ledger_usable(&ledger), (1 << 17) - 9600);
    ledger.committed = ledger_usable(&ledger) + 7;
    assert_int_equal(ledger_excess(&ledger), 7);
    assert_int_equal(ledger_free(&ledger), 0);
    ledger.resident = (1 << 17) - 100;
    assert_true(ledger_fits(&ledger, 100));
    assert_false(ledger_fits(&ledger, 101));
    ledger_open(&ledger, 1000, 1, 10000); /* never more than a tenth */
    assert_int_equal(ledger.reserve, 100);
    assert_int_equal(ledger_full_below(100000, 8, 100), 800);
    assert_int_equal(ledger_full_below(1000, 8, 100), 100);
}

TEST_CASE(test_types)
{
    struct types types;
    types_init(&types, 1);
    assert_null(types_rule(&types, "onnx"));
    assert_true(types_allow(NULL, 0));
    const char *const gpu[] = {"gpu"};
    const char *const both[] = {"gpu", "zone-a"};
    const struct mesh_type_rule rules[] = {
        {.type = "big", .required = both, .required_count = 2},
        {.type = "fast", .preferred = gpu, .preferred_count = 1},
        {.type = "_default"},
    };
    assert_true(types_set(&types, rules, 3));
    const struct type_rule *big = types_rule(&types, "big");
    const struct type_rule *fast = types_rule(&types, "fast");
    const struct type_rule *other = types_rule(&types, "other");
    assert_non_null(other);
    uint64_t plain = types_labels(&types, "cpu,x");
    uint64_t part = types_labels(&types, "gpu");
    uint64_t all = types_labels(&types, "cpu,gpu,zone-a");
    assert_int_equal(plain, 0);
    assert_false(types_allow(big, part));
    assert_true(types_allow(big, all));
    assert_true(types_allow(fast, plain));
    assert_true(types_preference(&types, fast, part) > types_preference(&types, fast, plain));
    /* a type without preference goes where others cannot (H2) */
    assert_true(types_preference(&types, other, plain) > types_preference(&types, other, all));
    /* one label too many: the old rules hold */
    static char texts[TYPES_LABELS_MAX + 1][32];
    const char *many[TYPES_LABELS_MAX + 1];
    for (int i = 0; i <= TYPES_LABELS_MAX; i++) {
        snprintf(texts[i], sizeof(texts[i]), "label-%d", i);
        many[i] = texts[i];
    }
    const struct mesh_type_rule wide = {
        .type = "w", .required = many, .required_count = TYPES_LABELS_MAX + 1};
    assert_false(types_set(&types, &wide, 1));
    assert_ptr_equal(types_rule(&types, "big"), big);
    types_fini(&types);
}

TEST_CASE(test_a_model_is_small)
{
    /* and its name's number, hash and references, and its slots in the table, at worst half full...
     */
    assert_true(sizeof(struct core_model) + sizeof(struct name) + 4 * sizeof(uint32_t) <= 256);
    printf("a model: %zu + %zu bytes\n", sizeof(struct core_model),
           sizeof(struct name) + 4 * sizeof(uint32_t));
}

static struct mesh_model
record(uint64_t revision, const struct mesh_place *places, uint32_t count)
{
    return (struct mesh_model){.id = "m",
                               .type = "t",
                               .path = "p",
                               .key = "k",
                               .create_revision = 1,
                               .revision = revision,
                               .places = places,
                               .place_count = count};
}

/* T6, and what strangers write. */
TEST_CASE(test_records)
{
    struct tables tables;
    const struct mesh_config config = {.instance = "self", .models_max = 2, .instances_max = 6};
    tables_init(&tables, &config);
    const struct mesh_place places[] = {
        {.instance = "a", .since_ms = 5, .kind = MESH_PLACE_LOADED},
        {.instance = "a", .since_ms = 6, .kind = MESH_PLACE_FAILED, .reason = "twice"},
        {.instance = "b", .since_ms = INT64_MIN, .kind = MESH_PLACE_FAILED, .reason = "why"},
        {.instance = "c", .since_ms = INT64_MAX, .kind = MESH_PLACE_LOADING},
        {.instance = "d"},
        {.instance = "e"},
        {.instance = "no-room"},
    };
    uint32_t m;
    struct mesh_model put = record(10, places, 7);
    assert_true(tables_put_model(&tables, &put, &m));
    struct core_model *model = &tables.models[m];
    assert_int_equal(model->place_count, 5);
    uint32_t a = tables_instance(&tables, "a");
    assert_int_equal(model_place(model, (uint16_t)a)->kind, MESH_PLACE_LOADED);
    assert_int_equal(model_copies(&tables, model), 0); /* nobody lives */
    struct mesh_instance instance = {
        .id = "a", .labels = "", .session = 3, .revision = 11, .start_ms = 5};
    assert_true(tables_put_instance(&tables, &instance, 0));
    assert_int_equal(model_copies(&tables, model), 1);
    instance.revision = 12;
    instance.start_ms = 6; /* another process of that name: its copy is not that one's */
    assert_true(tables_put_instance(&tables, &instance, 0));
    assert_int_equal(model_copies(&tables, model), 0);
    assert_false(tables_put_instance(&tables, &instance, 0));
    put = record(9, NULL, 0);
    assert_false(tables_put_model(&tables, &put, &m)); /* older */
    assert_true(tables_drop_model(&tables, "m", 20, &m));
    put = record(15, NULL, 0);
    assert_false(tables_put_model(&tables, &put, &m)); /* the dead stay dead */
    assert_int_equal(tables_instance(&tables, "e"), NAME_NONE);
    assert_int_equal(tables_instance(&tables, "a"), a); /* its key is there */
    tables_forget_model(&tables, m);
    assert_int_equal(tables_model(&tables, "m"), NAME_NONE);
    assert_true(tables_drop_instance(&tables, "a", 30, 0));
    assert_int_equal(tables_instance(&tables, "a"), NAME_NONE);
    tables_fini(&tables);
}

TEST_MAIN()
