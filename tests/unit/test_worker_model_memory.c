/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of models, as a real worker reports it: what is allocated in `load` and what is mapped
 * is their size; workers that map one file share its pages; after an unload all is free, and what
 * is not is reported as a leak, and is not the next model's; of what a model has freed so much
 * stays in memory for the next, which has it without a page fault. The same of the examples'
 * engines, whose models are loaded and run.
 *
 * Without jemalloc in the worker (builds with a sanitizer) leaks are not measured, and what
 * concerns them is left out.
 *
 * ctest: timeout=120 presets=dev,release because only release has jemalloc to measure with
 */
#include "test_worker_model_rig.h"

#include "worker/page_pool.h"

static const struct rig_stage SHELF = {.modelet = "shelf"};

enum { MIB = 1 << 20 };

/* Sums up a field, in bytes, of the mappings of a process whose name holds `name`. */
static uint64_t
smaps(pid_t pid, const char *name, const char *field)
{
    char path[64];
    char line[512];
    snprintf(path, sizeof(path), "/proc/%d/smaps", (int)pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    bool ours = false;
    uint64_t kib = 0;
    size_t length = strlen(field);
    while (fgets(line, sizeof(line), file) != NULL) {
        unsigned long long from;
        unsigned long long to;
        if (sscanf(line, "%llx-%llx ", &from, &to) == 2)
            ours = strstr(line, name) != NULL;
        else if (ours && strncmp(line, field, length) == 0 && line[length] == ':')
            kib += strtoull(line + length + 1, NULL, 10);
    }
    fclose(file);
    return kib * 1024;
}

static bool
has_jemalloc(const struct rig *rig)
{
    return smaps(rig->workers[0][0].pid, "libjemalloc", "Rss") > 0;
}

static void
assert_between(uint64_t value, uint64_t least, uint64_t most)
{
    if (value < least || value > most)
        fail_msg("%llu is not in %llu … %llu", (unsigned long long)value, (unsigned long long)least,
                 (unsigned long long)most);
}

TEST_CASE(test_heap)
{
    struct rig *rig = rig_start_models(SHELF);
    assert_between(rig_load(rig, 1, NULL, "heap=8388608")->bytes, 8 * MIB, 9 * MIB);
    assert_between(rig_load(rig, 2, NULL, "heap=1048576")->bytes, MIB, 2 * MIB);
    uint64_t least = rig_load(rig, 3, NULL, "heap=100")->bytes;
    assert_between(least, 100, MIB);
    assert_int_equal(rig_load(rig, 4, NULL, "heap=1048576 size=77")->bytes,
                     77); /* it knows better */
    for (uint32_t i = 1; i <= 4; i++)
        rig_unload(rig, i);
    rig_stop(rig);
}

TEST_CASE(test_nothing_left)
{
    struct rig *rig = rig_start_models(SHELF);
    if (has_jemalloc(rig)) {
        uint64_t rss = 0;
        for (uint32_t i = 0; i < 60; i++) {
            rig_load(rig, 1, NULL, "heap=4194304 aside=3000");
            rig_runs(rig, 1);
            assert_int_equal(rig_unload(rig, 1)->leaked_bytes, 0);
            if (i == 9)
                rss = smaps(rig->workers[0][0].pid, "", "Rss");
        }
        assert_between(smaps(rig->workers[0][0].pid, "", "Rss"), 0, rss + 2 * MIB);
        assert_int_equal(rig_counter(rig, 0, WORKER_MODELS_LEAKED), 0);
    }
    rig_stop(rig);
}

/* Of a process, those that needed no disk. */
static uint64_t
page_faults(pid_t pid)
{
    char path[64];
    char line[1024];
    unsigned long long faults = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file));
    fclose(file);
    const char *behind_name = strrchr(line, ')');
    assert_non_null(behind_name);
    assert_int_equal(sscanf(behind_name + 1, " %*c %*d %*d %*d %*d %*d %*u %llu", &faults), 1);
    return faults;
}

TEST_CASE(test_next_has_its_pages)
{
    struct rig *rig = rig_start_models(SHELF);
    enum { BYTES = 4 * MIB, PAGES = BYTES / 4096 };
    for (uint32_t i = 0; i < 4 && has_jemalloc(rig); i++) {
        uint64_t before = page_faults(rig->workers[0][0].pid);
        rig_load(rig, 2 * i + 1, NULL, "heap=4194304");
        uint64_t faults = page_faults(rig->workers[0][0].pid) - before;
        assert_int_equal(rig_unload(rig, 2 * i + 1)->leaked_bytes, 0);
        rig_load(rig, 2 * i + 2, NULL, "heap=1000"); /* has its heap: the next gets another */
        assert_between(faults, i == 0 ? PAGES : 0, i == 0 ? 2 * PAGES : PAGES / 4);
    }
    rig_stop(rig);
}

