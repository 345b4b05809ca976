/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors in shared memory as messages describe them, in any order that protobuf allows; and the
 * regions themselves: held, cut short and forgotten by several threads, with no descriptor left.
 * ctest: presets=dev,tsan because requests on several threads hold what others unregister
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "test_oip_rig.h"

enum { OBJECT_BYTES = 4096, ROUNDS = 2000, THREADS = 4 };

static char key[64];

static int
object_create(void)
{
    snprintf(key, sizeof(key), "/shoal-unit-%ld", (long)getpid());
    int fd = shm_open(key, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0 && ftruncate(fd, OBJECT_BYTES) == 0);
    return fd;
}

static struct shared_memory *
memory_create(uint32_t regions_max)
{
    return shared_memory_create(&(struct shared_memory_options){
        SHARED_MEMORY_ON, .regions_max = regions_max, .request_bytes_max = OBJECT_BYTES});
}

static enum status
register_as(struct shared_memory *memory, const char *name, struct error *error)
{
    const struct shared_region_spec spec = {name, key, 0, OBJECT_BYTES};
    return shared_memory_register(memory, &spec, error);
}

static unsigned
descriptors(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

/* ---- messages ---- */

static void
put_string(struct blob *value, const char *text)
{
    blob_field_text(value, 3, text);
}

/* An entry of a tensor's parameters; `value_first`: its fields in the other order. */
static void
put_entry(struct blob *tensor, uint32_t number, const char *name, struct blob *value,
          int value_first)
{
    struct blob entry = {0};
    if (!value_first)
        blob_field_text(&entry, 1, name);
    blob_field_blob(&entry, 2, value);
    if (value_first)
        blob_field_text(&entry, 1, name);
    blob_field_blob(tensor, number, &entry);
}

static void
put_text(struct blob *tensor, uint32_t number, const char *name, const char *text)
{
    struct blob value = {0};
    put_string(&value, text);
    put_entry(tensor, number, name, &value, 0);
}

static void
put_number(struct blob *tensor, uint32_t number, const char *name, uint64_t amount)
{
    struct blob value = {0};
    blob_field_varint(&value, 2, amount);
    put_entry(tensor, number, name, &value, 1);
}

static void
put_tensor(struct blob *tensor)
{
    blob_field_text(tensor, 1, "x");
    blob_field_text(tensor, 2, "UINT8");
    blob_field_varint(tensor, 3, 4);
}

static void
put_usual(struct blob *tensor)
{
    put_tensor(tensor);
    put_text(tensor, 4, "shared_memory_region", "r");
    put_number(tensor, 4, "shared_memory_byte_size", 4);
}

/* The last value of a key counts, and the last key of an entry. */
static void
put_repeated(struct blob *tensor)
{
    struct blob entry = {0};
    struct blob value = {0};
    put_number(tensor, 4, "shared_memory_byte_size", 7);
    put_text(tensor, 4, "shared_memory_region", "another");
    put_usual(tensor);
    blob_field_text(&entry, 1, "shared_memory_region");
    blob_field_text(&entry, 1, "a key that no server knows, and a long one at that");
    put_string(&value, "yet another");
    blob_field_blob(&entry, 2, &value);
    blob_field_blob(tensor, 4, &entry);
}

/* A value whose fields repeat is the last of them. */
static void
put_choices(struct blob *tensor)
{
    struct blob value = {0};
    put_usual(tensor);
    put_string(&value, "8");
    blob_field_varint(&value, 5, 8);
    put_entry(tensor, 4, "shared_memory_offset", &value, 0);
}

static void
put_empty_value(struct blob *tensor)
{
    struct blob value = {0};
    put_usual(tensor);
    put_entry(tensor, 4, "shared_memory_offset", &value, 0);
}

static void
put_broken_value(struct blob *tensor)
{
    struct blob value = {0};
    put_usual(tensor);
    blob_field_text(&value, 2, "a number");
    put_entry(tensor, 4, "shared_memory_offset", &value, 0);
}

static void
put_contents(struct blob *tensor)
{
    struct blob contents = {0};
    put_usual(tensor);
    blob_field_varint(&contents, 4, 1);
    blob_field_blob(tensor, 5, &contents);
}

static void
put_wrong_size(struct blob *tensor)
{
    put_usual(tensor);
    put_number(tensor, 4, "shared_memory_byte_size", 5);
}

static const struct {
    void (*put)(struct blob *tensor);
    uint64_t offset;
    const char *error; /* NULL: it is taken */
} cases[] = {
    {put_usual, 0, NULL},
    {put_repeated, 0, NULL},
    {put_choices, 8, NULL},
    {put_empty_value, 0, "parameter \"shared_memory_offset\": must be a number of bytes"},
    {put_broken_value, 0, "parameters: value: int64_param has wire type 2"},
    {put_contents, 0, "tensor \"x\": has contents, and is in shared memory: one or the other"},
    {put_wrong_size, 0, "tensor \"x\": shared_memory_byte_size is 5, UINT8 and the shape want 4"},
};

TEST_CASE(test_messages)
{
    struct oip_request *request = oip_request_create();
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct blob message = {0};
        struct blob tensor = {0};
        struct error error = ERROR_NONE;
        cases[i].put(&tensor);
        blob_field_blob(&message, 5, &tensor);
        struct spans spans = spans_random(message.bytes, message.used);
        enum status status = oip_decode(request, &spans.message, &error);
        if (cases[i].error != NULL) {
            assert_int_equal(status, STATUS_INVALID_ARGUMENT);
            if (strstr(error.text, cases[i].error) == NULL)
                fail_msg("case %zu: %s", i, error.text);
        } else {
            if (status != STATUS_OK)
                fail_msg("case %zu: %s", i, error.text);
            const struct oip_shared *shared = oip_shared_of(request, OIP_INPUT, 0);
            assert_string_equal(shared->region, "r");
            assert_int_equal(shared->offset, cases[i].offset);
            assert_int_equal(shared->bytes, 4);
        }
        spans_free(&spans);
        blob_free(&message);
    }
    oip_request_destroy(request);
}

