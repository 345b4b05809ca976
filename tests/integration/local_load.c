/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Local clients at work, until standard input ends: `local_load SOCKET PIPELINE CLIENTS DEPTH`.
 * Each client is a thread; with DEPTH 1 it submits, waits and begins again, with more it keeps that
 * many in flight. A request is one INT32 "x"; its answer has to be a multiple of it.
 *
 * Every line of standard input is answered with a line: how many were answered so far, how many of
 * them not as they should be, the smallest factor since the last line and the largest. The last of
 * what was wrong goes to standard error at the end.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <shoal/client.h>

enum { CLIENTS_MAX = 32, VALUES = 9973 };

static const char *path;
static const char *pipeline;
static int depth;
static _Atomic bool stop;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t answered;
static uint64_t wrong;
static int32_t least;
static int32_t most;
static char last_wrong[400];

static void
note_wrong(const char *what, int32_t status, const char *text)
{
    pthread_mutex_lock(&lock);
    wrong++;
    snprintf(last_wrong, sizeof(last_wrong), "%s: status %d: %s", what, status, text);
    pthread_mutex_unlock(&lock);
}

static void
note_answer(int32_t factor)
{
    pthread_mutex_lock(&lock);
    answered++;
    if (least == 0 || factor < least)
        least = factor;
    if (factor > most)
        most = factor;
    pthread_mutex_unlock(&lock);
}

static void
judge(struct shoal_request *request)
{
    int32_t asked = (int32_t)(intptr_t)shoal_request_tag(request);
    const struct shoal_tensor *tensor = shoal_request_output(request, 0);
    const int32_t *got = tensor != NULL && tensor->bytes == sizeof(*got) ? tensor->data : NULL;
    if (got == NULL || *got % asked != 0)
        note_wrong("answer", shoal_request_status(request), shoal_request_text(request));
    else
        note_answer(*got / asked);
    shoal_request_release(request);
}

static bool
submit(struct shoal_client *client, int32_t value, struct shoal_request **request)
{
    struct shoal_error error = {""};
    int32_t status = shoal_request_begin(client, request, &error);
    if (status != SHOAL_OK) {
        note_wrong("begin", status, error.text);
        return false;
    }
    int32_t *x = shoal_request_input(*request, "x", SHOAL_INT32, 1, (int64_t[]){1});
    if (x != NULL)
        *x = value;
    shoal_request_set_tag(*request, (void *)(intptr_t)value);
    if (shoal_request_submit(*request, INT64_MAX) == SHOAL_OK)
        return true;
    judge(*request);
    return false;
}

static void *
run(void *context)
{
    struct shoal_client *client = context;
    int flying = 0;
    struct shoal_request *request = NULL;
    for (int32_t value = 1; !atomic_load(&stop); value = value % VALUES + 1) {
        flying += submit(client, value, &request);
        if (depth == 1 && flying == 1)
            shoal_request_wait(request, INT64_MAX);
        else if (flying == depth)
            request = shoal_client_wait_any(client, INT64_MAX);
        else
            continue;
        judge(request);
        flying--;
    }
    shoal_client_close(client);
    return NULL;
}

static struct shoal_client *
open_client(void)
{
    struct shoal_client_options options = {
        .struct_size = SHOAL_CLIENT_OPTIONS, .pipeline = pipeline, .socket = path};
    struct shoal_client *client;
    struct shoal_error error = {""};
    int32_t status = shoal_client_open(&options, &client, &error);
    if (status == SHOAL_OK)
        return client;
    fprintf(stderr, "open: status %d: %s\n", status, error.text);
    exit(1);
}

int
main(int argc, char **argv)
{
    pthread_t threads[CLIENTS_MAX];
    struct shoal_client *clients[CLIENTS_MAX];
    int count = argc == 5 ? atoi(argv[3]) : 0;
    if (count < 1 || count > CLIENTS_MAX)
        return 2;
    path = argv[1];
    pipeline = argv[2];
    depth = atoi(argv[4]);
    for (int i = 0; i < count; i++)
        clients[i] = open_client();
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, run, clients[i]) != 0)
            return 1;
    char line[16];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        pthread_mutex_lock(&lock);
        printf("%" PRIu64 " %" PRIu64 " %d %d\n", answered, wrong, least, most);
        least = most = 0;
        pthread_mutex_unlock(&lock);
        fflush(stdout);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    if (wrong > 0)
        fprintf(stderr, "%s\n", last_wrong);
    return wrong > 0;
}