TEST_CASE(test_rest_goes_back)
{
    struct rig *rig = rig_start_models(SHELF);
    enum { MODELS = 40 };
    if (has_jemalloc(rig)) {
        pid_t pid = rig->workers[0][0].pid;
        rig_load(rig, 1, NULL, "heap=1000");
        uint64_t rss = smaps(pid, "", "Rss");
        for (uint32_t i = 2; i <= MODELS; i++)
            rig_load(rig, i, NULL, "heap=1048576");
        rig_load(rig, MODELS + 1, NULL, "heap=67108864");
        assert_between(smaps(pid, "", "Rss"), rss + (MODELS - 1 + 64) * MIB, UINT64_MAX);
        for (uint32_t i = 2; i <= MODELS + 1; i++)
            rig_unload(rig, i);
        rig_unload(rig, MODELS + 2); /* of none, whose answer says that the last gauge is there */
        assert_between(rig_counter(rig, 0, WORKER_MODELS_KEPT), PAGE_POOL_BYTES_MAX / 2,
                       PAGE_POOL_BYTES_MAX);
        /* and each heap's own */
        assert_between(smaps(pid, "", "Rss"), rss + PAGE_POOL_BYTES_MAX / 2,
                       rss + PAGE_POOL_BYTES_MAX + MODELS * (128 << 10));
    }
    rig_stop(rig);
}

/* Memory that the loader allocated and the main thread freed lies in that one's cache. */
TEST_CASE(test_freed_by_run)
{
    struct rig *rig = rig_start_models(SHELF);
    for (uint32_t i = 0; i < 20 && has_jemalloc(rig); i++) {
        rig_load(rig, 1, NULL, "heap=500 give");
        rig_runs(rig, 1);
        assert_int_equal(rig_unload(rig, 1)->leaked_bytes, 0);
    }
    rig_stop(rig);
}

TEST_CASE(test_leak)
{
    struct rig *rig = rig_start_models(SHELF);
    if (has_jemalloc(rig)) {
        rig_load(rig, 1, NULL, "leak=2097152");
        uint64_t leaked = rig_unload(rig, 1)->leaked_bytes;
        assert_between(leaked, 2 * MIB, 3 * MIB);
        assert_int_equal(rig_counter(rig, 0, WORKER_MODELS_LEAKED), leaked);
        /* the next one has the same heap, and is neither charged with it nor taken for it */
        assert_between(rig_load(rig, 2, NULL, "heap=1048576")->bytes, MIB, 2 * MIB);
        assert_int_equal(rig_unload(rig, 99)->leaked_bytes, leaked);
        assert_int_equal(rig_unload(rig, 2)->leaked_bytes, leaked);
        /* a load that fails leaks no less */
        rig_load_fails(rig, 3, NULL, "leak=2097152 fail", STATUS_OUT_OF_RANGE, "told to fail");
        assert_between(rig_unload(rig, 3)->leaked_bytes, leaked + 2 * MIB, leaked + 3 * MIB);
    }
    rig_stop(rig);
}

/* One copy of the pages for all workers of a stage. */
TEST_CASE(test_mapped_pages_are_shared)
{
    struct rig_stage stage = SHELF;
    enum { WORKERS = 3 };
    stage.workers = WORKERS;
    struct rig *rig = rig_start_models(stage);
    char *weights = calloc(16, MIB);
    assert_non_null(weights);
    weights[0] = 42;
    const char *path = rig_write_file(rig, "weights", weights, 16 * MIB);
    free(weights);
    static const char key[] = "map {\"sha256\": \"0\"}"; /* no JSON object, so none is stated */
    uint64_t pss = 0;
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct handshake_model order = rig_order(rig, MODEL_LOAD, 1, path, key);
        const struct handshake_model_said *said = rig_order_and_receive(rig, i, &order);
        assert_int_equal(said->event, MODEL_LOADED);
        assert_int_equal(said->mapped_bytes, 16 * MIB);
        assert_between(said->bytes, 0, MIB);
    }
    /* the key makes nobody read it all: so we do */
    struct rig_outcome outcome = rig_runs(rig, 1);
    assert_int_equal(outcome.words[PROBE_PARAMETER_VALUE], 42);
    for (uint32_t i = 0; i < WORKERS; i++)
        pss += smaps(rig->workers[0][i].pid, "/weights", "Pss");
    assert_between(pss, 4096, 16 * MIB);
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct handshake_model order = rig_order(rig, MODEL_UNLOAD, 1, NULL, "");
        assert_int_equal(rig_order_and_receive(rig, i, &order)->event, MODEL_UNLOADED);
        assert_int_equal(smaps(rig->workers[0][i].pid, "/weights", "Size"), 0);
    }
    unlink(path);
    rig_stop(rig);
}

