/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libetcd with a real etcd keeps the contract: every field that it sends is understood, every
 * default that the gateway leaves out is read as what it is, numbers of 64 bits and any bytes go
 * through, watches come in order, whole, and end when their history is compacted.
 */
#include "contract.h"

static struct cluster cluster;
static struct etcd *etcd;

static struct etcd_call *
real_op(void *store, const struct etcd_op *op, struct etcd_reply reply)
{
    return etcd_op(store, op, reply);
}

static struct etcd_call *
real_txn(void *store, const struct etcd_txn *txn, struct etcd_reply reply)
{
    return etcd_txn(store, txn, reply);
}

static struct etcd_call *
real_compact(void *store, int64_t revision, struct etcd_reply reply)
{
    return etcd_compact(store, revision, reply);
}

static struct etcd_call *
real_grant(void *store, int64_t ttl_s, int64_t lease_id, struct etcd_reply reply)
{
    return etcd_lease_grant(store, ttl_s, lease_id, reply);
}

static struct etcd_call *
real_renew(void *store, int64_t lease_id, struct etcd_reply reply)
{
    return etcd_lease_renew(store, lease_id, reply);
}

static struct etcd_call *
real_revoke(void *store, int64_t lease_id, struct etcd_reply reply)
{
    return etcd_lease_revoke(store, lease_id, reply);
}

static void *
real_watch(void *store, const struct etcd_watch_options *options)
{
    struct etcd_watch *watch = NULL;
    struct error error = ERROR_NONE;
    if (etcd_watch_open(store, options, &watch, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return watch;
}

static void
real_watch_close(void *store, void *watch)
{
    (void)store;
    etcd_watch_close(watch);
}

static void
real_turn(void *store)
{
    (void)store;
    rig_turn();
}

static int
start(void **state)
{
    (void)state;
    cluster_start(&cluster, 1);
    etcd = rig_client(&cluster, (struct etcd_options){.call_timeout_ns = 30 * NS_PER_S});
    done(do_get(etcd, "ready"));
    return 0;
}

static int
stop(void **state)
{
    (void)state;
    etcd_destroy(etcd);
    cluster_stop(&cluster);
    rig_end();
    return 0;
}

TEST_CASE(test_case)
{
    const struct contract_case *one_case = *state;
    struct contract contract = {etcd,       real_op,     real_txn,   real_compact,     real_grant,
                                real_renew, real_revoke, real_watch, real_watch_close, real_turn};
    one_case->run(&contract);
    while (one_case->name != NULL)
        one_case++;
    one_case->run(&contract);
}

int
main(void)
{
    struct CMUnitTest tests[64];
    size_t count = 0;
    for (; contract_cases[count].name != NULL; count++) {
        assert_true(count < ARRAY_COUNT(tests));
        tests[count] = (struct CMUnitTest){
            .name = contract_cases[count].name,
            .test_func = test_case,
            .initial_state = (void *)(uintptr_t)&contract_cases[count],
        };
    }
    return _cmocka_run_group_tests("contract", tests, count, start, stop);
}
