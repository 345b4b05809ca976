/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of a node of a mesh, by its configuration: in memory, in a file, in etcd. Loop thread.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "coordinator/config/config.h"
#include "loop/loop.h"
#include "mesh/store/store.h"

struct mesh_store {
    struct store *store;
    struct etcd *etcd; /* NULL: it is not in etcd */
};

/* The error names the key or the file, and what is wrong there. */
enum status mesh_store_open(const struct config_mesh *config, struct loop *loop,
                            const struct store_events *events, uint64_t seed,
                            struct mesh_store *store, struct error *error) WARN_UNUSED;
void mesh_store_close(struct mesh_store *store);

/* Returns whether it refuses writes for lack of space. */
bool mesh_store_is_full(const struct mesh_store *store);
/* The time since which etcd has not answered, on clock_now_ns; 0: it answers. */
int64_t mesh_store_silent_ns(const struct mesh_store *store);

/* ---- where etcd is ---- */

enum { MESH_ENDPOINTS_MAX = 16 };

struct etcd_place {
    char *endpoints[MESH_ENDPOINTS_MAX];
    uint32_t endpoint_count;
    char *root; /* of all keys; "": none */
    char *user; /* this and the others: NULL: none */
    char *password;
    char *ca_file;
    char *cert_file;
    char *key_file;
    char *ca_pem; /* this and the next two: PEM text, used without the file */
    char *cert_pem;
    char *key_pem;
    char *key_password_file;
    char *key_password; /* the file's content */
};

/* "http://a:2379,b:2379;rootPrefix=/x". */
enum status etcd_place_parse(const char *text, struct etcd_place *place,
                             struct error *error) WARN_UNUSED;
/* The JSON file that KServe's deployments mount. */
enum status etcd_place_load(const char *path, struct etcd_place *place,
                            struct error *error) WARN_UNUSED;
/* The configuration's place; without endpoints if the store is not in etcd. */
enum status mesh_store_place(const struct config_mesh *config, struct etcd_place *place,
                             struct error *error) WARN_UNUSED;
/* Call after any result. */
void etcd_place_fini(struct etcd_place *place);
