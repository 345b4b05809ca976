/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many streams of events at a time, each followed by the next one on its connection: how late do
 * the events arrive that model_backend has stamped with the time? The streams begin spread over one
 * interval, since those of independent clients do not come in step.
 *
 *     stream_load [--cpu N] --streams N --chunks N --every-us N [--seconds S] [--server-pid N]...
 *                 PORT
 *     stream_load --hold --streams N ... PORT
 *
 * Prints one line of JSON. --hold opens the streams, says "open" once each has got its first event,
 * and reads on until its input ends. Exit code 1: a stream had too few events or ended early.
 */
#include "samples.h"

#include <arpa/inet.h>
#include <getopt.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STREAMS_MAX = 20000, SAMPLES_MAX = 4000000, READ_BYTES = 64 << 10, CARRY_BYTES = 512 };
enum { DIGITS = 20, STALL_MS = 10000 };

static const char usage[] = "Usage: stream_load [--cpu N] [--hold] --streams N --chunks N "
                            "--every-us N [--seconds S] [--server-pid N]... PORT\n";
static const char stamp[] = "\"sent\":";
static const char last[] = "[DONE]\n\n\r\n0\r\n\r\n";

struct stream {
    int fd;
    uint64_t events; /* of this answer */
    size_t carried;  /* the end of what was read before, which may be half an event */
    char carry[CARRY_BYTES];
};

struct options {
    uint64_t streams;
    uint64_t chunks;
    uint64_t every_us;
    uint64_t seconds;
    uint16_t port;
    bool holds;
    struct bench_servers servers;
};

static struct options options = {.streams = 1, .chunks = 100, .every_us = 20000, .seconds = 1};
static struct stream *all;
static struct samples lags;
static uint64_t record_from_ns = UINT64_MAX;
static uint64_t started_count;
static uint64_t done_count;
static uint64_t wrong_count;

static void
stream_ask(const struct stream *stream)
{
    static const char body[] = "{\"model\":\"base\",\"stream\":true,\"max_tokens\":100,"
                               "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}";
    char text[512];
    int used = snprintf(text, sizeof(text),
                        "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\n"
                        "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                        sizeof(body) - 1, body);
    if (send(stream->fd, text, (size_t)used, MSG_NOSIGNAL) != used)
        BENCH_FAIL("send: %s", strerror(errno));
}

static void
stream_open(struct stream *stream, int poll)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons(options.port),
                             .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    stream->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = stream};
    if (stream->fd < 0 || connect(stream->fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
        epoll_ctl(poll, EPOLL_CTL_ADD, stream->fd, &event) != 0)
        BENCH_FAIL("connection to port %u: %s", options.port, strerror(errno));
    stream_ask(stream);
}

/* Notes the events in `text`; returns how many bytes are done with. */
static size_t
events_note(struct stream *stream, const char *text, size_t bytes, uint64_t now_ns)
{
    size_t done = 0;
    for (;;) {
        const char *found = memmem(text + done, bytes - done, stamp, sizeof(stamp) - 1);
        if (found == NULL || (size_t)(text + bytes - found) < sizeof(stamp) - 1 + DIGITS)
            return found == NULL ? done : (size_t)(found - text);
        uint64_t sent_ns = strtoull(found + sizeof(stamp) - 1, NULL, 10);
        started_count += stream->events++ == 0;
        if (sent_ns >= record_from_ns)
            samples_add(&lags, now_ns - sent_ns);
        done = (size_t)(found - text) + sizeof(stamp) - 1 + DIGITS;
    }
}

static void
stream_read(struct stream *stream, uint64_t end_ns)
{
    static char text[READ_BYTES + CARRY_BYTES + 1];
    memcpy(text, stream->carry, stream->carried);
    ssize_t got = recv(stream->fd, text + stream->carried, READ_BYTES, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0)
        BENCH_FAIL("a stream ended after %llu events", (unsigned long long)stream->events);
    size_t bytes = stream->carried + (size_t)got;
    text[bytes] = '\0';
    size_t done = events_note(stream, text, bytes, bench_now_ns());
    size_t kept = bytes - done < CARRY_BYTES ? bytes - done : CARRY_BYTES;
    memcpy(stream->carry, text + bytes - kept, kept);
    stream->carried = kept;
    if (kept < sizeof(last) - 1 ||
        memcmp(text + bytes - (sizeof(last) - 1), last, sizeof(last) - 1) != 0)
        return;
    wrong_count += stream->events != options.chunks;
    done_count++;
    stream->carried = 0;
    stream->events = 0;
    if (bench_now_ns() < end_ns)
        stream_ask(stream);
}

