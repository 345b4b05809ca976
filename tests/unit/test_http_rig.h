/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server with a handler for tests, and clients that send bytes and receive answers. Clients
 * block, 20 seconds at most: then the test fails.
 *
 *   /now         answered at once           /later       answered by answer_open, or never
 *   /echo        with its body, lent        /until-gone  answered when its client has gone
 *   /huge        64 MiB, lent               /large       8 MiB, lent
 *   else         with what the handler sees
 */
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "../test.h"
#include "base/check.h"
#include "base/clock.h"
#include "coordinator/front/http_thread.h"

#include "../ports.h"

enum {
    HEADER_MAX = 4096,
    BODY_MAX = 1 << 20,
    LARGE_BYTES = 8 << 20,
    HUGE_BYTES = 64 << 20,
    CONNECTIONS_MAX = 1000
};
enum { WAIT_S = 60, OPEN_MAX_COUNT = 8 };

struct rig {
    struct http_thread *http;
    uint16_t port;
    _Atomic(struct http_request *) open; /* the last that is not answered */
    atomic_int opened;
    atomic_int gone;
    atomic_int released;
    _Atomic uint64_t counters[COUNTER_TABLE_COUNT]; /* the node's: each has one word */
    uint64_t refused;
    char *huge;
    sem_t looks_away, said; /* client_saying */
};

static inline void
wait_moment(void)
{
    struct timespec moment = {.tv_nsec = 2 * NS_PER_MS};
    nanosleep(&moment, NULL);
}

/* ---- the handler ---- */

struct lent {
    struct rig *rig;
    char *bytes; /* NULL: the rig's own */
};

static inline void
on_release(void *context)
{
    struct lent *lent = context;
    atomic_fetch_add(&lent->rig->released, 1);
    free(lent->bytes);
    free(lent);
}

static inline void
answer_lent(struct rig *rig, struct http_request *request, const void *data, size_t bytes)
{
    struct lent *lent = malloc(sizeof(*lent));
    *lent = (struct lent){.rig = rig};
    if (data != rig->huge) {
        lent->bytes = malloc(bytes + 1);
        if (bytes > 0)
            memcpy(lent->bytes, data, bytes);
        data = lent->bytes;
    }
    /* in two pieces, the second of which is empty */
    struct http_piece pieces[] = {
        {.data = data, .bytes = bytes, .release = on_release, .release_context = lent},
        {.data = "", .bytes = 0}};
    struct http_header header = {"Content-Type", "text/plain"};
    http_answer(request, 200, &header, 1, pieces, 2);
}

static inline void
answer_open(void *context)
{
    struct rig *rig = context;
    answer_lent(rig, atomic_exchange(&rig->open, NULL), "later", 5);
}

static inline void
answer_text(struct http_request *request, const char *text)
{
    struct http_piece piece = {.data = text, .bytes = strlen(text)};
    http_answer(request, 200, NULL, 0, &piece, 1);
}

static inline void
on_request(void *context, struct http_request *request)
{
    struct rig *rig = context;
    const char *path = http_request_path(request);
    CHECK(http_request_user(request) == NULL); /* no assert on the server's thread */
    if (strcmp(path, "/now") == 0) {
        answer_text(request, "now");
    } else if (strcmp(path, "/echo") == 0) {
        size_t bytes;
        const void *body = http_request_body(request, &bytes);
        answer_lent(rig, request, body, bytes);
    } else if (strcmp(path, "/huge") == 0) {
        answer_lent(rig, request, rig->huge, HUGE_BYTES);
    } else if (strcmp(path, "/large") == 0) {
        answer_lent(rig, request, rig->huge, LARGE_BYTES);
    } else if (strcmp(path, "/later") == 0 || strcmp(path, "/until-gone") == 0) {
        http_request_set_user(request, rig);
        atomic_store(&rig->open, request);
        atomic_fetch_add(&rig->opened, 1);
    } else {
        char text[256];
        const char *name = http_request_header(request, "X-Name");
        snprintf(text, sizeof(text), "%d %s %s %s", (int)http_request_method(request), path,
                 name != NULL ? name : "-", http_request_peer(request));
        answer_text(request, text);
    }
}

static inline void
on_gone(void *context, struct http_request *request)
{
    struct rig *rig = context;
    CHECK(http_request_user(request) == rig);
    if (strcmp(http_request_path(request), "/until-gone") == 0)
        answer_lent(rig, request, "gone", 4);
    atomic_fetch_add(&rig->gone, 1);
}

