/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/etcd/client.h"
#include "mesh/etcd/request.h"

struct etcd_call *
etcd_op(struct etcd *etcd, const struct etcd_op *op, struct etcd_reply reply)
{
    static const char *const paths[] = {
        [ETCD_RANGE] = "/v3/kv/range",
        [ETCD_PUT] = "/v3/kv/put",
        [ETCD_DELETE] = "/v3/kv/deleterange",
    };
    static const enum etcd_answer_kind kinds[] = {
        [ETCD_RANGE] = ETCD_KIND_RANGE,
        [ETCD_PUT] = ETCD_KIND_PUT,
        [ETCD_DELETE] = ETCD_KIND_DELETE,
    };
    bool reads = op->kind == ETCD_RANGE;
    bool old_is_fine = !reads || op->freshness == ETCD_SERIALIZABLE;
    struct etcd_call_plan plan = {
        .path = paths[op->kind],
        .kind = kinds[op->kind],
        .effect = reads ? ETCD_CALL_READS : ETCD_CALL_WRITES,
        .floor = old_is_fine ? ETCD_FLOOR_NONE : ETCD_FLOOR_KNOWN,
        .takes_space = {false, op->kind == ETCD_PUT},
        .reply = reply,
    };
    etcd_request_op(&plan.body, op);
    return etcd_call_start(etcd, &plan);
}

static bool
only_reads(const struct etcd_op *ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ops[i].kind != ETCD_RANGE)
            return false;
    return true;
}

static bool
any_puts(const struct etcd_op *ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ops[i].kind == ETCD_PUT)
            return true;
    return false;
}

static bool
any_old_is_fine(const struct etcd_op *ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ops[i].freshness == ETCD_SERIALIZABLE)
            return true;
    return false;
}

struct etcd_call *
etcd_txn(struct etcd *etcd, const struct etcd_txn *txn, struct etcd_reply reply)
{
    bool reads = only_reads(txn->success, txn->success_count) &&
                 only_reads(txn->failure, txn->failure_count);
    bool old_is_fine = !reads || any_old_is_fine(txn->success, txn->success_count) ||
                       any_old_is_fine(txn->failure, txn->failure_count);
    struct etcd_call_plan plan = {
        .path = "/v3/kv/txn",
        .kind = ETCD_KIND_TXN,
        .effect = reads ? ETCD_CALL_READS : ETCD_CALL_WRITES,
        .floor = old_is_fine ? ETCD_FLOOR_NONE : ETCD_FLOOR_KNOWN,
        .takes_space = {any_puts(txn->failure, txn->failure_count),
                        any_puts(txn->success, txn->success_count)},
        .response_counts = {txn->failure_count, txn->success_count},
        .reply = reply,
    };
    etcd_request_txn(&plan.body, txn);
    return etcd_call_start(etcd, &plan);
}

struct etcd_call *
etcd_compact(struct etcd *etcd, int64_t revision, struct etcd_reply reply)
{
    struct etcd_call_plan plan = {
        .path = "/v3/kv/compaction",
        .kind = ETCD_KIND_HEADER,
        .effect = ETCD_CALL_WRITES,
        .reply = reply,
    };
    etcd_request_compact(&plan.body, revision);
    return etcd_call_start(etcd, &plan);
}

struct etcd_call *
etcd_lease_grant(struct etcd *etcd, int64_t ttl_s, int64_t lease_id, struct etcd_reply reply)
{
    struct etcd_call_plan plan = {
        .path = "/v3/lease/grant",
        .kind = ETCD_KIND_LEASE,
        .effect = ETCD_CALL_WRITES,
        .takes_space = {false, true},
        .reply = reply,
    };
    etcd_request_grant(&plan.body, ttl_s, lease_id);
    return etcd_call_start(etcd, &plan);
}

struct etcd_call *
etcd_lease_renew(struct etcd *etcd, int64_t lease_id, struct etcd_reply reply)
{
    struct etcd_call_plan plan = {
        .path = "/v3/lease/keepalive",
        .kind = ETCD_KIND_RENEW,
        .effect = ETCD_CALL_READS, /* a second renewal is harmless */
        .lane = ETCD_LANE_OWN,
        .reply = reply,
    };
    etcd_request_lease(&plan.body, lease_id);
    return etcd_call_start(etcd, &plan);
}

struct etcd_call *
etcd_lease_revoke(struct etcd *etcd, int64_t lease_id, struct etcd_reply reply)
{
    struct etcd_call_plan plan = {
        .path = "/v3/lease/revoke",
        .kind = ETCD_KIND_HEADER,
        .effect = ETCD_CALL_WRITES,
        .reply = reply,
    };
    etcd_request_lease(&plan.body, lease_id);
    return etcd_call_start(etcd, &plan);
}
