/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_store.h"

#include "base/bytes.h"
#include "base/check.h"
#include "mesh/etcd/etcd.h"
#include "mesh/record/keys.h"

static enum status
connect(struct loop *loop, const struct etcd_place *place, uint64_t seed, struct etcd **etcd,
        struct error *error)
{
    const struct etcd_options options = {
        .endpoints = (const char *const *)place->endpoints,
        .endpoint_count = place->endpoint_count,
        .user = place->user,
        .password = place->password,
        .ca_file = place->ca_file,
        .cert_file = place->cert_file,
        .key_file = place->key_file,
        .ca_pem = place->ca_pem,
        .cert_pem = place->cert_pem,
        .key_pem = place->key_pem,
        .key_password = place->key_password,
        .seed = seed,
    };
    return etcd_create(loop_base(loop), &options, etcd, error);
}

static enum status
open_there(const struct config_mesh *config, struct loop *loop, const struct store_options *options,
           const char *root, struct mesh_store *store, struct error *error)
{
    struct bytes prefix = {0};
    enum status status = record_prefix(root, config->prefix, config->service, &prefix, error);
    if (status == STATUS_OK) {
        bytes_put_char(&prefix, '\0');
        CHECK(!prefix.failed);
        struct store_etcd_options etcd = {
            .etcd = store->etcd, .prefix = prefix.data, .waiting_max = config->store_waiting_max};
        status = store_open_etcd(loop_base(loop), options, &etcd, &store->store, error);
    }
    bytes_fini(&prefix);
    return status;
}

enum status
mesh_store_place(const struct config_mesh *config, struct etcd_place *place, struct error *error)
{
    switch (config->store_kind) {
    case CONFIG_STORE_ENDPOINTS: return etcd_place_parse(config->store_place, place, error);
    case CONFIG_STORE_ETCD_FILE: return etcd_place_load(config->store_place, place, error);
    case CONFIG_STORE_MEMORY:
    case CONFIG_STORE_FILE: break;
    }
    *place = (struct etcd_place){0};
    return STATUS_OK;
}

static enum status
open_etcd(const struct config_mesh *config, struct loop *loop, const struct store_options *options,
          uint64_t seed, struct mesh_store *store, struct error *error)
{
    struct etcd_place place;
    enum status status = mesh_store_place(config, &place, error);
    if (status == STATUS_OK)
        status = connect(loop, &place, seed, &store->etcd, error);
    if (status == STATUS_OK)
        status = open_there(config, loop, options, place.root, store, error);
    etcd_place_fini(&place);
    return status;
}

enum status
mesh_store_open(const struct config_mesh *config, struct loop *loop,
                const struct store_events *events, uint64_t seed, struct mesh_store *store,
                struct error *error)
{
    const struct store_options options = {.instance = config->instance, .events = events};
    enum status status = STATUS_OK;
    *store = (struct mesh_store){0};
    switch (config->store_kind) {
    case CONFIG_STORE_MEMORY:
        status = store_open_memory(loop_base(loop), &options, &store->store, error);
        break;
    case CONFIG_STORE_FILE:
        status =
            store_open_file(loop_base(loop), &options, config->store_place, &store->store, error);
        break;
    case CONFIG_STORE_ENDPOINTS:
    case CONFIG_STORE_ETCD_FILE:
        status = open_etcd(config, loop, &options, seed, store, error);
        break;
    }
    return status == STATUS_OK ? STATUS_OK : error_prefix(error, "mesh: store");
}

bool
mesh_store_is_full(const struct mesh_store *store)
{
    return store->etcd != NULL && etcd_is_full(store->etcd);
}

int64_t
mesh_store_silent_ns(const struct mesh_store *store)
{
    return store->etcd != NULL ? etcd_silent_ns(store->etcd) : 0;
}

void
mesh_store_close(struct mesh_store *store)
{
    store_close(store->store);
    etcd_destroy(store->etcd);
    *store = (struct mesh_store){0};
}
