/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least that a gRPC C core proxy can do: take a unary request of any method, call the backend
 * with its bytes and metadata untouched, send the answer back likewise. One completion queue for
 * both sides, one thread, one connection to the backend; nothing is copied, looked at or
 * remembered. Deadlines pass, cancellations do not: with the caller's call as the parent of the one
 * to the backend the library would see to both, at 15,000 instructions a call, and the yardstick
 * shall not be made shorter than it is. The rate of Shoal's forwarding is a share of this
 * program's.
 *
 *     bare_proxy [--cpu N] [--arg KEY=N]... --to ADDRESS unix:PATH|IP:PORT...
 *
 * Prints one line "listening ADDRESS" each, once it is ready. --arg is for the channel to the
 * backend. SIGTERM and SIGINT end it with exit code 0.
 */
#include "unary_call.h"

#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "rpc/rpc.h"

/* As few as serve the library best: it searches a list of all tags owed at every completion. */
#define ARMED_CALLS 64
#define SHUTDOWN_S 5

enum call_state { CALL_ARMED, CALL_READING, CALL_ASKING, CALL_ANSWERING };

struct call {
    enum call_state state;
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
    grpc_byte_buffer *request;
    int cancelled;
    struct unary_call asked;
};

struct proxy {
    grpc_server *server;
    grpc_completion_queue *queue;
    grpc_channel *backend;
    bool stopping;
    unsigned busy_count; /* calls whose tag is still owed to us */
};

static struct proxy proxy;

static void
call_check(grpc_call_error error, const char *what)
{
    if (error != GRPC_CALL_OK)
        BENCH_FAIL("%s: %s", what, grpc_call_error_to_string(error));
}

/* A new one is armed for each that comes, so any number may be under way. */
static void
call_arm(void)
{
    struct call *call = calloc(1, sizeof(*call));
    if (call == NULL)
        BENCH_FAIL("no memory");
    grpc_metadata_array_init(&call->metadata);
    grpc_call_details_init(&call->details);
    call_check(grpc_server_request_call(proxy.server, &call->call, &call->details, &call->metadata,
                                        proxy.queue, proxy.queue, call),
               "arming a call");
    proxy.busy_count++;
}

static void
call_read(struct call *call)
{
    if (!proxy.stopping)
        call_arm();
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &call->request;
    call->state = CALL_READING;
    call_check(grpc_call_start_batch(call->call, &op, 1, call, NULL), "reading");
}

static void
call_ask(struct call *call)
{
    struct unary_call *asked = &call->asked;
    asked->core =
        grpc_channel_create_call(proxy.backend, NULL, GRPC_PROPAGATE_DEFAULTS, proxy.queue,
                                 call->details.method, NULL, call->details.deadline, NULL);
    asked->details = grpc_empty_slice();
    grpc_op ops[6] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},  {.op = GRPC_OP_SEND_MESSAGE},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT}, {.op = GRPC_OP_RECV_INITIAL_METADATA},
        {.op = GRPC_OP_RECV_MESSAGE},           {.op = GRPC_OP_RECV_STATUS_ON_CLIENT},
    };
    ops[0].data.send_initial_metadata.count = call->metadata.count;
    ops[0].data.send_initial_metadata.metadata = call->metadata.metadata;
    ops[1].data.send_message.send_message = call->request;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &asked->initial;
    ops[4].data.recv_message.recv_message = &asked->answer;
    ops[5].data.recv_status_on_client.trailing_metadata = &asked->trailing;
    ops[5].data.recv_status_on_client.status = &asked->status;
    ops[5].data.recv_status_on_client.status_details = &asked->details;
    call->state = CALL_ASKING;
    call_check(grpc_call_start_batch(asked->core, ops, 6, call, NULL), "asking");
}

static void
call_answer(struct call *call)
{
    struct unary_call *asked = &call->asked;
    grpc_op ops[4] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_RECV_CLOSE_ON_SERVER},
        {.op = GRPC_OP_SEND_STATUS_FROM_SERVER},
        {.op = GRPC_OP_SEND_MESSAGE},
    };
    ops[0].data.send_initial_metadata.count = asked->initial.count;
    ops[0].data.send_initial_metadata.metadata = asked->initial.metadata;
    ops[1].data.recv_close_on_server.cancelled = &call->cancelled;
    ops[2].data.send_status_from_server.status = asked->status;
    if (GRPC_SLICE_LENGTH(asked->details) > 0)
        ops[2].data.send_status_from_server.status_details = &asked->details;
    ops[2].data.send_status_from_server.trailing_metadata_count = asked->trailing.count;
    ops[2].data.send_status_from_server.trailing_metadata = asked->trailing.metadata;
    ops[3].data.send_message.send_message = asked->answer;
    call->state = CALL_ANSWERING;
    call_check(grpc_call_start_batch(call->call, ops, asked->answer != NULL ? 4 : 3, call, NULL),
               "answering");
}

