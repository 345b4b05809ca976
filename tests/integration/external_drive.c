/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node of one, with an external runtime and nothing else, until standard input ends:
 * `external_drive POLL_MS START_MS SERVING TARGET...`, SERVING "-" if it is where it is managed.
 * A real runner, core and store in memory; each line of standard input is a command:
 *
 *     register ID TYPE PATH KEY    ("-": none)     registered ID OUTCOME
 *     ensure ID                                    ensured ID OUTCOME STATE COPIES REASON
 *     unregister ID                                unregistered ID OUTCOME
 *     call TAG ID METHOD MS HEX [KEY=VALUE]        answer TAG END STATUS HEX INITIAL TRAILER TEXT
 *     cancel TAG                                   cancelled TAG
 *     permits METHOD                               permits STATUS TEXT
 *     look                                         look READY STARTS VERSION FREED
 *
 * Numbers are those of the headers; FREED is how many units of 8 KiB are free. A result later than
 * its command is a line of its own, and so does "failed TEXT".
 */
#include <event2/event.h>
#include <event2/thread.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "mesh/edge/runner.h"
#include "mesh/edge/external.h"
#include "mesh/store/store.h"
#include "rpc/rpc.h"

enum { LINE_BYTES = 1 << 22, CALLS_MAX = 256, ORDER_S = 30 };

static struct external *external;
static struct mesh_runner *runner;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* ---- orders ---- */

struct ordered {
    struct runner_order order;
    bool over;
    enum mesh_outcome outcome;
    enum mesh_model_state state;
    uint32_t places;
    char reason[256]; /* of the first */
};

