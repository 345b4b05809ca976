/* SPDX-License-Identifier: Apache-2.0 */
/* Two servers, because credentials belong to a server; the one in the clear is always there. */
#include "coordinator/mesh/mesh_management.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/mesh/mesh_manage.h"
#include "coordinator/mesh/mesh_manifests.h"
#include "coordinator/protocol/services.h"
#include "ipc/control.h"

enum {
    ARMED_CALLS = 8,
    CONCURRENT_STREAMS_MAX = 1024,
    SERVICES_COUNT = 4,
    METHOD_COUNT = SERVICES_COUNT + MESH_METHOD_COUNT + MANIFESTS_METHOD_COUNT,
};

/* The time that answers under way have at the end, as at the front. */
#define LAST_ANSWERS_NS (NS_PER_S / 2)

struct mesh_management {
    struct services services; /* first: SERVICES_METHODS wants it so */
    struct management_options options;
    struct rpc_method plain_methods[METHOD_COUNT];
    struct rpc_method secured_methods[METHOD_COUNT];
    struct rpc_server *plain;
    struct rpc_server *secured; /* NULL: no address has TLS */
};

/* ---- which address where ---- */

static bool
is_in(const char *address, const char *const *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(address, list[i]) == 0)
            return true;
    return false;
}

/* The front is one server: it serves the same on all of its addresses. */
static enum status
find_front(const struct config_management *management, const char *const *listen,
           uint32_t listen_count, struct management_place *place, struct error *error)
{
    const struct config_addresses *addresses = &management->addresses;
    const char *shared = NULL;
    const char *other = NULL;
    for (uint32_t i = 0; i < listen_count; i++)
        if (is_in(listen[i], (const char *const *)addresses->items, addresses->count))
            shared = listen[i];
        else
            other = listen[i];
    place->at_front = management->on_listen || shared != NULL;
    if (shared == NULL || other == NULL)
        return STATUS_OK;
    return error_set(
        error, STATUS_INVALID_ARGUMENT,
        "`mesh: management`: %s is also in `listen`, all of whose addresses would then manage "
        "models: name %s there too, or give `management` addresses of its own",
        shared, other);
}

static bool
is_secured(const struct config *config, uint32_t index)
{
    const struct config_addresses *addresses = &config->mesh.management.addresses;
    const char *plain = addresses->transports[index].plain;
    return config->tls.certificate != NULL && strncmp(addresses->items[index], "unix:", 5) != 0 &&
           (plain == NULL || strcmp(plain, "yes") != 0);
}

enum status
management_place_find(const struct config *config, const char *counters_path,
                      const char *const *listen, uint32_t listen_count,
                      struct management_place *place, struct error *error)
{
    const struct config_management *management = &config->mesh.management;
    static const char unix_prefix[] = "unix:";
    const size_t prefix = sizeof(unix_prefix) - 1;
    *place = (struct management_place){.plain_count = 0};
    memcpy(place->beside, unix_prefix, sizeof(unix_prefix));
    enum status status = control_manage_path(counters_path, place->beside + prefix,
                                             sizeof(place->beside) - prefix, error);
    if (status == STATUS_OK)
        status = find_front(management, listen, listen_count, place, error);
    if (status != STATUS_OK)
        return status;
    place->plain[place->plain_count++] = place->beside;
    for (uint32_t i = 0; i < management->addresses.count; i++) {
        const char *address = management->addresses.items[i];
        if (is_in(address, listen, listen_count) || strcmp(address, place->beside) == 0)
            continue;
        if (is_secured(config, i))
            place->secured[place->secured_count++] = address;
        else
            place->plain[place->plain_count++] = address;
    }
    return STATUS_OK;
}

/* ---- calls ---- */

static void
on_plain(void *context, struct rpc_call *call, const struct wire_message *message)
{
    struct mesh_management *management = context;
    mesh_manage_on_message(management->options.manage, MESH_MANAGE_OPEN, call, message);
}

static void
on_secured(void *context, struct rpc_call *call, const struct wire_message *message)
{
    struct mesh_management *management = context;
    mesh_manage_on_message(management->options.manage, MESH_MANAGE_GUARDED, call, message);
}

static void
on_plain_manifest(void *context, struct rpc_call *call, const struct wire_message *message)
{
    struct mesh_management *management = context;
    mesh_manifests_on_message(management->options.manifests, call, message);
}

static void
on_secured_manifest(void *context, struct rpc_call *call, const struct wire_message *message)
{
    struct mesh_management *management = context;
    if (mesh_manage_allows_all(management->options.manage, call))
        mesh_manifests_on_message(management->options.manifests, call, message);
    else
        rpc_call_finish(call, STATUS_PERMISSION_DENIED,
                        "manifests need an entry of `mesh: management: allow` without `methods` "
                        "and `models`");
}

static void
on_cancel(void *context, uint64_t tag)
{
    struct mesh_management *management = context;
    if (tag != 0)
        pending_cancel(management->options.pending, tag);
}

static const char *
on_unknown(void *context, const char *method)
{
    (void)context;
    return strncmp(method, "/inference.", strlen("/inference.")) == 0
               ? "this address is of `mesh: management`: models are called on those of `listen`"
               : NULL;
}

