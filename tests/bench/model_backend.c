/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model server that costs as little as it can, so that the proxy before it is measured: one
 * thread, HTTP/1.1 with keep-alive, no parsing beyond the request's length.
 *
 *     model_backend [--addresses N] [--cpu N] [--chunks N] [--every-us N] PORT
 *
 * It listens at 127.0.0.1 and, with --addresses, the addresses after it: N servers in one.
 * A request whose body begins with "stream":true within its first bytes gets N events, one each N
 * microseconds, each with the time of the monotonic clock at which it was written; others get a
 * short JSON object. GET /metrics answers what a scrape needs. Prints "listening" once it is ready;
 * SIGTERM ends it with exit code 0.
 */
#include "samples.h"

#include <arpa/inet.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    HEAD_BYTES = 8192,
    READ_BYTES = 512 << 10,
    EVENTS = 256,
    LOOK_BYTES = 256,
    ADDRESSES_MAX = 250
};

struct backend_client {
    int fd;
    size_t head_used;
    size_t body_left;
    bool has_head;
    bool is_post;
    bool wants_stream;
    bool streams;   /* it is in `streams` */
    uint64_t index; /* of the next event */
    uint64_t due_ns;
    TAILQ_ENTRY(backend_client) link; /* while it streams: the first is due first */
    char head[HEAD_BYTES + 1];
};

static uint64_t chunks = 100;
static uint64_t every_ns = 20000000;
static TAILQ_HEAD(, backend_client) streams = TAILQ_HEAD_INITIALIZER(streams);
static char scratch[READ_BYTES];
static volatile sig_atomic_t is_reported_to_stop;

static void
on_signal(int number)
{
    (void)number;
    is_reported_to_stop = 1;
}

static void
client_close(struct backend_client *client)
{
    if (client->streams)
        TAILQ_REMOVE(&streams, client, link);
    close(client->fd);
    free(client);
}

/* False: the kernel did not take all bytes at once. */
static bool
put(const struct backend_client *client, const char *text, size_t bytes)
{
    return send(client->fd, text, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

static bool
put_whole(const struct backend_client *client, const char *type, const char *body)
{
    char text[512];
    int used = snprintf(text, sizeof(text),
                        "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n%s",
                        type, strlen(body), body);
    return put(client, text, (size_t)used);
}

static bool
answer(struct backend_client *client)
{
    client->has_head = false;
    client->head_used = 0;
    if (!client->is_post)
        return put_whole(client, "text/plain",
                         "vllm:num_requests_waiting 0\nvllm:num_requests_running 0\n"
                         "vllm:kv_cache_usage_perc 0.1\n");
    if (!client->wants_stream)
        return put_whole(client, "application/json",
                         "{\"id\":\"b\",\"object\":\"chat.completion\",\"choices\":[],\"usage\":"
                         "{\"prompt_tokens\":7,\"completion_tokens\":5,\"total_tokens\":12}}\n");
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n";
    client->index = 0;
    client->due_ns = bench_now_ns() + every_ns;
    client->streams = true;
    TAILQ_INSERT_TAIL(&streams, client, link);
    return put(client, head, sizeof(head) - 1);
}

/* Fixed width: every event has the same length. */
static bool
event_put(struct backend_client *client, uint64_t now_ns)
{
    static const char pad[] =
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    static const char last[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
    char event[256];
    char chunk[300];
    if (client->index++ == chunks) {
        TAILQ_REMOVE(&streams, client, link);
        client->streams = false;
        return put(client, last, sizeof(last) - 1);
    }
    int used =
        snprintf(event, sizeof(event),
                 "data: {\"sent\":%020" PRIu64 ",\"choices\":[{\"delta\":{\"content\":\"%s\"}}]}"
                 "\n\n",
                 now_ns, pad);
    used = snprintf(chunk, sizeof(chunk), "%x\r\n%s\r\n", (unsigned)used, event);
    TAILQ_REMOVE(&streams, client, link);
    client->due_ns += every_ns;
    TAILQ_INSERT_TAIL(&streams, client, link);
    return put(client, chunk, (size_t)used);
}

/* ---- requests ---- */

/* Takes bytes of a head; returns how many, SIZE_MAX: it is too long. */
static size_t
head_take(struct backend_client *client, const char *data, size_t bytes)
{
    size_t before = client->head_used;
    size_t room = HEAD_BYTES - before;
    size_t copied = bytes < room ? bytes : room;
    memcpy(client->head + before, data, copied);
    client->head[before + copied] = '\0';
    const char *end = strstr(client->head + (before > 3 ? before - 3 : 0), "\r\n\r\n");
    if (end == NULL) {
        client->head_used += copied;
        return copied == bytes ? bytes : SIZE_MAX;
    }
    size_t used = (size_t)(end + 4 - client->head) - before;
    client->head[before + used] = '\0';
    const char *length = strcasestr(client->head, "\r\ncontent-length:");
    client->is_post = client->head[0] == 'P';
    client->body_left = length != NULL ? strtoull(length + 17, NULL, 10) : 0;
    client->has_head = true;
    client->wants_stream = false;
    return used;
}

/* False: the connection is to be closed. */
static bool
take(struct backend_client *client, const char *data, size_t bytes)
{
    while (bytes > 0) {
        if (!client->has_head) {
            size_t used = head_take(client, data, bytes);
            if (used == SIZE_MAX)
                return false;
            data += used;
            bytes -= used;
        }
        if (!client->has_head)
            return true;
        size_t part = bytes < client->body_left ? bytes : client->body_left;
        if (part > 0 && !client->wants_stream)
            client->wants_stream =
                memmem(data, part < LOOK_BYTES ? part : LOOK_BYTES, "\"stream\":true", 13) != NULL;
        client->body_left -= part;
        data += part;
        bytes -= part;
        if (client->body_left == 0 && !answer(client))
            return false;
    }
    return true;
}

static void
client_read(struct backend_client *client)
{
    ssize_t bytes = recv(client->fd, scratch, sizeof(scratch), 0);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (bytes <= 0 || !take(client, scratch, (size_t)bytes))
        client_close(client);
}

/* ---- the loop ---- */

static int
listen_at(uint32_t address, uint16_t port)
{
    int on = 1;
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {.s_addr = htonl(address)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0 ||
        bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(fd, 4096) != 0)
        BENCH_FAIL("port %u: %s", port, strerror(errno));
    return fd;
}

static void
accept_all(int poll, int listener)
{
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct backend_client *client = calloc(1, sizeof(*client));
        if (client == NULL)
            BENCH_FAIL("no memory");
        client->fd = fd;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event) != 0)
            BENCH_FAIL("epoll_ctl: %s", strerror(errno));
    }
}

