/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counters' file: what the creator and an attached writer count, a reader sees; nobody's other
 * file is replaced; of a file whose layout is spoilt in any one place, the reader says what is
 * wrong instead of reading outside it. Histograms: each bucket starts where the one before ends,
 * and quantiles are off by at most a bucket. Whose the file is: test_counters_life.c.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "ipc/counters.h"
#include "test_counters_rig.h"

/* ---- the table ---- */

TEST_CASE_WITH(test_table, NULL, NULL)
{
    uint32_t next[SCOPE_COUNT] = {0};
    for (size_t i = 0; i < COUNTER_TABLE_COUNT; i++) {
        const struct counter_entry *entry = &counter_table[i];
        assert_int_equal(counter_offset[i], next[entry->scope]);
        next[entry->scope] += entry->type == TYPE_HISTOGRAM ? HISTOGRAM_WORDS : 1;
        assert_true(entry->name[0] != '\0' && entry->help[0] != '\0');
        for (const char *c = entry->name; *c != '\0'; c++)
            assert_true((*c >= 'a' && *c <= 'z') || *c == '_');
    }
    assert_string_equal(counter_table[NODE_CALLS].name, "calls");
    assert_string_equal(counter_table[WORKER_BATCH_ITEMS].name, "batch_items");
    assert_int_equal(counter_table[WORKER_WAIT].unit, UNIT_NS);
}

/* ---- histograms ---- */