static inline void
on_error_body(const char *text, char *body, size_t room)
{
    snprintf(body, room, "error: %s", text);
}

/* ---- the server ---- */

static inline struct http_pool_options
pool_options(struct rig *rig, int64_t timeout_ns)
{
    return (struct http_pool_options){.name = "test",
                                      .connections_max = CONNECTIONS_MAX,
                                      .idle_timeout_ns = timeout_ns,
                                      .header_timeout_ns = timeout_ns,
                                      .body_timeout_ns = timeout_ns,
                                      .write_timeout_ns = timeout_ns,
                                      .count = http_thread_count,
                                      .context = rig->counters};
}

static inline struct http_service
service_of(struct rig *rig)
{
    return (struct http_service){.on_request = on_request,
                                 .on_gone = on_gone,
                                 .context = rig,
                                 .body_bytes_max = BODY_MAX,
                                 .header_bytes_max = HEADER_MAX,
                                 .error_body = on_error_body,
                                 .error_type = "test/error"};
}

/* Listens at a free port for the service. */
static inline uint16_t
pool_listen(struct http_pool *pool, const struct http_service *service)
{
    struct error error = ERROR_NONE;
    uint16_t port = free_port();
    char address[32];
    snprintf(address, sizeof(address), "port:%u", port);
    if (http_listen(pool, address, service, NULL, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return port;
}

static inline uint16_t
rig_listen(struct rig *rig, const struct http_pool_options *options,
           const struct http_service *service)
{
    return pool_listen(http_pool_create(http_thread_server(rig->http), options), service);
}

/* Without a listener, and not started. */
static inline struct rig *
rig_create(void)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files); /* a thousand clients and their server in one process */
    struct rig *rig = calloc(1, sizeof(*rig));
    rig->huge = calloc(1, HUGE_BYTES);
    CHECK(sem_init(&rig->looks_away, 0, 0) == 0 && sem_init(&rig->said, 0, 0) == 0);
    struct error error = ERROR_NONE;
    CHECK(http_thread_create("test:http", &rig->http, &error) == STATUS_OK);
    return rig;
}

static inline int
setup_with(void **state, int64_t timeout_ns)
{
    struct rig *rig = rig_create();
    struct http_pool_options options = pool_options(rig, timeout_ns);
    struct http_service service = service_of(rig);
    rig->port = rig_listen(rig, &options, &service);
    http_thread_start(rig->http);
    *state = rig;
    return 0;
}

static inline int
setup(void **state)
{
    return setup_with(state, 60 * NS_PER_S);
}

static inline int
setup_hasty(void **state)
{
    return setup_with(state, 200 * (int64_t)NS_PER_MS);
}

static inline int
teardown(void **state)
{
    struct rig *rig = *state;
    http_thread_destroy(rig->http);
    sem_destroy(&rig->looks_away);
    sem_destroy(&rig->said);
    free(rig->huge);
    free(rig);
    return 0;
}

static inline void
wait_count(atomic_int *count, int wanted, const char *what)
{
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    while (atomic_load(count) < wanted && clock_now_ns() < until_ns)
        wait_moment();
    if (atomic_load(count) != wanted)
        fail_msg("%s: %d, not %d", what, atomic_load(count), wanted);
}

static inline void
wait_opened(struct rig *rig, int count)
{
    wait_count(&rig->opened, count, "requests that wait");
}

static inline struct http_request *
wait_open(struct rig *rig)
{
    wait_opened(rig, atomic_load(&rig->gone) + 1);
    return atomic_load(&rig->open);
}

static inline void
wait_gone(struct rig *rig, int count)
{
    wait_count(&rig->gone, count, "clients gone");
}

static inline void
wait_released(struct rig *rig, int count)
{
    wait_count(&rig->released, count, "pieces given back");
}

/* The server's counts: a client that has gone is seen a little later. */
static inline void
wait_connections(struct rig *rig, uint64_t wanted)
{
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    while (counter_get(rig->counters, NODE_HTTP_CONNECTIONS) != wanted && clock_now_ns() < until_ns)
        wait_moment();
    assert_int_equal(counter_get(rig->counters, NODE_HTTP_CONNECTIONS), wanted);
}

