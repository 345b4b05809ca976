/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least that a gRPC C core server can do: take a request, send its bytes back untouched. One
 * completion queue, one thread, a fixed number of armed calls. The rate of Shoal's answers is a
 * share of this server's.
 *
 *     echo_server [--cpu N] [--generic] [--method /service/rpc] [--arg KEY=N]...
 *                 unix:PATH|IP:PORT...
 *
 * Prints one line "listening ADDRESS" each, once it is ready (with the true port if 0 was asked
 * for). SIGTERM and SIGINT end it with exit code 0. Calls of any other method than that one are
 * never answered. A method that is registered costs one batch per call less than one that is found
 * by name (--generic); the cheaper is the default, as the yardstick shall not be made shorter than
 * it is.
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

enum call_state { CALL_ARMED, CALL_READING, CALL_ANSWERING, CALL_IDLE };

struct call {
    enum call_state state;
    grpc_call *call;
    grpc_byte_buffer *message;
    grpc_call_details details; /* of generic calls only */
    grpc_metadata_array metadata;
    gpr_timespec deadline;
    int cancelled;
};

struct echo {
    grpc_server *server;
    grpc_completion_queue *queue;
    void *method; /* NULL: generic calls */
    bool stopping;
    unsigned busy_count; /* calls whose tag is still owed to us */
    struct call calls[ARMED_CALLS];
};

static struct echo echo;

static void
call_check(grpc_call_error error, const char *what)
{
    if (error != GRPC_CALL_OK)
        BENCH_FAIL("%s: %s", what, grpc_call_error_to_string(error));
}

static void
call_arm(struct call *call)
{
    call->state = CALL_ARMED;
    call->call = NULL;
    call->message = NULL;
    grpc_metadata_array_init(&call->metadata);
    grpc_call_error error;
    if (echo.method != NULL) {
        error = grpc_server_request_registered_call(echo.server, echo.method, &call->call,
                                                    &call->deadline, &call->metadata,
                                                    &call->message, echo.queue, echo.queue, call);
    } else {
        grpc_call_details_init(&call->details);
        error = grpc_server_request_call(echo.server, &call->call, &call->details, &call->metadata,
                                         echo.queue, echo.queue, call);
    }
    call_check(error, "arming a call");
    echo.busy_count++;
}

static void
call_read(struct call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &call->message;
    call->state = CALL_READING;
    call_check(grpc_call_start_batch(call->call, &op, 1, call, NULL), "reading");
    echo.busy_count++;
}

static void
call_answer(struct call *call)
{
    grpc_op ops[4] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_RECV_CLOSE_ON_SERVER},
        {.op = GRPC_OP_SEND_STATUS_FROM_SERVER},
        {.op = GRPC_OP_SEND_MESSAGE},
    };
    ops[1].data.recv_close_on_server.cancelled = &call->cancelled;
    ops[2].data.send_status_from_server.status =
        call->message != NULL ? GRPC_STATUS_OK : GRPC_STATUS_INVALID_ARGUMENT;
    ops[3].data.send_message.send_message = call->message;
    call->state = CALL_ANSWERING;
    size_t count = call->message != NULL ? 4 : 3;
    call_check(grpc_call_start_batch(call->call, ops, count, call, NULL), "answering");
    echo.busy_count++;
}

static void
call_end(struct call *call)
{
    if (call->message != NULL)
        grpc_byte_buffer_destroy(call->message);
    if (call->call != NULL)
        grpc_call_unref(call->call);
    grpc_metadata_array_destroy(&call->metadata);
    if (echo.method == NULL)
        grpc_call_details_destroy(&call->details);
    call->state = CALL_IDLE;
    if (!echo.stopping)
        call_arm(call);
}

static void
call_on_event(struct call *call, bool success)
{
    echo.busy_count--;
    if (!success || call->state == CALL_ANSWERING) {
        /* Armed calls fail at shutdown, reading and answering ones when the caller has gone away.
         * */
        if (call->state == CALL_ARMED)
            echo.stopping = true;
        call_end(call);
    } else if (call->state == CALL_ARMED && echo.method == NULL) {
        call_read(call);
    } else {
        call_answer(call);
    }
}