static void
turn(int poll, int wait_ms, uint64_t end_ns)
{
    struct epoll_event events[256];
    int count = epoll_wait(poll, events, 256, wait_ms);
    if (count == 0 && wait_ms == STALL_MS)
        BENCH_FAIL("no event for %d ms", STALL_MS);
    for (int i = 0; i < count; i++)
        stream_read(events[i].data.ptr, end_ns);
}

static int
open_all(void)
{
    int poll = epoll_create1(EPOLL_CLOEXEC);
    uint64_t began_ns = bench_now_ns();
    all = calloc(options.streams, sizeof(*all));
    if (poll < 0 || all == NULL)
        BENCH_FAIL("no memory");
    for (uint64_t i = 0; i < options.streams; i++) {
        while (bench_now_ns() < began_ns + i * options.every_us * 1000 / options.streams)
            turn(poll, 0, UINT64_MAX);
        stream_open(&all[i], poll);
    }
    while (started_count < options.streams)
        turn(poll, STALL_MS, UINT64_MAX);
    return poll;
}

static void
hold(int poll)
{
    struct epoll_event input = {.events = EPOLLIN};
    struct epoll_event event;
    if (epoll_ctl(poll, EPOLL_CTL_ADD, STDIN_FILENO, &input) != 0)
        BENCH_FAIL("epoll_ctl: %s", strerror(errno));
    printf("open\n");
    fflush(stdout);
    for (;;) {
        if (epoll_wait(poll, &event, 1, -1) != 1)
            continue;
        if (event.data.ptr == NULL)
            return;
        stream_read(event.data.ptr, 0);
    }
}

static int
measure(int poll)
{
    uint64_t begun_ns = bench_now_ns();
    uint64_t end_ns = begun_ns + options.seconds * BENCH_NS_PER_S;
    uint64_t cpu_ns = bench_servers_cpu_ns(&options.servers);
    record_from_ns = begun_ns;
    while (bench_now_ns() < end_ns && !samples_full(&lags))
        turn(poll, STALL_MS, end_ns);
    cpu_ns = bench_servers_cpu_ns(&options.servers) - cpu_ns;
    uint64_t taken_ns = bench_now_ns() - begun_ns;
    size_t count = lags.count;
    while (done_count < options.streams) /* of each the first answer is counted */
        turn(poll, STALL_MS, 0);
    samples_sort(&lags);
    const struct bench_field fields[] = {
        {"events", (double)count, 0},
        {"events_per_s", (double)count * 1e9 / (double)taken_ns, 1},
        {"lag_p50_us", samples_percentile_us(&lags, 50), 1},
        {"lag_p99_us", samples_percentile_us(&lags, 99), 1},
        {"server_cpu_us_per_event", count > 0 ? (double)cpu_ns / 1e3 / (double)count : 0, 3},
        {"wrong", (double)wrong_count, 0},
    };
    bench_print_fields("stream_load", fields, sizeof(fields) / sizeof(fields[0]), true);
    printf("}\n");
    return wrong_count > 0;
}

static void
read_options(int count, char **arguments)
{
    static const struct option known[] = {{"cpu", required_argument, NULL, 'c'},
                                          {"streams", required_argument, NULL, 's'},
                                          {"chunks", required_argument, NULL, 'n'},
                                          {"every-us", required_argument, NULL, 'e'},
                                          {"seconds", required_argument, NULL, 't'},
                                          {"server-pid", required_argument, NULL, 'p'},
                                          {"hold", no_argument, NULL, 'o'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int id;
    while ((id = getopt_long(count, arguments, "", known, NULL)) != -1)
        switch (id) {
        case 'c': bench_pin((int)bench_number("cpu", optarg, 0, CPU_SETSIZE - 1)); break;
        case 's': options.streams = bench_number("streams", optarg, 1, STREAMS_MAX); break;
        case 'n': options.chunks = bench_number("chunks", optarg, 1, 1000000000); break;
        case 'e': options.every_us = bench_number("every-us", optarg, 1, 100000000); break;
        case 't': options.seconds = bench_number("seconds", optarg, 1, 3600); break;
        case 'p': bench_servers_add(&options.servers, optarg); break;
        case 'o': options.holds = true; break;
        case 'h': fputs(usage, stdout); exit(0);
        default: fputs(usage, stderr); exit(2);
        }
    if (optind + 1 != count) {
        fputs(usage, stderr);
        exit(2);
    }
    options.port = (uint16_t)bench_number("PORT", arguments[optind], 1, UINT16_MAX);
}

int
main(int count, char **arguments)
{
    read_options(count, arguments);
    samples_init(&lags, options.holds ? 1 : SAMPLES_MAX);
    int poll = open_all();
    if (!options.holds)
        return measure(poll);
    hold(poll);
    return 0;
}
