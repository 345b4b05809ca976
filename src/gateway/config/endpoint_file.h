/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of endpoints, in the format of llm-d's file-discovery:
 *
 *     endpoints:
 *       - { name: a, address: 10.0.0.1, port: "8000" }
 *
 * An address is IPv4 or IPv6, or a name. `metricsPort` is where /metrics is, `grpcPort` where gRPC
 * is, if not at the port.
 * `scheme: https` is TLS; the server's certificate must have the name that `serverName` says, else
 * the address. Entries whose `labels` do not pass the scheduler's filters are left out;
 * pools select by them, too. `namespace` is accepted and not used.
 *
 * With `mesh: { labels: [a] }` in place of an address it stands for the nodes of the mesh that have
 * these labels, each at that port.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "gateway/config/label_config.h"

enum {
    ENDPOINT_NAME_BYTES = 128,
    ENDPOINT_ADDRESS_BYTES = 64,
    ENDPOINT_HOST_BYTES = 254,
    ENDPOINT_LABELS_BYTES = 1024,
};

struct endpoint_entry {
    char name[ENDPOINT_NAME_BYTES];
    char address[ENDPOINT_ADDRESS_BYTES]; /* "10.0.0.1:8000", "[::1]:8000" */
    char metrics_address[ENDPOINT_ADDRESS_BYTES];
    char grpc_address[ENDPOINT_ADDRESS_BYTES];
    char host[ENDPOINT_HOST_BYTES];          /* a name, and the addresses are empty; else empty */
    bool is_mesh;                            /* nodes of the mesh; addresses and host are empty */
    char mesh_labels[ENDPOINT_LABELS_BYTES]; /* that they have: ",a,b,"; "," for any node */
    uint16_t port;
    uint16_t metrics_port;
    uint16_t grpc_port;
    uint64_t label;                     /* what header-label-affinity-scorer compares; 0: nothing */
    char tls_name[ENDPOINT_NAME_BYTES]; /* the name in its certificate; empty: no TLS */
    char labels[ENDPOINT_LABELS_BYTES]; /* "\nkey=value\nkey=value\n"; empty: none */
};

/* Makes it the entry of that address, or of a name. False: it is neither. */
bool endpoint_entry_place(struct endpoint_entry *entry, const char *host);
/* Makes it the entry of that address. */
void endpoint_entry_resolve(struct endpoint_entry *entry, const char *address);
/* Reads at most `max` entries into `entries`. INVALID_ARGUMENT with path, line and mistake; more
 * entries, and two with one name or address, are mistakes. */
enum status endpoint_file_read(const char *path, const struct label_config *labels, uint32_t max,
                               struct endpoint_entry *entries, uint32_t *count,
                               struct error *error) WARN_UNUSED;
