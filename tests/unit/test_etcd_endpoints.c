/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which endpoint is asked when: on a scripted clock, with many seeds. A fleet spreads; a failing
 * endpoint is left out for a pause that grows, up to its limit; the next that is free is taken, and
 * kept.
 */
#include <string.h>

#include "../test.h"
#include "base/clock.h"
#include "mesh/etcd/endpoints.h"

#define PAUSE_NS_MAX NS_PER_S

static const char *const urls[] = {"http://a:1", "https://b:2/", "http://c:3"};

static struct etcd_endpoints
make(uint64_t seed)
{
    struct etcd_options options = {
        .endpoints = urls, .endpoint_count = 3, .seed = seed, .retry_ns_max = PAUSE_NS_MAX};
    struct etcd_endpoints endpoints;
    struct error error = ERROR_NONE;
    assert_int_equal(etcd_endpoints_init(&endpoints, &options, &error), STATUS_OK);
    return endpoints;
}

TEST_CASE(fleet_spreads)
{
    size_t first[3] = {0};
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct etcd_endpoints endpoints = make(seed);
        first[strchr("abc", *(strstr(endpoints.list[0].url, "//") + 2)) - "abc"]++;
        etcd_endpoints_fini(&endpoints);
    }
    for (size_t i = 0; i < 3; i++)
        assert_in_range(first[i], 60, 140);
}

TEST_CASE(next_is_taken_and_kept)
{
    struct etcd_endpoints endpoints = make(1);
    int64_t now_ns = NS_PER_S;
    assert_int_equal(endpoints.current, 0);
    etcd_endpoints_failed(&endpoints, 0, now_ns);
    assert_int_equal(endpoints.current, 1);
    assert_int_equal(etcd_endpoints_wait_ns(&endpoints, now_ns), 0);
    etcd_endpoints_failed(&endpoints, 0, now_ns); /* another call's, late: no reason to move */
    assert_int_equal(endpoints.current, 1);
    now_ns += 10 * NS_PER_S;
    etcd_endpoints_worked(&endpoints, 1);
    assert_int_equal(endpoints.current, 1);
    etcd_endpoints_failed(&endpoints, 1, now_ns);
    assert_int_equal(endpoints.current, 2);
    etcd_endpoints_failed(&endpoints, 2, now_ns);
    assert_int_equal(endpoints.current, 0); /* its pause is over */
    assert_int_equal(etcd_endpoints_wait_ns(&endpoints, now_ns), 0);
    etcd_endpoints_fini(&endpoints);
}

TEST_CASE(pauses_grow)
{
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct etcd_endpoints endpoints = make(seed);
        int64_t now_ns = NS_PER_S;
        int64_t whole_ns = 50LL * NS_PER_MS;
        for (int i = 0; i < 100; i++) {
            etcd_endpoints_failed(&endpoints, 1, now_ns);
            int64_t pause_ns = endpoints.list[1].again_ns - now_ns;
            assert_in_range(pause_ns, whole_ns / 2, whole_ns);
            whole_ns = whole_ns * 2 > PAUSE_NS_MAX ? PAUSE_NS_MAX : whole_ns * 2;
        }
        etcd_endpoints_worked(&endpoints, 1);
        etcd_endpoints_failed(&endpoints, 1, now_ns);
        assert_in_range(endpoints.list[1].again_ns - now_ns, 1, 50LL * NS_PER_MS);
        etcd_endpoints_fini(&endpoints);
    }
}

TEST_CASE(all_fail)
{
    struct etcd_endpoints endpoints = make(3);
    int64_t now_ns = NS_PER_S;
    for (int i = 0; i < 30; i++)
        etcd_endpoints_failed(&endpoints, endpoints.current, now_ns);
    int64_t wait_ns = etcd_endpoints_wait_ns(&endpoints, now_ns);
    for (size_t i = 0; i < 3; i++)
        assert_true(wait_ns <=
                    endpoints.list[i].again_ns - now_ns); /* the one that is free first */
    assert_in_range(wait_ns, 1, PAUSE_NS_MAX);
    etcd_endpoints_fini(&endpoints);
}

TEST_MAIN()
