/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same proxy as bare_proxy.c, made of Shoal's own rpc module: a unary request of any method is
 * kept, goes to the backend through the client, and its answer back, with deadlines, metadata and
 * cancellation passed on. The difference is the cost of that module.
 *
 *     rpc_proxy [--cpu N] [--window KIB] --to ADDRESS unix:PATH|IP:PORT...
 *
 * Prints one line "listening ADDRESS" each, once it is ready. SIGTERM and SIGINT end it with exit
 * code 0.
 */
#include "samples.h"

#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "rpc/rpc.h"

#define LISTEN_MAX 8
#define METADATA_MAX 64

/* One call on its way. All of it on the one stepping thread. */
struct forward {
    struct rpc_call *call;
    struct rpc_client_call *asked;
};

struct proxy {
    struct rpc_server *server;
    struct rpc_client *client; /* NULL: it is over */
    atomic_bool stopping;
};

static struct proxy proxy;

static void
on_answer(void *context, const struct rpc_client_end *end)
{
    struct forward *forward = context;
    struct rpc_kept *kept = end->message != NULL ? rpc_message_keep(end->message) : NULL;
    struct rpc_piece piece = {.kept = kept, .bytes = kept != NULL ? end->message->bytes : 0};
    rpc_call_answer(forward->call, &(struct rpc_answer){
                                       .status = end->status,
                                       .text = end->text,
                                       .pieces = kept != NULL ? &piece : NULL,
                                       .piece_count = 1,
                                       .initial = end->initial,
                                       .initial_count = end->initial_count,
                                       .trailers = end->trailers,
                                       .trailer_count = end->trailer_count,
                                   });
    rpc_kept_release(kept);
    rpc_client_release(forward->asked);
    free(forward);
}

static const struct rpc_client_events events = {.on_end = on_answer};

static void
on_request(void *context, struct rpc_call *call, const struct wire_message *message)
{
    (void)context;
    if (proxy.client == NULL) {
        rpc_call_finish(call, STATUS_UNAVAILABLE, "stopping");
        return;
    }
    struct forward *forward = malloc(sizeof(*forward));
    if (forward == NULL)
        BENCH_FAIL("no memory");
    forward->call = call;
    rpc_call_set_tag(call, (uintptr_t)forward);
    struct rpc_metadata metadata[METADATA_MAX];
    size_t count = 0;
    for (size_t position = 0;
         count < METADATA_MAX && rpc_call_metadata_walk(call, &position, &metadata[count]);)
        count++;
    struct rpc_kept *kept = rpc_message_keep(message);
    struct rpc_piece piece = rpc_kept_piece(kept);
    rpc_client_start(proxy.client,
                     &(struct rpc_client_request){
                         .method = rpc_call_method(call),
                         .kind = RPC_UNARY,
                         .deadline_ns = rpc_call_deadline_ns(call),
                         .metadata = metadata,
                         .metadata_count = count,
                         .pieces = &piece,
                         .piece_count = 1,
                         .events = &events,
                         .context = forward,
                     },
                     &forward->asked);
    rpc_kept_release(kept);
}

/* Never asked for: one message is all that a unary call has. */
static void
on_half_close(void *context, struct rpc_call *call)
{
    (void)context;
    rpc_call_finish(call, STATUS_INTERNAL, "Half-closed without a request");
}

/* The tag is a pointer, for a call is ended on this thread alone, and not told of after that. */
static void
on_cancel(void *context, uint64_t tag)
{
    (void)context;
    struct forward *forward = (struct forward *)(uintptr_t)tag;
    rpc_client_cancel(forward->asked);
}

static const struct rpc_any any = {
    .on_message = on_request, .on_half_close = on_half_close, .on_cancel = on_cancel};

static void *
signal_thread(void *set)
{
    int taken;
    sigwait(set, &taken);
    rpc_server_stop(proxy.server);
    rpc_server_cancel_all(proxy.server);
    atomic_store(&proxy.stopping, true);
    rpc_server_wake(proxy.server, 0);
    return NULL;
}

static void
serve(void)
{
    while (rpc_server_step(proxy.server, 0, TIME_NEVER_NS) >= 0) {
        if (proxy.client == NULL || !atomic_load(&proxy.stopping))
            continue;
        rpc_client_destroy(proxy.client);
        proxy.client = NULL;
    }
}

static void
proxy_create(const char *target, size_t window_bytes, const char *const *listen,
             size_t listen_count)
{
    struct error error = ERROR_NONE;
    struct rpc_server_options options = {
        .listen = listen,
        .listen_count = listen_count,
        .queue_count = 1,
        .message_bytes_max = INT32_MAX,
        .stream_window_bytes = window_bytes,
        .armed_calls = 1,
        .armed_calls_other = 64,
        .any = &any,
    };
    if (rpc_server_create(&options, &proxy.server, &error) != STATUS_OK)
        BENCH_FAIL("%s", error.text);
    struct rpc_client_options to = {.queue = rpc_server_queue(proxy.server, 0),
                                    .target = target,
                                    .message_bytes_max = INT32_MAX,
                                    .stream_window_bytes = window_bytes};
    if (rpc_client_create(&to, &proxy.client, &error) != STATUS_OK)
        BENCH_FAIL("%s", error.text);
}

static const char usage[] =
    "Usage: rpc_proxy [--cpu N] [--window KIB] --to ADDRESS unix:PATH|IP:PORT...\n";

static const struct option OPTIONS[] = {
    {"cpu", required_argument, NULL, 'c'},
    {"to", required_argument, NULL, 't'},
    {"window", required_argument, NULL, 'w'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

int
main(int argc, char **argv)
{
    const char *target = NULL;
    size_t window_bytes = 0;
    int option;
    while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
        switch (option) {
        case 'c': bench_pin((int)bench_number("cpu", optarg, 0, CPU_SETSIZE - 1)); break;
        case 't': target = optarg; break;
        case 'w': window_bytes = (size_t)bench_number("window", optarg, 0, 16384) * 1024; break;
        case 'h': fputs(usage, stdout); return 0;
        default: BENCH_FAIL("%s", usage);
        }
    }
    const char *listen[LISTEN_MAX];
    size_t listen_count = 0;
    for (int i = optind; i < argc && listen_count < LISTEN_MAX; i++)
        listen[listen_count++] = argv[i];
    if (listen_count == 0 || target == NULL)
        BENCH_FAIL("%s", usage);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    rpc_init();
    proxy_create(target, window_bytes, listen, listen_count);
    for (size_t i = 0; i < listen_count; i++)
        printf("listening %s\n", listen[i]);
    fflush(stdout);
    pthread_t thread;
    if (pthread_create(&thread, NULL, signal_thread, &signals) != 0)
        BENCH_FAIL("no thread for signals");
    serve();
    pthread_join(thread, NULL);
    rpc_server_destroy(proxy.server);
    rpc_shutdown();
    return 0;
}