/* Writes the events that are due; returns how long until the next, NULL: there is none. */
static const struct timespec *
events_due(void)
{
    static struct timespec wait;
    uint64_t now_ns = bench_now_ns();
    struct backend_client *client;
    while ((client = TAILQ_FIRST(&streams)) != NULL && client->due_ns <= now_ns) {
        if (!event_put(client, bench_now_ns()))
            client_close(client);
    }
    if (client == NULL)
        return NULL;
    wait = (struct timespec){.tv_sec = (time_t)((client->due_ns - now_ns) / BENCH_NS_PER_S),
                             .tv_nsec = (long)((client->due_ns - now_ns) % BENCH_NS_PER_S)};
    return &wait;
}

static void
serve(uint32_t addresses, uint16_t port)
{
    struct epoll_event events[EVENTS];
    int listeners[ADDRESSES_MAX];
    int poll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event first = {.events = EPOLLIN};
    for (uint32_t i = 0; i < addresses; i++) {
        listeners[i] = listen_at(INADDR_LOOPBACK + i, port);
        if (poll < 0 || epoll_ctl(poll, EPOLL_CTL_ADD, listeners[i], &first) != 0)
            BENCH_FAIL("epoll: %s", strerror(errno));
    }
    printf("listening\n");
    fflush(stdout);
    while (!is_reported_to_stop) {
        int count = epoll_pwait2(poll, events, EVENTS, events_due(), NULL);
        for (int i = 0; i < count; i++)
            if (events[i].data.ptr != NULL)
                client_read(events[i].data.ptr);
            else
                for (uint32_t k = 0; k < addresses; k++)
                    accept_all(poll, listeners[k]);
    }
}

int
main(int count, char **arguments)
{
    static const struct option known[] = {{"addresses", required_argument, NULL, 'a'},
                                          {"cpu", required_argument, NULL, 'c'},
                                          {"chunks", required_argument, NULL, 'n'},
                                          {"every-us", required_argument, NULL, 'e'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    static const char usage[] =
        "Usage: model_backend [--addresses N] [--cpu N] [--chunks N] [--every-us N] PORT\n";
    uint32_t addresses = 1;
    int id;
    while ((id = getopt_long(count, arguments, "", known, NULL)) != -1)
        switch (id) {
        case 'a': addresses = (uint32_t)bench_number("addresses", optarg, 1, ADDRESSES_MAX); break;
        case 'c': bench_pin((int)bench_number("cpu", optarg, 0, CPU_SETSIZE - 1)); break;
        case 'n': chunks = bench_number("chunks", optarg, 1, 1000000000); break;
        case 'e': every_ns = bench_number("every-us", optarg, 1, 100000000) * 1000; break;
        case 'h': fputs(usage, stdout); return 0;
        default: fputs(usage, stderr); return 2;
        }
    if (optind + 1 != count) {
        fputs(usage, stderr);
        return 2;
    }
    struct sigaction stop = {.sa_handler = on_signal};
    if (sigaction(SIGTERM, &stop, NULL) != 0 || sigaction(SIGINT, &stop, NULL) != 0)
        BENCH_FAIL("sigaction: %s", strerror(errno));
    serve(addresses, (uint16_t)bench_number("PORT", arguments[optind], 1, UINT16_MAX));
    return 0;
}
