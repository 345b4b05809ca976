/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GOAWAY without an end of service. The library's class has the method, its C interface does not;
 * it sends one GOAWAY, waits for the answer to a ping, sends another with the last call that it
 * saw, and ends the connection with its last call. Clients retry the calls beyond, which were not
 * read.
 *
 * The method wants the execution context that each C function sets up on the stack. One of them
 * calls us within it: to create a server copies its arguments.
 */
#include <grpc/grpc.h>

#include "rpc/internal.h"

#ifdef RPC_GOAWAYS_SYMBOL
extern void server_send_goaways(void *server) __asm__(RPC_GOAWAYS_SYMBOL);
#endif

static void *
within_library(void *core)
{
#ifdef RPC_GOAWAYS_SYMBOL
    server_send_goaways(core);
#endif
    return core;
}

static void
destroy_nothing(void *core)
{
    (void)core;
}

static int
compare(void *a, void *b)
{
    return ((uintptr_t)a > (uintptr_t)b) - ((uintptr_t)a < (uintptr_t)b);
}

void
rpc_server_accept(struct rpc_server *server)
{
    for (size_t i = 0; i < server->listener_count; i++)
        rpc_listener_permit(&server->listeners[i]);
    if (server->acceptor != NULL)
        rpc_acceptor_open(server->acceptor);
}

void
rpc_server_part(struct rpc_server *server)
{
    static const grpc_arg_pointer_vtable table = {within_library, destroy_nothing, compare};
    char key[] = "shoal.part";
    grpc_arg arg = {.type = GRPC_ARG_POINTER,
                    .key = key,
                    .value.pointer = {.p = server->core, .vtable = &table}};
    const grpc_channel_args args = {.num_args = 1, .args = &arg};
    if (server->acceptor != NULL)
        rpc_acceptor_part(server->acceptor);
    grpc_server_destroy(grpc_server_create(&args, NULL));
}