/* ---- regions ---- */

/* Regions that a request holds outlive their registration, and none outlives the request. */
TEST_CASE(test_held)
{
    struct blob message = {0};
    struct blob tensor = {0};
    struct error error = ERROR_NONE;
    int fd = object_create();
    unsigned before = descriptors();
    struct shared_memory *memory = memory_create(1);
    struct oip_request *request = oip_request_create();
    put_usual(&tensor);
    blob_field_blob(&message, 5, &tensor);
    struct spans spans = spans_whole(&message);
    assert_int_equal(oip_decode(request, &spans.message, &error), STATUS_OK);
    assert_int_equal(oip_hold_shared(request, memory, &error), STATUS_NOT_FOUND);
    assert_int_equal(oip_hold_shared(request, NULL, &error), STATUS_PERMISSION_DENIED);
    assert_int_equal(register_as(memory, "r", &error), STATUS_OK);
    assert_int_equal(register_as(memory, "s", &error), STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(oip_hold_shared(request, memory, &error), STATUS_OK);
    shared_memory_unregister(memory, "");
    assert_int_equal(shared_memory_count(memory), 0);
    assert_int_equal(register_as(memory, "s", &error), STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(descriptors(), before + 1);
    char data[4];
    assert_int_equal(pwrite(fd, "abcd", 4, 0), 4);
    assert_int_equal(oip_read_shared(oip_shared_of(request, OIP_INPUT, 0),
                                     &request->inputs[0].tensor, data, &error),
                     STATUS_OK);
    assert_memory_equal(data, "abcd", 4);
    assert_int_equal(ftruncate(fd, 3), 0);
    assert_int_equal(oip_read_shared(oip_shared_of(request, OIP_INPUT, 0),
                                     &request->inputs[0].tensor, data, &error),
                     STATUS_INVALID_ARGUMENT);
    oip_forget_shared(request);
    oip_forget_shared(request);
    assert_int_equal(descriptors(), before);
    assert_int_equal(ftruncate(fd, OBJECT_BYTES), 0);
    assert_int_equal(register_as(memory, "s", &error), STATUS_OK);
    oip_request_destroy(request);
    shared_memory_destroy(memory);
    spans_free(&spans);
    blob_free(&message);
    close(fd);
    assert_int_equal(shm_unlink(key), 0);
}

static void *
use(void *context)
{
    struct shared_memory *memory = context;
    struct error error = ERROR_NONE;
    char data[16];
    for (int i = 0; i < ROUNDS; i++) {
        struct shared_region *held;
        if (shared_memory_hold(memory, "r", &held, &error) != STATUS_OK)
            continue;
        CHECK(shared_region_check(held, 8, sizeof(data), &error) == STATUS_OK);
        enum status status = shared_region_read(held, 8, data, sizeof(data), &error);
        if (status == STATUS_OK)
            status = shared_region_write(held, 8, data, sizeof(data), &error);
        CHECK(status == STATUS_OK || status == STATUS_INVALID_ARGUMENT); /* cut short */
        shared_region_release(held);
    }
    return NULL;
}

TEST_CASE(test_threads)
{
    pthread_t threads[THREADS];
    struct error error = ERROR_NONE;
    int fd = object_create();
    unsigned before = descriptors();
    struct shared_memory *memory = memory_create(THREADS + 1); /* each thread may hold an old one */
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use, memory), 0);
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(register_as(memory, "r", &error), STATUS_OK);
        assert_int_equal(ftruncate(fd, i % 2 == 0 ? 0 : OBJECT_BYTES), 0);
        shared_memory_unregister(memory, i % 3 == 0 ? "" : "r");
        assert_int_equal(ftruncate(fd, OBJECT_BYTES), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    shared_memory_destroy(memory);
    assert_int_equal(descriptors(), before);
    close(fd);
    assert_int_equal(shm_unlink(key), 0);
}

int
main(void)
{
    random_init();
    return TEST_RUN();
}
