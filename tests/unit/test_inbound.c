/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call that came in by a way of its own: the id that its metadata give, and its caller, by
 * certificate, metadata or address, in that order, for each entry's knowledge.
 */
#include <string.h>

#include "../test.h"
#include "coordinator/entry/caller.h"
#include "coordinator/entry/inbound.h"

enum { ENTRIES_MAX = 4 };

struct given {
    const char *keys[ENTRIES_MAX];
    const char *values[ENTRIES_MAX];
    const char *name; /* in its certificate; NULL: none was shown */
    const char *address;
};

static bool
metadata(const void *call, const char *key, size_t *position, struct wire_span *value)
{
    const struct given *given = call;
    while (*position < ENTRIES_MAX && given->keys[*position] != NULL) {
        size_t at = (*position)++;
        *value = (struct wire_span){given->values[at], strlen(given->values[at])};
        if (strcmp(given->keys[at], key) == 0)
            return true;
    }
    return false;
}

static bool
names(const void *call, void (*take)(void *context, const void *name, size_t bytes), void *context)
{
    const struct given *given = call;
    if (given->name != NULL)
        take(context, given->name, strlen(given->name));
    return given->name != NULL;
}

static size_t
address(const void *call, char *text, size_t room)
{
    const struct given *given = call;
    size_t bytes = strlen(given->address);
    assert_true(bytes <= room);
    memcpy(text, given->address, bytes);
    return bytes;
}

static const struct inbound_type knows_all = {
    .metadata = metadata, .names = names, .address = address};
static const struct inbound_type knows_metadata = {.metadata = metadata};

/* ---- the id ---- */

struct id_case {
    struct given given;
    const char *wanted; /* NULL: refused */
    const char *text;
};

#define M "mm-model-id"
#define DIFFERENT                                                                                  \
    "metadata mm-model-id and mm-model-id-bin name different models: give one of them, once"

static const struct id_case id_cases[] = {
    {{.keys = {"other"}, .values = {"x"}}, "", NULL},
    {{.keys = {"other", M}, .values = {"x", "m"}}, "m", NULL},
    {{.keys = {M "-bin"}, .values = {"h\xc3\xa4ns"}}, "h\xc3\xa4ns", NULL},
    {{.keys = {M, M, M "-bin"}, .values = {"m", "m", "m"}}, "m", NULL},
    {{.keys = {M, M "-bin"}, .values = {"m", "n"}}, NULL, DIFFERENT},
    {{.keys = {M, M}, .values = {"m", "mm"}}, NULL, DIFFERENT},
    {{.keys = {M}, .values = {""}}, NULL, "metadata mm-model-id is empty"},
    {{.keys = {M, M "-bin"}, .values = {"m", ""}}, NULL, "metadata mm-model-id-bin is empty"},
    {{.keys = {M}, .values = {"\xff"}},
     NULL,
     "metadata mm-model-id: a model's id must be UTF-8 without a zero byte"},
};

TEST_CASE(test_id)
{
    for (size_t i = 0; i < sizeof(id_cases) / sizeof(id_cases[0]); i++) {
        struct given given = id_cases[i].given;
        const struct inbound inbound = {.type = &knows_metadata, .call = &given};
        struct target_id id;
        struct error error = ERROR_NONE;
        enum status status = inbound_id(&inbound, &id, &error);
        if (id_cases[i].wanted == NULL) {
            assert_int_equal(status, STATUS_INVALID_ARGUMENT);
            assert_string_equal(error.text, id_cases[i].text);
        } else {
            assert_int_equal(status, STATUS_OK);
            assert_int_equal(id.bytes, strlen(id_cases[i].wanted));
            assert_memory_equal(id.text, id_cases[i].wanted, id.bytes);
        }
    }
}

TEST_CASE(test_id_too_long)
{
    char text[SHOAL_NAME_BYTES_MAX + 2];
    memset(text, 'n', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    struct given given = {.keys = {M}, .values = {text}};
    const struct inbound inbound = {.type = &knows_metadata, .call = &given};
    struct target_id id;
    struct error error = ERROR_NONE;
    assert_int_equal(inbound_id(&inbound, &id, &error), STATUS_INVALID_ARGUMENT);
    assert_string_equal(error.text,
                        "metadata mm-model-id: a model's id has at most 127 bytes, not 128");
}

/* ---- the caller ---- */

static uint64_t
caller(const struct callers *callers, const struct inbound_type *type, const char *name,
       const char *metadata_name)
{
    struct given given = {.name = name, .address = "ipv4:192.0.2.7"};
    if (metadata_name != NULL) {
        given.keys[0] = "who";
        given.values[0] = metadata_name;
    }
    const struct inbound inbound = {.type = type, .call = &given};
    return caller_of(callers, &inbound);
}

TEST_CASE(test_caller)
{
    struct callers callers = {
        .key = {{1, 2}}, .metadata = "who", .proxies = "proxy,other", .asks = true};
    uint64_t by_name = caller(&callers, &knows_all, "CN=one", NULL);
    uint64_t by_metadata = caller(&callers, &knows_all, NULL, "one");
    uint64_t by_address = caller(&callers, &knows_all, NULL, NULL);
    assert_true(by_name != by_metadata && by_name != by_address && by_metadata != by_address);
    assert_true(by_name != 0 && by_metadata != 0 && by_address != 0);
    /* a certificate comes before metadata, but for that of a proxy */
    assert_true(caller(&callers, &knows_all, "CN=one", "anybody") == by_name);
    assert_true(caller(&callers, &knows_all, "proxy", "one") == by_metadata);
    assert_true(caller(&callers, &knows_all, "proxy", NULL) ==
                caller(&callers, &knows_all, "proxy", NULL));
    assert_true(caller(&callers, &knows_all, "proxy", NULL) != by_address);
    /* a name in metadata is never taken for one in a certificate */
    assert_true(caller(&callers, &knows_all, NULL, "CN=one") != by_name);
    /* the same for every entry with the same knowledge */
    assert_true(caller(&callers, &knows_metadata, NULL, "one") == by_metadata);
    assert_true(caller(&callers, &knows_metadata, "CN=one", NULL) == 0);
    /* nobody is asked for certificates */
    callers.asks = false;
    assert_true(caller(&callers, &knows_all, "CN=one", NULL) == by_address);
}

TEST_MAIN()
