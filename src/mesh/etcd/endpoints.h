/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the endpoint to ask, and when to retry a failed one. Pure: time is an argument,
 * randomness comes from a seed.
 *
 *   1. Each client draws an order of endpoints once, so a fleet spreads over them.
 *   2. The current one is kept while it works. There is no return to an earlier one.
 *   3. A failed endpoint is avoided for half to all of a pause that begins at 50 ms and doubles
 *      with each failure in a row, up to a limit.
 *   4. After a failure of the current one, the next in order that is not avoided becomes current;
 *      if all are, the one whose pause ends first.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "mesh/etcd/etcd.h"

struct etcd_endpoint {
    char *url;
    int64_t again_ns;  /* earliest retry */
    uint32_t failures; /* in a row */
    uint8_t behind;    /* its last answer had an old revision */
};

struct etcd_endpoints {
    struct etcd_endpoint list[ETCD_ENDPOINTS_MAX];
    size_t count;
    size_t current;
    int64_t silent_ns; /* since when every endpoint asked has failed; 0: the last one worked */
    int64_t pause_ns_max;
    uint64_t random;
};

/* INVALID_ARGUMENT: one is not an http or https URL of only a host. */
enum status etcd_endpoints_init(struct etcd_endpoints *endpoints,
                                const struct etcd_options *options,
                                struct error *error) WARN_UNUSED;
void etcd_endpoints_fini(struct etcd_endpoints *endpoints);

/* Returns how long until the current endpoint may be asked; 0: now. */
int64_t etcd_endpoints_wait_ns(const struct etcd_endpoints *endpoints, int64_t now_ns);
void etcd_endpoints_failed(struct etcd_endpoints *endpoints, size_t index, int64_t now_ns);
void etcd_endpoints_worked(struct etcd_endpoints *endpoints, size_t index);

/* Returns a random time between half of `ns` and `ns`. */
int64_t etcd_endpoints_jitter(struct etcd_endpoints *endpoints, int64_t ns);