static void
on_order_end(struct runner_order *order, const struct runner_reply *reply)
{
    struct ordered *ordered = (struct ordered *)order;
    pthread_mutex_lock(&lock);
    ordered->over = true;
    ordered->outcome = reply->outcome;
    ordered->state = reply->model.state;
    ordered->places = reply->model.place_count;
    if (ordered->places > 0 && reply->model.places[0].reason != NULL)
        snprintf(ordered->reason, sizeof(ordered->reason), "%s", reply->model.places[0].reason);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static struct ordered
order(struct mesh_order wanted)
{
    struct ordered ordered = {.order = {.order = wanted,
                                        .deadline_ns = clock_now_ns() + ORDER_S * NS_PER_S,
                                        .on_end = on_order_end}};
    runner_order(runner, &ordered.order);
    pthread_mutex_lock(&lock);
    while (!ordered.over)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return ordered;
}

/* ---- calls ---- */

struct call {
    struct runner_call call; /* first */
    struct peer_request request;
    struct rpc_kept *kept;
    struct rpc_piece piece;
    struct rpc_metadata metadata;
    unsigned held;
    bool over;
    char tag[32];
    char model[64];
    char method[128];
    char entry[128];
};

static struct call *calls[CALLS_MAX];
static size_t call_count;

static struct call *
call_of(struct peer_request *request)
{
    return (struct call *)((char *)request - offsetof(struct call, request));
}

static void
print_entry(const struct rpc_metadata *entries, size_t count)
{
    const struct rpc_metadata *entry = count == 0 ? NULL : &entries[count - 1];
    if (entry == NULL)
        printf(" -");
    else
        printf(" %.*s=%.*s", (int)entry->key.bytes, (const char *)entry->key.data,
               (int)entry->value.bytes, (const char *)entry->value.data);
}

static void
print_message(const struct rpc_answer *answer)
{
    putchar(' ');
    if (answer->piece_count == 0)
        putchar('-');
    for (size_t i = 0; i < answer->piece_count; i++) {
        const struct wire_message *message = rpc_kept_message(answer->pieces[i].kept);
        for (size_t j = 0; j < message->span_count; j++)
            for (size_t k = 0; k < message->spans[j].bytes; k++)
                printf("%02x", ((const unsigned char *)message->spans[j].data)[k]);
        if (message->bytes == 0)
            putchar('.');
    }
}

static void
on_ended(struct peer_request *request, uint32_t number, const struct runner_end *end,
         const struct rpc_answer *answer)
{
    struct call *call = call_of(request);
    pthread_mutex_lock(&lock);
    call->over = call->over || end->end == MESH_END_OK;
    if (end->end == MESH_END_OK) {
        printf("answer %s %d %d", call->tag, (int)end->end, (int)answer->status);
        print_message(answer);
        print_entry(answer->initial, answer->initial_count);
        print_entry(answer->trailers, answer->trailer_count);
        printf(" %.*s\n", (int)answer->text.bytes,
               answer->text.bytes == 0 ? "" : (const char *)answer->text.data);
        fflush(stdout);
    }
    pthread_mutex_unlock(&lock);
    runner_try_ended(runner, &call->call, number, end);
}

static void
on_hold(struct peer_request *request)
{
    pthread_mutex_lock(&lock);
    call_of(request)->held++;
    pthread_mutex_unlock(&lock);
}

static void
on_release(struct peer_request *request)
{
    pthread_mutex_lock(&lock);
    call_of(request)->held--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static const struct peer_request_type request_type = {
    .on_ended = on_ended, .hold = on_hold, .release = on_release};

static enum runner_begun
on_serve(struct runner_call *call, const struct runner_attempt *attempt, struct runner_end *end)
{
    return external_serve(external, call, attempt, end);
}

static void
on_answer(struct runner_call *call, const struct runner_answer *answer)
{
    pthread_mutex_lock(&lock);
    ((struct call *)call)->over = true;
    printf("answer %s %d 0 - - - %s\n", ((struct call *)call)->tag, (int)answer->end,
           answer->text == NULL ? "" : answer->text);
    fflush(stdout);
    pthread_mutex_unlock(&lock);
}

static const struct runner_call_type call_type = {.serve = on_serve, .answer = on_answer};

static struct rpc_kept *
message_of(const char *hex)
{
    size_t bytes = strlen(hex) / 2; /* "-" is an empty one */
    unsigned char *data = malloc(bytes + 1);
    CHECK(data != NULL);
    for (size_t i = 0; i < bytes; i++) {
        char digits[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        data[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    /* In pieces of a few bytes, as it may come. */
    struct wire_span *spans = malloc((bytes / 3 + 1) * sizeof(*spans));
    CHECK(spans != NULL);
    size_t count = 0;
    for (size_t at = 0; at < bytes; at += 3)
        spans[count++] = (struct wire_span){data + at, bytes - at < 3 ? bytes - at : 3};
    struct rpc_kept *kept = rpc_message_keep(&(struct wire_message){spans, count, bytes});
    free(spans);
    free(data);
    return kept;
}

static void
call_begin(char *words[8])
{
    struct call *call = calloc(1, sizeof(*call));
    CHECK(call != NULL && call_count < CALLS_MAX);
    calls[call_count++] = call;
    snprintf(call->tag, sizeof(call->tag), "%s", words[1]);
    snprintf(call->model, sizeof(call->model), "%s", words[2]);
    snprintf(call->method, sizeof(call->method), "%s", words[3]);
    long timeout_ms = strtol(words[4], NULL, 10);
    call->kept = message_of(words[5]);
    call->piece = rpc_kept_piece(call->kept);
    call->request = (struct peer_request){
        .type = &request_type, .method = call->method, .pieces = &call->piece, .piece_count = 1};
    if (words[6] != NULL) {
        snprintf(call->entry, sizeof(call->entry), "%s", words[6]);
        char *value = strchr(call->entry, '=');
        CHECK(value != NULL);
        call->metadata.key = (struct wire_span){call->entry, (size_t)(value - call->entry)};
        call->metadata.value = (struct wire_span){value + 1, strlen(value + 1)};
        call->request.metadata = &call->metadata;
        call->request.metadata_count = 1;
    }
    call->call = (struct runner_call){
        .type = &call_type,
        .request = &call->request,
        .model = call->model,
        .hop = MESH_HOP_ENTRY,
        .deadline_ns = timeout_ms == 0 ? TIME_NEVER_NS : clock_now_ns() + timeout_ms * NS_PER_MS};
    runner_call(runner, &call->call);
}

static void
call_cancel(const char *tag)
{
    for (size_t i = 0; i < call_count; i++)
        if (strcmp(calls[i]->tag, tag) == 0 && !runner_call_cancelled(runner, &calls[i]->call))
            external_cancel(external, &calls[i]->request);
    pthread_mutex_lock(&lock);
    printf("cancelled %s\n", tag);
    fflush(stdout);
    pthread_mutex_unlock(&lock);
}

static void
calls_free(void)
{
    for (size_t i = 0; i < call_count; i++) {
        CHECK(calls[i]->held == 0);
        rpc_kept_release(calls[i]->kept);
        free(calls[i]);
    }
}

/* ---- commands ---- */

static const char *
or_null(const char *word)
{
    return word == NULL || strcmp(word, "-") == 0 ? NULL : word;
}

static void
say_ordered(const char *word, const char *id, struct ordered ordered)
{
    pthread_mutex_lock(&lock);
    printf("%s %s %d %d %u %s\n", word, id, (int)ordered.outcome, (int)ordered.state,
           ordered.places, ordered.reason);
    fflush(stdout);
    pthread_mutex_unlock(&lock);
}

static void
say_look(void)
{
    struct external_view view;
    external_look(external, &view);
    struct runner_figures figures = runner_figures(runner, "");
    pthread_mutex_lock(&lock);
    printf("look %d %llu %s %llu\n", view.is_ready, (unsigned long long)view.starts,
           view.version[0] == '\0' ? "-" : view.version,
           (unsigned long long)figures.figures.free_units);
    fflush(stdout);
    pthread_mutex_unlock(&lock);
}

static void
say_permits(const char *method)
{
    struct error error = ERROR_NONE;
    enum status status = external_permits(external, method, &error);
    pthread_mutex_lock(&lock);
    printf("permits %d %s\n", (int)status, error.text);
    fflush(stdout);
    pthread_mutex_unlock(&lock);
}

static void
command(char *line)
{
    char *words[8] = {NULL};
    char *rest = NULL;
    size_t count = 0;
    for (char *word = strtok_r(line, " \n", &rest); word != NULL && count < 8;
         word = strtok_r(NULL, " \n", &rest))
        words[count++] = word;
    if (count == 0)
        return;
    if (strcmp(words[0], "register") == 0)
        say_ordered("registered", words[1],
                    order((struct mesh_order){.kind = MESH_REGISTER,
                                              .model = words[1],
                                              .type = or_null(words[2]),
                                              .path = or_null(words[3]),
                                              .key = or_null(words[4])}));
    else if (strcmp(words[0], "ensure") == 0)
        say_ordered("ensured", words[1],
                    order((struct mesh_order){
                        .kind = MESH_ENSURE_LOADED, .model = words[1], .sync = true}));
    else if (strcmp(words[0], "unregister") == 0)
        say_ordered("unregistered", words[1],
                    order((struct mesh_order){.kind = MESH_UNREGISTER, .model = words[1]}));
    else if (strcmp(words[0], "call") == 0)
        call_begin(words);
    else if (strcmp(words[0], "cancel") == 0)
        call_cancel(words[1]);
    else if (strcmp(words[0], "permits") == 0)
        say_permits(words[1]);
    else if (strcmp(words[0], "look") == 0)
        say_look();
}

/* ---- the node ---- */

static bool ends;

static void *
queue_main(void *context)
{
    for (bool over = false; !over;) {
        rpc_queue_step(context, TIME_NEVER_NS);
        pthread_mutex_lock(&lock);
        over = ends;
        pthread_mutex_unlock(&lock);
    }
    rpc_queue_destroy(context);
    return NULL;
}

static void *
loop_main(void *context)
{
    CHECK(event_base_loop(context, EVLOOP_NO_EXIT_ON_EMPTY) >= 0);
    return NULL;
}

static void
on_failed(void *context, const struct error *error)
{
    (void)context;
    pthread_mutex_lock(&lock);
    printf("failed %s\n", error->text);
    fflush(stdout);
    pthread_mutex_unlock(&lock);
}

static void
read_commands(void)
{
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0)
        command(line);
    free(line);
}

static void
run(struct event_base *base, struct rpc_queue *queue, struct store *store)
{
    pthread_t queue_thread;
    pthread_t loop_thread;
    runner_start(runner, store);
    CHECK(pthread_create(&queue_thread, NULL, queue_main, queue) == 0);
    CHECK(pthread_create(&loop_thread, NULL, loop_main, base) == 0);
    external_start(external, runner);
    read_commands();
    event_base_loopexit(base, NULL); /* also if it has not begun */
    pthread_join(loop_thread, NULL);
    runner_close(runner);
    external_close(external);
    pthread_mutex_lock(&lock);
    ends = true;
    rpc_queue_wake(queue); /* under the lock: the thread destroys it */
    pthread_mutex_unlock(&lock);
    pthread_join(queue_thread, NULL);
    external_destroy(external);
    store_close(store);
    runner_destroy(runner);
    calls_free();
}

int
main(int argc, char **argv)
{
    struct error error = ERROR_NONE;
    CHECK(argc >= 5);
    log_init("external_drive", LOG_INFO);
    evthread_use_pthreads();
    rpc_init();
    struct event_base *base = event_base_new();
    struct rpc_queue *queue = rpc_queue_create();
    struct external_options options = {
        .targets = (const char *const *)argv + 4,
        .target_count = (uint32_t)argc - 4,
        .serving = or_null(argv[3]),
        .queues = &queue,
        .queue_count = 1,
        .message_bytes_max = 16 << 20,
        .poll_ns = strtol(argv[1], NULL, 10) * NS_PER_MS,
        .start_ns = strtol(argv[2], NULL, 10) * NS_PER_MS,
        .on_failed = on_failed,
    };
    external = external_create(&options);
    runner = runner_create(&(struct runner_options){.base = base,
                                                    .core = {.instance = "one", .seed = 1},
                                                    .address = "",
                                                    .labels = "",
                                                    .tick_ms = 50,
                                                    .runtime = external_for_runner(external)});
    const struct store_events events = runner_events(runner);
    const struct store_options store_options = {.instance = "one", .events = &events};
    struct store *store;
    CHECK(store_open_memory(base, &store_options, &store, &error) == STATUS_OK);
    run(base, queue, store);
    event_base_free(base);
    rpc_shutdown();
    return 0;
}
