/* SPDX-License-Identifier: Apache-2.0 */
/* Requests in the gateway's JSON. Pure; the caller owns the bytes. */
#pragma once

#include "base/bytes.h"
#include "mesh/etcd/etcd.h"

void etcd_request_op(struct bytes *out, const struct etcd_op *op);
void etcd_request_txn(struct bytes *out, const struct etcd_txn *txn);
void etcd_request_compact(struct bytes *out, int64_t revision);
void etcd_request_grant(struct bytes *out, int64_t ttl_s, int64_t lease_id);
void etcd_request_lease(struct bytes *out, int64_t lease_id); /* renew, revoke */
void etcd_request_token(struct bytes *out, const char *user, const char *password);
/* One of several on a stream: ids start at 1, because answers omit 0. */
void etcd_request_watch(struct bytes *out, const struct etcd_range *range, int64_t watch_id,
                        int64_t revision);

/* The part of a range after `last`, a key in it; free it with etcd_range_free. */
struct etcd_range etcd_range_rest(const struct etcd_range *range, struct etcd_bytes last);

/* A copy of a range including its bytes; free it with etcd_range_free. */
struct etcd_range etcd_range_copy(const struct etcd_range *range);
void etcd_range_free(struct etcd_range *range);
