/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where mmesh.ModelRuntime is served: for lists of `listen` and `runtime`, the addresses of a
 * server of its own, whether the front has it too, the clients that the front then answers, and
 * which lists are refused because an address would load models that `runtime` does not name.
 */

#include <stdio.h>
#include <string.h>

#include "../test.h"
#include "base/check.h"
#include "coordinator/models/runtime_place.h"

enum { LIST_MAX = 4 };

struct place_case {
    const char *listen[LIST_MAX];
    const char *runtime[LIST_MAX];
    const char *own; /* separated by spaces; "::1" only where there is IPv6; NULL: refused */
    bool at_front;
    bool front_is_local;
};

static const struct place_case cases[] = {
    {{"port:8033"}, {"127.0.0.1:8085"}, "127.0.0.1:8085", false, true},
    {{"port:8033"}, {"port:8085"}, "127.0.0.1:8085 [::1]:8085", false, true},
    {{"port:0"}, {"port:0"}, "127.0.0.1:0", false, true},
    {{"port:8033"}, {"0.0.0.0:8085", "unix:/r"}, "0.0.0.0:8085 unix:/r", false, true},
    {{"unix:/g"}, {"unix:/r"}, "unix:/r", false, true},
    /* one endpoint */
    {{"unix:/g"}, {"unix:/g"}, "", true, true},
    {{"unix:/g"}, {"unix:/g", "127.0.0.1:8085"}, "127.0.0.1:8085", true, true},
    {{"unix:/g", "port:8085"}, {"unix:/g", "port:8085"}, "", true, true},
    {{"port:8085"}, {"port:8085"}, "", true, true},
    {{"port:8085"}, {"127.0.0.1:8085"}, "", true, true},
    {{"port:8085"}, {"[::1]:8085"}, "", true, true},
    {{"0.0.0.0:8085"}, {"port:8085"}, "", true, true},
    {{"[::]:8085"}, {"port:8085"}, "", true, true},
    {{"127.0.0.1:8085"}, {"port:8085"}, "", true, true},
    {{"localhost:8085"}, {"[::1]:8085"}, "", true, true},
    {{"port:8085"}, {"0.0.0.0:8085"}, "", true, false},
    {{"port:8085"}, {"port:8085", "192.0.2.1:8085"}, "", true, false},
    {{"192.0.2.1:8085"}, {"192.0.2.1:8085"}, "", true, false},
    /* the same port, and not the same place */
    {{"192.0.2.1:8085"}, {"port:8085"}, "127.0.0.1:8085 [::1]:8085", false, true},
    {{"127.0.0.1:8085"}, {"192.0.2.1:8085"}, "192.0.2.1:8085", false, true},
    {{"127.0.0.1:8085"}, {"0.0.0.0:8085"}, "0.0.0.0:8085", false, true},
    /* more than was asked for */
    {{"unix:/g", "port:8033"}, {"unix:/g"}, NULL, false, false},
    {{"port:8085", "unix:/g"}, {"port:8085"}, NULL, false, false},
    {{"port:8033", "port:8085"}, {"port:8085", "unix:/r"}, NULL, false, false},
};

static uint32_t
count_of(const char *const *list)
{
    uint32_t count = 0;
    while (count < LIST_MAX && list[count] != NULL)
        count++;
    return count;
}

/* The expected parts, without those that this kernel lacks. */
static void
check_own(const struct place_case *one, const struct runtime_place *place)
{
    char joined[LIST_MAX * RUNTIME_ADDRESS_BYTES] = "";
    for (uint32_t i = 0; i < place->own_count; i++) {
        size_t used = strlen(joined);
        snprintf(joined + used, sizeof(joined) - used, "%s%s", i > 0 ? " " : "", place->own[i]);
    }
    const char *second = strstr(one->own, " [::1]");
    if (second != NULL && strstr(joined, "[::1]") == NULL)
        assert_memory_equal(joined, one->own, (size_t)(second - one->own));
    else
        assert_string_equal(joined, one->own);
}

static void
check_case(const struct place_case *one)
{
    struct config_addresses runtime = {.count = count_of(one->runtime)};
    struct runtime_place place;
    struct error error = ERROR_NONE;
    for (uint32_t i = 0; i < runtime.count; i++)
        runtime.items[i] = (char *)(uintptr_t)one->runtime[i];
    enum status status =
        runtime_place_find(&runtime, one->listen, count_of(one->listen), &place, &error);
    if (one->own == NULL) {
        assert_int_equal(status, STATUS_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, one->runtime[0]));
        return;
    }
    assert_int_equal(status, STATUS_OK);
    assert_int_equal(place.at_front, one->at_front);
    assert_int_equal(place.front_is_local, one->front_is_local);
    check_own(one, &place);
}

TEST_CASE(test_places)
{
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        print_message("case %zu: %s, %s\n", i, cases[i].listen[0], cases[i].runtime[0]);
        check_case(&cases[i]);
    }
}

/* A host that is as long as an address can have it. */
TEST_CASE(test_long_host)
{
    char address[300];
    memset(address, 'h', 255);
    snprintf(address + 255, sizeof(address) - 255, ":65535");
    check_case(&(struct place_case){{"port:1"}, {address}, address, false, true});
}

TEST_CASE(test_peers)
{
    static const char *const near[] = {"unix:", "ipv4:127.0.0.1", "ipv4:127.8.9.1", "ipv6:[::1]",
                                       "ipv6:%5B::1%5D"};
    static const char *const far[] = {
        "", "unix", "ipv4:192.0.2.1", "ipv4:12.7.0.1", "ipv6:[::12]", "ipv6:[fe80::1]", "tcp:x"};
    for (size_t i = 0; i < ARRAY_COUNT(near); i++)
        assert_true(runtime_peer_is_local(near[i], strlen(near[i])));
    for (size_t i = 0; i < ARRAY_COUNT(far); i++)
        assert_false(runtime_peer_is_local(far[i], strlen(far[i])));
    assert_false(runtime_peer_is_local("ipv4:127.0.0.1", strlen("ipv4:127")));
}

TEST_MAIN()
