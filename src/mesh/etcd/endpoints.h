/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which endpoint is asked, and when one that failed is asked again. Pure: the time is an argument,
 * chance comes from a seed.
 *
 *   1. The endpoints are in an order of the client's own, drawn once: a fleet spreads over them.
 *   2. One is the current one as long as it does its part. There is no going back to an earlier
 * one.
 *   3. Who fails is left out for a while: between half of and a whole pause, which begins at 50 ms
 *      and doubles with each failure in a row, up to a limit.
 *   4. After a failure of the current one the next in order that is not left out becomes current;
 *      if all are, the one that is so for the shortest time.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "mesh/etcd/etcd.h"

struct etcd_endpoint {
    char *url;
    int64_t again_ns;  /* not before */
    uint32_t failures; /* in a row */
    uint8_t behind;    /* its last answer was of an old revision */
};

struct etcd_endpoints {
    struct etcd_endpoint list[ETCD_ENDPOINTS_MAX];
    size_t count;
    size_t current;
    int64_t silent_ns; /* since when each that was asked has failed; 0: the last one worked */
    int64_t pause_ns_max;
    uint64_t random;
};

/* INVALID_ARGUMENT: one is no http or https URL of a host alone. */
enum status etcd_endpoints_init(struct etcd_endpoints *endpoints,
                                const struct etcd_options *options,
                                struct error *error) WARN_UNUSED;
void etcd_endpoints_fini(struct etcd_endpoints *endpoints);

/* How long until the current one may be asked; 0: now. */
int64_t etcd_endpoints_wait_ns(const struct etcd_endpoints *endpoints, int64_t now_ns);
void etcd_endpoints_failed(struct etcd_endpoints *endpoints, size_t index, int64_t now_ns);
void etcd_endpoints_worked(struct etcd_endpoints *endpoints, size_t index);

/* Between half of `ns` and all of it. */
int64_t etcd_endpoints_jitter(struct etcd_endpoints *endpoints, int64_t ns);