static void
call_end(struct call *call)
{
    proxy.busy_count--;
    if (call->request != NULL)
        grpc_byte_buffer_destroy(call->request);
    if (call->asked.core != NULL)
        unary_call_end(&call->asked);
    if (call->call != NULL)
        grpc_call_unref(call->call);
    grpc_metadata_array_destroy(&call->metadata);
    grpc_call_details_destroy(&call->details);
    free(call);
}

static void
call_on_event(struct call *call, bool success)
{
    switch (call->state) {
    case CALL_ARMED:
        if (success)
            call_read(call);
        else
            call_end(call);
        break;
    case CALL_READING:
        if (success && call->request != NULL)
            call_ask(call);
        else
            call_end(call);
        break;
    case CALL_ASKING: call_answer(call); break;
    case CALL_ANSWERING: call_end(call); break;
    }
}

/* All signals are blocked before gRPC starts its threads, and taken here. */
static void *
signal_thread(void *set)
{
    int taken;
    sigwait(set, &taken);
    grpc_server_shutdown_and_notify(proxy.server, proxy.queue, &proxy);
    grpc_server_cancel_all_calls(proxy.server);
    return NULL;
}

static void
serve(void)
{
    bool down = false;
    gpr_timespec forever = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    while (!down || proxy.busy_count > 0) {
        gpr_timespec limit = down ? unary_within_ms(SHUTDOWN_S * 1000) : forever;
        grpc_event event = grpc_completion_queue_next(proxy.queue, limit, NULL);
        if (event.type == GRPC_QUEUE_TIMEOUT)
            BENCH_FAIL("%u calls did not end within %d s", proxy.busy_count, SHUTDOWN_S);
        if (event.tag == &proxy)
            down = proxy.stopping = true;
        else
            call_on_event(event.tag, event.success != 0);
    }
    grpc_channel_destroy(proxy.backend);
    unary_queue_destroy(proxy.queue, SHUTDOWN_S * 1000);
}

static void
proxy_create(const char *target, struct channel_args *args)
{
    proxy.queue = grpc_completion_queue_create_for_next(NULL);
    channel_args_add(args, "grpc.enable_retries", 0); /* 4,600 instructions a call */
    channel_args_add(args, "grpc.enable_channelz", 0);
    struct unary_channel backend;
    unary_channel_open(&backend, target, "/none", args, 0);
    proxy.backend = backend.core;
    unary_channel_wait(&backend, proxy.queue, target, SHUTDOWN_S);
    struct channel_args own = {.count = 0};
    channel_args_add(&own, "grpc.so_reuseport", 0);
    channel_args_add(&own, "grpc.enable_channelz", 0);
    channel_args_add(&own, "grpc.max_receive_message_length", -1);
    grpc_channel_args core_args = {.num_args = own.count, .args = own.items};
    proxy.server = grpc_server_create(&core_args, NULL);
    grpc_server_register_completion_queue(proxy.server, proxy.queue, NULL);
}

static void
listen_on(const char *address)
{
    grpc_server_credentials *credentials = grpc_insecure_server_credentials_create();
    int port = grpc_server_add_http2_port(proxy.server, address, credentials);
    grpc_server_credentials_release(credentials);
    if (port == 0)
        BENCH_FAIL("cannot listen on %s", address);
    printf("listening %s\n", address);
}

static const char usage[] =
    "Usage: bare_proxy [--cpu N] [--arg KEY=N]... --to ADDRESS unix:PATH|IP:PORT...\n";

static const struct option OPTIONS[] = {
    {"cpu", required_argument, NULL, 'c'},
    {"arg", required_argument, NULL, 'a'},
    {"to", required_argument, NULL, 't'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

int
main(int argc, char **argv)
{
    const char *target = NULL;
    struct channel_args args = {.count = 0};
    int option;
    while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
        switch (option) {
        case 'c': bench_pin((int)bench_number("cpu", optarg, 0, CPU_SETSIZE - 1)); break;
        case 'a': channel_args_parse(&args, optarg); break;
        case 't': target = optarg; break;
        case 'h': fputs(usage, stdout); return 0;
        default: BENCH_FAIL("%s", usage);
        }
    }
    if (optind >= argc || target == NULL)
        BENCH_FAIL("%s", usage);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    rpc_init(); /* the library, set as Shoal sets it */
    proxy_create(target, &args);
    for (int i = optind; i < argc; i++)
        listen_on(argv[i]);
    grpc_server_start(proxy.server);
    for (unsigned i = 0; i < ARMED_CALLS; i++)
        call_arm();
    fflush(stdout);
    pthread_t thread;
    if (pthread_create(&thread, NULL, signal_thread, &signals) != 0)
        BENCH_FAIL("no thread for signals");
    serve();
    pthread_join(thread, NULL);
    grpc_server_destroy(proxy.server);
    rpc_shutdown();
    return 0;
}
