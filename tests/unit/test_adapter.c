/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of built-in adapters: names of folders for ids, and config.pbtxt without the name. */
#include <stdlib.h>
#include <string.h>

#include "../test.h"
#include "base/check.h"
#include "serving/adapter/inside.h"

static const char *
named(const char *id)
{
    static char name[EXTERNAL_NAME_BYTES];
    return layout_name(id, name);
}

TEST_CASE(test_safe_ids_are_names)
{
    static const char *const safe[] = {"a", "iris__isvc-0123456789", "_x", "A.b-c_9"};
    for (size_t i = 0; i < ARRAY_COUNT(safe); i++)
        assert_ptr_equal(named(safe[i]), safe[i]);
}

/* SHA-256 of "..", which anyone can compute. */
TEST_CASE(test_other_ids_have_a_digest)
{
    static const char *const unsafe[] = {".",        ".a",  "-a",   "a/b",        "a b",
                                         "\xc3\xbc", "a\n", "a%20", "id-sha256-", ""};
    char long_id[66];
    memset(long_id, 'x', sizeof(long_id) - 1);
    long_id[65] = '\0';
    assert_string_equal(
        named(".."), "id-sha256-5ec1f7e700f37c3d0b2981d04855fc34b94aaa15457b05ca571817442d228f81");
    for (size_t i = 0; i < ARRAY_COUNT(unsafe); i++)
        assert_memory_equal(named(unsafe[i]), "id-sha256-", 10);
    assert_memory_equal(named(long_id), "id-sha256-", 10);
    long_id[64] = '\0';
    assert_ptr_equal(named(long_id), long_id);
}

static const struct {
    const char *from, *to; /* NULL: malformed */
} configs[] = {
    {"", ""},
    {"name: \"a\"", ""},
    {"name:'a' \"b\"; max_batch_size: 8", " max_batch_size: 8"},
    {"x: 1 name: \"a\" y: 2", "x: 1 y: 2"},
    {"# name: \"a\"\nname : # comment\n \"a\\\"\",y: 2", "# name: \"a\"\ny: 2"},
    {"input [ { name: \"x\" } ] name: \"a\"", "input [ { name: \"x\" } ] "},
    {"input < name: \"x\" >", "input < name: \"x\" >"},
    {"kind: name rename: \"b\" name_x: \"c\"", "kind: name rename: \"b\" name_x: \"c\""},
    {"s: \"name: \\\"a\\\" }\"", "s: \"name: \\\"a\\\" }\""},
    {"name: a", NULL},
    {"name \"a\"", NULL},
    {"name: \"a", NULL},
    {"name: \"a\\", NULL},
    {"x { name: \"a\"", NULL},
    {"x } name: \"a\"", NULL},
    {"s: \"a\nb\"", NULL},
};

TEST_CASE(test_the_name_is_taken_out)
{
    for (size_t i = 0; i < ARRAY_COUNT(configs); i++) {
        char *text = pbtxt_without_name(configs[i].from);
        if (configs[i].to == NULL)
            assert_null(text);
        else
            assert_string_equal(text, configs[i].to);
        free(text);
    }
}

TEST_MAIN()