static inline int
released(struct rig *rig)
{
    return atomic_load(&rig->released);
}

/* ---- clients ---- */

struct answer {
    int code;
    char *head;
    char *body; /* ends in a NUL beyond its bytes */
    size_t body_bytes;
};

static inline void
answer_free(struct answer *answer)
{
    free(answer->head);
    free(answer->body);
    *answer = (struct answer){0};
}

static inline int
client_socket(struct rig *rig)
{
    (void)rig;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    struct timeval patience = {.tv_sec = WAIT_S};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) == 0);
    return fd;
}

static inline void
connect_client(struct rig *rig, int fd)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons(rig->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
}

static inline int
client(struct rig *rig)
{
    int fd = client_socket(rig);
    connect_client(rig, fd);
    return fd;
}

static inline void
say_bytes(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL);
        if (sent <= 0)
            fail_msg("the server does not take what a client says");
        data += sent;
        bytes -= (size_t)sent;
    }
}

static inline void
say(int fd, const char *text)
{
    say_bytes(fd, text, strlen(text));
}

static inline void
look_away(void *context)
{
    struct rig *rig = context;
    CHECK(sem_post(&rig->looks_away) == 0);
    CHECK(sem_wait(&rig->said) == 0);
}

/* A client that has sent this when the server first sees it, possibly without waiting for an
 * answer. */
static inline int
client_saying(struct rig *rig, const char *text)
{
    http_thread_post(rig->http, look_away, rig);
    CHECK(sem_wait(&rig->looks_away) == 0);
    int fd = client(rig);
    say(fd, text);
    CHECK(sem_post(&rig->said) == 0);
    return fd;
}

/* Status line and headers, byte by byte: what follows stays in the socket. */
static inline struct answer
receive_head(int fd)
{
    enum { HEAD_BYTES = 2048 };
    struct answer answer = {.head = calloc(1, HEAD_BYTES)};
    size_t bytes = 0;
    while (bytes + 1 < HEAD_BYTES && strstr(answer.head, "\r\n\r\n") == NULL) {
        if (recv(fd, answer.head + bytes, 1, 0) != 1)
            fail_msg("the server says no more than \"%s\"", answer.head);
        bytes++;
    }
    assert_int_equal(strncmp(answer.head, "HTTP/1.", 7), 0);
    answer.code = atoi(answer.head + 9);
    return answer;
}

static inline struct answer
receive(int fd)
{
    struct answer answer = receive_head(fd);
    const char *length = strstr(answer.head, "Content-Length: ");
    answer.body_bytes = length != NULL ? strtoul(length + 16, NULL, 10) : 0;
    answer.body = calloc(1, answer.body_bytes + 1);
    for (size_t got = 0; got < answer.body_bytes;) {
        ssize_t more = recv(fd, answer.body + got, answer.body_bytes - got, 0);
        if (more <= 0)
            fail_msg("%zu bytes of a body instead of %zu", got, answer.body_bytes);
        got += (size_t)more;
    }
    return answer;
}

static inline struct answer
ask(int fd, const char *text)
{
    say(fd, text);
    return receive(fd);
}

static inline bool
wait_readable(int fd, int timeout_ms)
{
    struct pollfd look = {.fd = fd, .events = POLLIN};
    return poll(&look, 1, timeout_ms) > 0;
}

static inline bool
readable(int fd)
{
    return wait_readable(fd, 0);
}

/* By the server, in order; and by us. */
static inline void
assert_closed(int fd)
{
    char byte;
    assert_int_equal(recv(fd, &byte, 1, 0), 0);
    close(fd);
}

static inline void
assert_works(struct rig *rig)
{
    int fd = client_saying(rig, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    struct answer answer = receive(fd);
    assert_string_equal(answer.body, "now");
    answer_free(&answer);
    close(fd);
}

/* When the server has seen that a client has gone. */
static inline void
wait_works(struct rig *rig)
{
    int code = 503;
    for (int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
         code != 200 && clock_now_ns() < until_ns; wait_moment()) {
        int fd = client(rig);
        static const char text[] = "GET /now HTTP/1.1\r\nHost: x\r\n\r\n";
        (void)send(fd, text, sizeof(text) - 1, MSG_NOSIGNAL);
        struct answer answer = receive(fd);
        code = answer.code;
        answer_free(&answer);
        close(fd);
    }
    assert_int_equal(code, 200);
}
