/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reflection's knowledge of proto files: every kind of symbol, at every depth, in a package and in
 * none, leads to its file; imports are followed to the end, each once. On a set of descriptors made
 * here, and on the embedded one, in which every file and service must be found by its own name.
 */
#include "coordinator/protocol/reflection_files.h"
#include "descriptors.h"
#include "test_oip_rig.h"

/* A descriptor of anything: a name, and what is in it. */
static struct blob
named(const char *name)
{
    struct blob blob = {0};
    blob_field_text(&blob, 1, name);
    return blob;
}

static void
put_file(struct blob *set, const char *name, const char *package, const char *const imports[3])
{
    struct blob file = named(name);
    if (package != NULL)
        blob_field_text(&file, 2, package);
    for (int i = 0; i < 3 && imports[i] != NULL; i++)
        blob_field_text(&file, 3, imports[i]);
    char message_name[32];
    snprintf(message_name, sizeof(message_name), "In_%c", name[0]);
    struct blob message = named(message_name);
    blob_field_blob(&file, 4, &message);
    blob_field_blob(set, 1, &file);
}

/* package a.b; message Outer { oneof choice { int32 count = 1; } enum Color { RED } message Inner {
 * message Deep {} } } enum Size { BIG } service Serve { rpc Do } message Out {} */
static void
put_full_file(struct blob *set)
{
    struct blob file = named("full.proto");
    blob_field_text(&file, 2, "a.b");
    struct blob outer = named("Outer");
    struct blob inner = named("Inner");
    struct blob color = named("Color");
    struct blob size = named("Size");
    struct blob service = named("Serve");
    blob_field_blob(&outer, 8, &(struct blob[]){named("choice")}[0]);
    blob_field_blob(&outer, 2, &(struct blob[]){named("count")}[0]);
    blob_field_blob(&inner, 3, &(struct blob[]){named("Deep")}[0]);
    blob_field_blob(&color, 2, &(struct blob[]){named("RED")}[0]);
    blob_field_blob(&size, 2, &(struct blob[]){named("BIG")}[0]);
    blob_field_blob(&service, 2, &(struct blob[]){named("Do")}[0]);
    blob_field_blob(&outer, 3, &inner);
    blob_field_blob(&outer, 4, &color);
    blob_field_blob(&file, 4, &outer);
    blob_field_blob(&file, 5, &size);
    blob_field_blob(&file, 6, &service);
    blob_field_blob(&file, 4, &(struct blob[]){named("Out")}[0]);
    blob_field_blob(set, 1, &file);
}

TEST_CASE(test_symbols)
{
    static const char *const found[] = {
        "a.b.Outer",       "a.b.Outer.Inner",  "a.b.Outer.Inner.Deep", "a.b.Outer.Color",
        "a.b.Outer.RED",   "a.b.Outer.choice", "a.b.Outer.count",      "a.b.Size",
        "a.b.BIG",         "a.b.Serve",        "a.b.Serve.Do",         "a.b.Out",
        ".a.b.Outer.Inner"};
    static const char *const missing[] = {
        "",           "a",          "a.b",           "a.b.",          "a.b.Oute",
        "a.b.OuterX", "a.bOuter",   "a.b.Outer.",    "a.b.Outer.BIG", "a.b.Outer.Deep",
        "a.b.RED",    "a.b.Color",  "a.b.Size.BIG",  "Outer",         "b.Outer",
        "a.b.Do",     "a.b..Outer", "a.b.Serve.Do.x"};
    struct blob bytes = {0};
    put_full_file(&bytes);
    struct reflection_files set;
    reflection_files_read(&set, bytes.bytes, bytes.used);
    for (size_t i = 0; i < ARRAY_COUNT(found); i++)
        if (reflection_file_by_symbol(&set, found[i]) != &set.files[0])
            fail_msg("%s is not found", found[i]);
    for (size_t i = 0; i < ARRAY_COUNT(missing); i++)
        if (reflection_file_by_symbol(&set, missing[i]) != NULL)
            fail_msg("\"%s\" is found", missing[i]);
    blob_free(&bytes);
}

/* a and b import c, c imports d; e is alone. Packages: none, one, and one that begins the other's
 * name. */
TEST_CASE(test_imports)
{
    struct blob bytes = {0};
    put_file(&bytes, "d", NULL, (const char *const[3]){NULL});
    put_file(&bytes, "c", "p", (const char *const[3]){"d", NULL});
    put_file(&bytes, "b", "p.q", (const char *const[3]){"c", NULL});
    put_file(&bytes, "a", "pq", (const char *const[3]){"c", "b", NULL});
    put_file(&bytes, "e", "p", (const char *const[3]){NULL});
    struct reflection_files set;
    reflection_files_read(&set, bytes.bytes, bytes.used);
    static const struct {
        const char *name;
        const char *symbol;
        const char *closure;
    } files[] = {{"a", "pq.In_a", "acbd"},
                 {"b", "p.q.In_b", "bcd"},
                 {"c", "p.In_c", "cd"},
                 {"d", "In_d", "d"},
                 {"e", "p.In_e", "e"}};
    for (size_t i = 0; i < ARRAY_COUNT(files); i++) {
        const struct reflection_file *file = reflection_file_by_name(&set, files[i].name);
        assert_non_null(file);
        assert_ptr_equal(reflection_file_by_symbol(&set, files[i].symbol), file);
        const struct reflection_file *found[REFLECTION_FILES_MAX];
        size_t count = reflection_file_closure(&set, file, found);
        assert_int_equal(count, strlen(files[i].closure));
        for (size_t k = 0; k < count; k++) {
            const char name[] = {files[i].closure[k], '\0'};
            assert_ptr_equal(found[k], reflection_file_by_name(&set, name));
        }
    }
    assert_null(reflection_file_by_name(&set, "f"));
    assert_null(reflection_file_by_name(&set, ""));
    blob_free(&bytes);
}

TEST_CASE(test_embedded)
{
    static char names[REFLECTION_SERVICES_MAX][REFLECTION_NAME_BYTES];
    struct reflection_files set;
    reflection_files_read(&set, shoal_descriptors, shoal_descriptors_size);
    assert_true(set.count >= 4);
    size_t count = reflection_services(&set, names);
    assert_true(count >= 4);
    for (size_t i = 0; i < count; i++)
        assert_non_null(reflection_file_by_symbol(&set, names[i]));
    const struct reflection_file *file =
        reflection_file_by_symbol(&set, "inference.GRPCInferenceService.ModelInfer");
    assert_non_null(file);
    assert_ptr_equal(file, reflection_file_by_name(&set, "inference/open_inference.proto"));
    assert_ptr_equal(file, reflection_file_by_symbol(
                               &set, "inference.ModelInferRequest.InferInputTensor.contents"));
    size_t bytes;
    const unsigned char *data = reflection_file_bytes(file, &bytes);
    assert_true(data > shoal_descriptors &&
                data + bytes <= shoal_descriptors + shoal_descriptors_size);
}

TEST_MAIN()