/* Read by all of them, whole, because its digest is compared: still one copy. */
TEST_CASE(test_pss)
{
    struct rig_stage stage = SHELF;
    enum { WORKERS = 3 };
    stage.workers = WORKERS;
    struct rig *rig = rig_start_models(stage);
    char *weights = calloc(16, MIB);
    assert_non_null(weights);
    const char *path = rig_write_file(rig, "weights", weights, 16 * MIB);
    free(weights);
    /* of 16 MiB of zeros */
    static const char key[] =
        "{\"sha256\": "
        "\"080acf35a507ac9849cfcba47dc2ad83e01b75663a516279c8b9d243b719643e\","
        " \"then\": \"map\", \"x\": \" map \"}";
    uint64_t pss = 0;
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct handshake_model order = rig_order(rig, MODEL_LOAD, 1, path, key);
        const struct handshake_model_said *said = rig_order_and_receive(rig, i, &order);
        if (said->event != MODEL_LOADED)
            fail_msg("%s", said->text);
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        uint64_t own = smaps(rig->workers[0][i].pid, "/weights", "Pss");
        assert_int_equal(smaps(rig->workers[0][i].pid, "/weights", "Rss"), 16 * MIB);
        assert_between(own, 16 * MIB / WORKERS - 65536, 16 * MIB / WORKERS + 65536);
        pss += own;
    }
    assert_between(pss, 16 * MIB - 65536, 16 * MIB + 65536);
    unlink(path);
    rig_stop(rig);
}

/* Both engines of the examples allocate where it is seen: twenty models take twenty times what one
 * takes, as the machine sees it, and nothing is left but what an engine sets up once. */
TEST_CASE(test_engines)
{
    static const struct {
        const char *modelet;
        const char *folder;
        const char *file;
        uint64_t least, most; /* bytes of a model */
        uint64_t once;
    } engines[] = {
        {"lib/shoal/libxgboost_modelet.so", "examples/digits", "digits.ubj", 256 << 10, 8 * MIB,
         2 * MIB},
        {"lib/shoal/libmlp.so", "examples/mlp", "xor.mlp", 4096, MIB, 64 << 10},
    };
    enum { MODELS = 20 };
    for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++) {
        struct rig_stage stage = {.modelet = engines[i].modelet};
        struct rig *rig = rig_open(&stage, 1);
        static union rig_reply reply;
        char root[256];
        snprintf(root, sizeof(root), "%s", rig_build_file(engines[i].folder));
        rig->stages[0].models_root = root;
        rig_spawn(rig, 0, 0, &reply);
        assert_int_equal(reply.header.type, HANDSHAKE_READY);
        char path[512];
        snprintf(path, sizeof(path), "%s/%s", root, engines[i].file);
        pid_t pid = rig->workers[0][0].pid;
        rig_load(rig, 100, path, "");
        uint64_t before = smaps(pid, "", "Rss");
        uint64_t reported = 0;
        for (uint32_t k = 1; k <= MODELS; k++) {
            const struct handshake_model_said *said = rig_load(rig, k, path, "");
            assert_int_equal(said->input_count, 1);
            if (has_jemalloc(rig))
                assert_between(said->bytes, engines[i].least, engines[i].most);
            reported += said->bytes + said->mapped_bytes;
        }
        uint64_t grown = smaps(pid, "", "Rss") - before;
        print_message("%s: %llu bytes each, %llu by the machine\n", engines[i].file,
                      (unsigned long long)reported / MODELS, (unsigned long long)grown / MODELS);
        if (has_jemalloc(rig)) {
            assert_between(reported, grown * 3 / 4, grown * 3 / 2);
            uint64_t left = 0;
            for (uint32_t k = 1; k <= MODELS; k++)
                left = rig_unload(rig, k)->leaked_bytes;
            left = rig_unload(rig, 100)->leaked_bytes;
            print_message("left: %llu\n", (unsigned long long)left);
            assert_between(left, 0, engines[i].once);
        }
        rig_stop(rig);
    }
}

TEST_MAIN()