/* All signals are blocked before gRPC starts its threads, and taken here. */
static void *
signal_thread(void *set)
{
    int taken;
    sigwait(set, &taken);
    grpc_server_shutdown_and_notify(echo.server, echo.queue, &echo);
    grpc_server_cancel_all_calls(echo.server);
    return NULL;
}

static void
serve(void)
{
    bool down = false;
    gpr_timespec forever = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    while (!down || echo.busy_count > 0) {
        gpr_timespec limit = forever;
        if (echo.stopping || down)
            limit = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                 gpr_time_from_seconds(SHUTDOWN_S, GPR_TIMESPAN));
        grpc_event event = grpc_completion_queue_next(echo.queue, limit, NULL);
        if (event.type == GRPC_QUEUE_TIMEOUT)
            BENCH_FAIL("%u calls did not end within %d s", echo.busy_count, SHUTDOWN_S);
        if (event.tag == &echo)
            down = true;
        else
            call_on_event(event.tag, event.success != 0);
    }
    grpc_completion_queue_shutdown(echo.queue);
    while (grpc_completion_queue_next(echo.queue, forever, NULL).type != GRPC_QUEUE_SHUTDOWN)
        continue;
}

static void
server_create(const char *method, struct channel_args *args)
{
    channel_args_add(args, "grpc.so_reuseport", 0);
    channel_args_add(args, "grpc.max_receive_message_length", -1);
    grpc_channel_args core_args = {.num_args = args->count, .args = args->items};
    echo.server = grpc_server_create(&core_args, NULL);
    echo.queue = grpc_completion_queue_create_for_next(NULL);
    if (method != NULL)
        echo.method = grpc_server_register_method(echo.server, method, NULL,
                                                  GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER, 0);
    grpc_server_register_completion_queue(echo.server, echo.queue, NULL);
}

static void
listen_on(const char *address)
{
    grpc_server_credentials *credentials = grpc_insecure_server_credentials_create();
    int port = grpc_server_add_http2_port(echo.server, address, credentials);
    grpc_server_credentials_release(credentials);
    if (port == 0)
        BENCH_FAIL("cannot listen on %s", address);
    const char *colon = strrchr(address, ':');
    if (strncmp(address, "unix:", 5) == 0 || colon == NULL)
        printf("listening %s\n", address);
    else
        printf("listening %.*s:%d\n", (int)(colon - address), address, port);
}

static const char usage[] =
    "Usage: echo_server [--cpu N] [--generic] [--method NAME] [--arg KEY=N]... [--help]\n"
    "                   unix:PATH|IP:PORT...\n";

static const struct option OPTIONS[] = {
    {"cpu", required_argument, NULL, 'c'},    {"generic", no_argument, NULL, 'g'},
    {"method", required_argument, NULL, 'm'}, {"arg", required_argument, NULL, 'a'},
    {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
};

int
main(int argc, char **argv)
{
    const char *method = INFER_METHOD;
    struct channel_args args = {.count = 0};
    int option;
    while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
        switch (option) {
        case 'c': bench_pin((int)bench_number("cpu", optarg, 0, CPU_SETSIZE - 1)); break;
        case 'g': method = NULL; break;
        case 'm': method = optarg; break;
        case 'a': channel_args_parse(&args, optarg); break;
        case 'h': fputs(usage, stdout); return 0;
        default: BENCH_FAIL("%s", usage);
        }
    }
    if (optind >= argc)
        BENCH_FAIL("%s", usage);

    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    rpc_init(); /* the library, set as Shoal sets it */
    server_create(method, &args);
    for (int i = optind; i < argc; i++)
        listen_on(argv[i]);
    grpc_server_start(echo.server);
    for (unsigned i = 0; i < ARMED_CALLS; i++)
        call_arm(&echo.calls[i]);
    fflush(stdout);
    pthread_t thread;
    if (pthread_create(&thread, NULL, signal_thread, &signals) != 0)
        BENCH_FAIL("no thread for signals");
    serve();
    pthread_join(thread, NULL);
    grpc_server_destroy(echo.server);
    grpc_completion_queue_destroy(echo.queue);
    rpc_shutdown();
    return 0;
}