TEST_CASE_WITH(test_buckets, NULL, NULL)
{
    for (uint64_t value = 0; value < 8; value++)
        assert_int_equal(histogram_bucket(value), value);
    assert_int_equal(histogram_bucket(8), 8);
    assert_int_equal(histogram_bucket(9), 8);
    assert_int_equal(histogram_bucket(10), 9);
    assert_int_equal(histogram_bucket(15), 11);
    assert_int_equal(histogram_bucket(16), 12);
    assert_int_equal(histogram_bucket_floor(0), 0);
    for (uint32_t bucket = 1; bucket < HISTOGRAM_BUCKETS; bucket++) {
        uint64_t floor = histogram_bucket_floor(bucket);
        assert_int_equal(histogram_bucket(floor), bucket);
        assert_int_equal(histogram_bucket(floor - 1), bucket - 1);
        /* four per power of two: no bucket is wider than a quarter of where it starts */
        uint64_t width = floor - histogram_bucket_floor(bucket - 1);
        assert_true(bucket <= 8 || width * 4 <= histogram_bucket_floor(bucket - 1));
    }
    assert_int_equal(histogram_bucket(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
}

TEST_CASE_WITH(test_quantiles, NULL, NULL)
{
    static _Atomic uint64_t values[4 * HISTOGRAM_WORDS];
    _Atomic uint64_t *words = values + counter_offset[WORKER_RUN];
    uint64_t copy[HISTOGRAM_WORDS] = {0};
    assert_int_equal(histogram_quantile(copy, 0.5), 0);
    for (uint64_t value = 1; value <= 100000; value++) {
        if (value % 2)
            histogram_record(values, WORKER_RUN, value);
        else
            histogram_record_shared(values, WORKER_RUN, value);
    }
    for (size_t i = 0; i < HISTOGRAM_WORDS; i++)
        copy[i] = words[i];
    assert_int_equal(copy[0], 100000);
    assert_int_equal(copy[1], UINT64_C(100000) * 100001 / 2);
    static const double quantiles[] = {0, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1};
    uint64_t last = 0;
    for (size_t i = 0; i < ARRAY_COUNT(quantiles); i++) {
        uint64_t found = histogram_quantile(copy, quantiles[i]);
        double right = quantiles[i] * 100000;
        assert_true(found >= last);
        /* the last bucket is not full: evenly spread values miss by its width at most */
        assert_true((double)found <= right * 1.25 + 1 && (double)found >= right * 0.8 - 1);
        last = found;
    }
    assert_true(histogram_quantile(copy, 0.5) > 49000 && histogram_quantile(copy, 0.5) < 51000);
    assert_int_equal(histogram_quantile(copy, -1), histogram_quantile(copy, 0));
    assert_int_equal(histogram_quantile(copy, 7), histogram_quantile(copy, 1));
    memset(copy, 0xff, sizeof(copy)); /* spoilt words give some figure, no more */
    assert_true(histogram_quantile(copy, 1) <= histogram_bucket_floor(HISTOGRAM_BUCKETS - 1));
    memset(copy, 0, sizeof(copy));
    copy[2 + 5] = 3;
    assert_int_equal(histogram_quantile(copy, 0), 5);
    assert_int_equal(histogram_quantile(copy, 1), 5);
}

/* ---- creating, attaching, reading ---- */

TEST_CASE(test_shared)
{
    mode_t mask = umask(0077);
    struct counters writer = create();
    umask(mask);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0644);
    assert_int_equal(info.st_size, writer.bytes);

    struct counters worker;
    struct error error = ERROR_NONE;
    int fd = dup(writer.fd);
    uint64_t at = writer.scopes[WORKER].values_offset;
    assert_int_equal(counters_attach(&worker, fd, at, &error), STATUS_OK);
    assert_int_equal(fcntl(fd, F_GETFD), -1); /* closed: it can't be used to cut the file */
    counter_add(counters_values(&writer, NODE), NODE_CALLS, 3);
    counter_add_shared(counters_values(&writer, PIPELINE), PIPELINE_REQUESTS, 4);
    counter_set(counters_values(&writer, STAGE), STAGE_RESTARTS, 5);
    counter_add(counters_values(&worker, 0), WORKER_ITEMS, 6);
    histogram_record(counters_values(&worker, 0), WORKER_RUN, 1000);
    atomic_store(&writer.header->state, NODE_READY);

    struct counters reader = open_expecting(true);
    assert_int_equal(reader.header->pid, getpid());
    assert_int_equal(reader.header->state, NODE_READY);
    assert_true(reader.header->started_unix_ns > 0 && reader.header->heartbeat_ns > 0);
    assert_int_equal(reader.scope_count, SCOPES);
    for (uint32_t i = 0; i < SCOPES; i++) {
        assert_string_equal(reader.scopes[i].name, scopes[i].name);
        assert_int_equal(reader.scopes[i].kind, scopes[i].kind);
        assert_int_equal(reader.scopes[i].parent, scopes[i].parent);
        assert_int_equal((uintptr_t)counters_values(&reader, i) % 64, 0);
    }
    assert_int_equal(counter_get(counters_values(&reader, NODE), NODE_CALLS), 3);
    assert_int_equal(counter_get(counters_values(&reader, PIPELINE), PIPELINE_REQUESTS), 4);
    assert_int_equal(counter_get(counters_values(&reader, STAGE), STAGE_RESTARTS), 5);
    assert_int_equal(counter_get(counters_values(&reader, WORKER), WORKER_ITEMS), 6);
    assert_int_equal(counter_get(counters_values(&reader, WORKER - 1), WORKER_ITEMS), 0);
    assert_int_equal(counter_get(counters_values(&reader, WORKER), WORKER_RUN), 1);
    /* The last word of the last scope is within the file. */
    histogram_record(counters_values(&writer, SCOPES - 1), WORKER_RUN, UINT64_MAX);

    counters_close(&worker);
    assert_int_equal(access(path, F_OK), 0); /* it was the worker's view only */
    counters_close(&writer);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(counter_get(counters_values(&reader, NODE), NODE_CALLS), 3);
    counters_close(&reader);
}

TEST_CASE(test_hostile_writer)
{
    struct counters writer = create();
    struct counters reader = open_expecting(true);
    _Atomic uint64_t *values = counters_values(&writer, WORKER);
    memset(writer.base, 0xff, writer.bytes);
    assert_ptr_equal(counters_values(&writer, WORKER), values);
    assert_int_equal((uintptr_t)counters_values(&reader, WORKER) - (uintptr_t)reader.base,
                     (uintptr_t)values - (uintptr_t)writer.base);
    assert_string_equal(reader.scopes[WORKER].name, "1");
    counters_close(&reader);
    counters_close(&writer);
    assert_int_equal(access(path, F_OK), -1);
}

/* ---- what is not a counters file ---- */

static void
write_file(const char *text)
{
    char command[128];
    snprintf(command, sizeof(command), "%s/run", folder);
    mkdir(command, 0755);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

TEST_CASE(test_other_files)
{
    write_file("root:x:0:0:root:/root:/bin/bash\n");
    assert_create_fails(STATUS_FAILED_PRECONDITION, "is not a counters file");
    assert_open_fails(STATUS_FAILED_PRECONDITION, "too few");
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, 32);
    write_file(""); /* a node that was killed while it made the file */
    assert_open_fails(STATUS_FAILED_PRECONDITION, "too few");
    char fresh[160];
    snprintf(fresh, sizeof(fresh), "%s.new", path);
    assert_int_equal(symlink("/etc/passwd", fresh), 0);
    struct counters writer = create();
    counters_close(&writer);
    assert_int_equal(access(fresh, F_OK), -1);

    assert_int_equal(symlink("elsewhere", path), 0);
    assert_create_fails(STATUS_INTERNAL, path);
    unlink(path);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_create_fails(STATUS_INTERNAL, path);
    assert_open_fails(STATUS_FAILED_PRECONDITION, "not a Shoal counters file");
    rmdir(path);
    assert_open_fails(STATUS_NOT_FOUND, path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_open_fails(STATUS_FAILED_PRECONDITION, "not a Shoal counters file");
    assert_create_fails(STATUS_FAILED_PRECONDITION, "is not a counters file");
    unlink(path);
    snprintf(path, sizeof(path), "%s/no/such/counters", folder);
    assert_create_fails(STATUS_NOT_FOUND, "making the folder");
}

TEST_CASE(test_paths)
{
    struct counters counters;
    struct error error = ERROR_NONE;
    char long_path[400];
    memset(long_path, 'x', sizeof(long_path));
    long_path[0] = '/';
    long_path[sizeof(long_path) - 1] = '\0';
    assert_int_equal(counters_create(&counters, long_path, scopes, SCOPES, &error),
                     STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "must be at most"));
    char text[256];
    counters_default_path(text, sizeof(text));
    if (geteuid() == 0) {
        assert_string_equal(text, "/run/shoal/counters");
        return;
    }
    assert_int_equal(setenv("XDG_RUNTIME_DIR", "/run/user/7", 1), 0);
    counters_default_path(text, sizeof(text));
    assert_string_equal(text, "/run/user/7/shoal/counters");
    assert_int_equal(unsetenv("XDG_RUNTIME_DIR"), 0);
    counters_default_path(text, sizeof(text));
    assert_non_null(strstr(text, "/tmp/shoal-"));
}

/* ---- corrupt files ---- */

struct spoil {
    size_t at;
    size_t bytes; /* of the field at `at`; 0: the file is cut there */
    uint64_t value;
    const char *text;
};

#define HEADER(field) offsetof(struct counters_header, field), sizeof(uint64_t)
#define HEADER32(field) offsetof(struct counters_header, field), sizeof(uint32_t)
#define SCOPE_AT(index, field)                                                                     \
    sizeof(struct counters_header) + (index) * sizeof(struct counters_scope) +                     \
        offsetof(struct counters_scope, field)

static const struct spoil spoils[] = {
    {HEADER(magic), 1, "not a Shoal counters file"},
    {HEADER(table_hash), 1, "different builds"},
    {HEADER(file_bytes), 1 << 30, "the size differs"},
    {HEADER32(scope_count), 0, "more scopes"},
    {HEADER32(scope_count), UINT32_MAX, "more scopes"},
    {HEADER32(scope_count), 1 << 19, "more scopes"},
    {HEADER32(scope_count), SCOPES + 1, "wrong kind"},
    {SCOPE_AT(0, kind), 4, SCOPE_PIPELINE, "wrong kind"},
    {SCOPE_AT(0, parent), 4, 1, "wrong parent"},
    {SCOPE_AT(1, kind), 4, SCOPE_NODE, "wrong kind"},
    {SCOPE_AT(1, kind), 4, SCOPE_COUNT, "wrong kind"},
    {SCOPE_AT(3, parent), 4, 1, "wrong parent"},
    {SCOPE_AT(3, parent), 4, 3, "wrong parent"},
    {SCOPE_AT(3, parent), 4, 5, "wrong parent"},
    {SCOPE_AT(3, parent), 4, UINT32_MAX, "wrong parent"},
    {SCOPE_AT(1, name), 4, 0x0a1b4141, "not plain text"},
    {SCOPE_AT(2, values_offset), 8, 0, "outside the file"},
    {SCOPE_AT(2, values_offset), 8, 1 << 30, "outside the file"},
    {SCOPE_AT(2, values_offset), 8, UINT64_MAX - 63, "outside the file"},
    {SCOPE_AT(2, values_offset), 8, 64 * 64 + 8, "outside the file"},
    {sizeof(struct counters_header) - 1, 0, 0, "too few"},
    {sizeof(struct counters_header), 0, 0, "the size differs"},
    {4096, 0, 0, "the size differs"},
};

TEST_CASE(test_corrupt)
{
    struct counters writer = create();
    char *whole = malloc(writer.bytes);
    assert_non_null(whole);
    memcpy(whole, writer.base, writer.bytes);
    size_t bytes = writer.bytes;
    counters_close(&writer);
    for (size_t i = 0; i < ARRAY_COUNT(spoils); i++) {
        char *copy = malloc(bytes);
        assert_non_null(copy);
        memcpy(copy, whole, bytes);
        memcpy(copy + spoils[i].at, &spoils[i].value, spoils[i].bytes);
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fwrite(copy, 1, spoils[i].bytes == 0 ? spoils[i].at : bytes, file);
        fclose(file);
        free(copy);
        bool other = strstr(spoils[i].text, "builds") ||
                     strstr(spoils[i].text, "not a Shoal counters file") ||
                     strstr(spoils[i].text, "too few");
        assert_open_fails(other ? STATUS_FAILED_PRECONDITION : STATUS_DATA_LOSS, spoils[i].text);
    }
    /* a name that fills its field has no end */
    memset(whole + (SCOPE_AT(1, name)), 'x', COUNTERS_NAME_BYTES);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fwrite(whole, 1, bytes, file);
    fclose(file);
    assert_open_fails(STATUS_DATA_LOSS, "without an end");
    struct counters again = create(); /* corrupt or not, its node is dead */
    counters_close(&again);
    free(whole);
}

/* The others' figures stay, for any header of the file and any write of a worker. */
TEST_CASE(test_a_worker_reaches_its_own)
{
    struct counters writer = create();
    for (uint32_t i = 0; i < SCOPES; i++)
        if (i != WORKER)
            memset((void *)(uintptr_t)counters_values(&writer, i), 0x11, sizeof(uint64_t));
    struct counters worker;
    struct error error = ERROR_NONE;
    uint64_t at = writer.scopes[WORKER].values_offset;
    char *kept = malloc(at);
    assert_non_null(kept);
    memcpy(kept, writer.base, at);
    memset(writer.base, 0x5a, at); /* the header, too */
    int fd = dup(writer.fd);
    assert_int_equal(counters_attach(&worker, fd, at, &error), STATUS_OK);
    memcpy(writer.base, kept, at);
    memset(worker.base, 0xff, worker.bytes);
    assert_memory_equal(writer.base, kept, at);
    for (uint32_t i = WORKER + 1; i < SCOPES; i++)
        assert_int_equal(*counters_values(&writer, i), UINT64_C(0x1111111111111111));
    counters_close(&worker);
    struct counters reader = open_expecting(true);
    counters_close(&reader);

    const uint64_t wrong[] = {0, at + 64, writer.bytes, UINT64_MAX - 4095};
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        fd = dup(writer.fd);
        assert_int_equal(counters_attach(&worker, fd, wrong[i], &error),
                         STATUS_FAILED_PRECONDITION);
        assert_int_equal(close(fd), 0); /* it stays the caller's */
    }
    free(kept);
    counters_close(&writer);
}

TEST_MAIN(.setup = folder_make, .teardown = folder_remove)