static const struct rpc_method services[] = {SERVICES_METHODS};

_Static_assert(ARRAY_COUNT(services) == SERVICES_COUNT, "rows of SERVICES_METHODS");

static void
fill_methods(struct rpc_method methods[METHOD_COUNT],
             void (*on_message)(void *context, struct rpc_call *call,
                                const struct wire_message *message),
             void (*on_manifest)(void *context, struct rpc_call *call,
                                 const struct wire_message *message))
{
    memcpy(methods, services, sizeof(services));
    mesh_manage_methods(methods + SERVICES_COUNT, on_message, on_cancel);
    mesh_manifests_methods(methods + SERVICES_COUNT + MESH_METHOD_COUNT, on_manifest);
}

/* ---- the servers ---- */

static void
log_addresses(const struct rpc_server *server, const char *const *listen, uint32_t count,
              const char *tls)
{
    for (uint32_t i = 0; i < count; i++)
        log_info("mesh_management address=\"%s\" port=%d tls=%s", listen[i],
                 rpc_server_port(server, i), tls);
}

static struct rpc_server_options
server_options(struct mesh_management *management)
{
    const struct config *config = management->options.config;
    return (struct rpc_server_options){
        .socket_mode = &config->mesh.management.socket_mode_bits,
        .queue_count = 1,
        .queue = management->options.queue,
        .accept = management->options.accept,
        .message_bytes_max = config->message_bytes_max,
        .connections_max = config->mesh.management.connections_max,
        .send_timeout_ns = config->send_timeout_ns,
        .concurrent_streams_max = CONCURRENT_STREAMS_MAX,
        .armed_calls = ARMED_CALLS,
        .armed_calls_other = ARMED_CALLS,
        .keepalive_time_ns = config->keepalive_time_ns,
        .keepalive_timeout_ns = config->keepalive_timeout_ns,
        .method_count = METHOD_COUNT,
        .on_unknown = on_unknown,
        .context = management,
    };
}

static enum status
open_servers(struct mesh_management *management, struct error *error)
{
    const struct management_place *place = management->options.place;
    struct rpc_server_options options = server_options(management);
    options.listen = place->plain;
    options.listen_count = place->plain_count;
    options.methods = management->plain_methods;
    enum status status = rpc_server_create(&options, &management->plain, error);
    if (status != STATUS_OK)
        return status;
    log_addresses(management->plain, place->plain, place->plain_count, "no");
    if (place->secured_count == 0)
        return STATUS_OK;
    options.listen = place->secured;
    options.listen_count = place->secured_count;
    options.methods = management->secured_methods;
    options.tls = management->options.tls;
    status = rpc_server_create(&options, &management->secured, error);
    if (status == STATUS_OK)
        log_addresses(management->secured, place->secured, place->secured_count, "yes");
    return status;
}

/* ---- life ---- */

enum status
management_create(const struct management_options *options, struct mesh_management **created,
                  struct error *error)
{
    struct mesh_management *management = calloc(1, sizeof(*management));
    CHECK(management != NULL);
    management->options = *options;
    management->services.health = health_create((struct health_others){NULL, NULL});
    fill_methods(management->plain_methods, on_plain, on_plain_manifest);
    fill_methods(management->secured_methods, on_secured, on_secured_manifest);
    management_set_serving(management, false);
    *created = management;
    enum status status = open_servers(management, error);
    return status == STATUS_OK ? STATUS_OK : error_prefix(error, "mesh: management");
}

void
management_accept(struct mesh_management *management)
{
    rpc_server_accept(management->plain);
    if (management->secured != NULL)
        rpc_server_accept(management->secured);
}

void
management_part(struct mesh_management *management)
{
    rpc_server_part(management->plain);
    if (management->secured != NULL)
        rpc_server_part(management->secured);
}

void
management_set_serving(struct mesh_management *management, bool serving)
{
    health_set(management->services.health, "", serving ? HEALTH_SERVING : HEALTH_NOT_SERVING);
    health_set(management->services.health, MESH_SERVICE,
               serving ? HEALTH_SERVING : HEALTH_NOT_SERVING);
}

void
management_end(struct mesh_management *management)
{
    struct rpc_server *servers[] = {management->plain, management->secured};
    for (size_t i = 0; i < ARRAY_COUNT(servers); i++)
        if (servers[i] != NULL)
            rpc_server_refuse(servers[i], "the node is stopping");
    health_end_watches(management->services.health);
    for (size_t i = 0; i < ARRAY_COUNT(servers); i++)
        if (servers[i] != NULL)
            rpc_server_end(servers[i], LAST_ANSWERS_NS);
}

uint64_t
management_refused(const struct mesh_management *management)
{
    uint64_t refused = rpc_server_figures(management->plain).refused;
    if (management->secured != NULL)
        refused += rpc_server_figures(management->secured).refused;
    return refused;
}

void
management_destroy(struct mesh_management *management)
{
    if (management == NULL)
        return;
    if (management->secured != NULL)
        rpc_server_destroy(management->secured);
    if (management->plain != NULL)
        rpc_server_destroy(management->plain);
    health_destroy(management->services.health);
    free(management);
}
