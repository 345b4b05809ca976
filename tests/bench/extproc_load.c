/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Envoy's part in ext_proc, without Envoy: each request is a stream with the messages that Envoy
 * sends in FULL_DUPLEX_STREAMED, the body in pieces of 32 KiB and its end in one of its own, then
 * the answer's headers and body. The next request follows on the same connection.
 *
 *     extproc_load [--cpu N] --connections N --streams N --bytes N [--seconds S] [--warmup S]
 *                  [--server-pid N]... PORT
 *
 * --streams is the number of all that are open at a time. Prints one line of JSON. Exit code 1: a
 * stream failed, or another body came back.
 */
#include "samples.h"

#include <arpa/inet.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "wire/wire.h"

enum { CONNECTIONS_MAX = 256, SAMPLES_MAX = 4000000, READ_BYTES = 256 << 10, PIECE = 32768 };
enum { WINDOW_BYTES = 1 << 20, STALL_MS = 10000 };

static const char usage[] = "Usage: extproc_load [--cpu N] --connections N --streams N --bytes N "
                            "[--seconds S] [--warmup S] [--server-pid N]... PORT\n";

struct load_connection {
    int fd;
    nghttp2_session *session;
    const uint8_t *out; /* from nghttp2, not yet sent */
    size_t out_bytes;
};

struct load_request {
    struct load_connection *connection;
    int32_t id;
    uint64_t began_ns;
    const struct bytes *says; /* its next message */
    size_t said;
    struct bytes came; /* the beginning of a message */
    uint64_t body_bytes;
    bool is_answer; /* it shows the server's answer */
    bool is_done;
};

struct options {
    uint64_t connections;
    uint64_t streams;
    uint64_t bytes;
    uint64_t seconds;
    uint64_t warmup;
    uint16_t port;
    struct bench_servers servers;
};

static struct options options = {.connections = 1, .streams = 1, .bytes = 1000, .seconds = 1};
static struct load_connection connections[CONNECTIONS_MAX];
static struct bytes question;
static struct bytes reply;
static uint64_t question_bytes; /* of the bodies, which must come back */
static uint64_t reply_bytes;
static struct samples times;
static uint64_t end_ns = UINT64_MAX;
static uint64_t record_from_ns;
static uint64_t done_count;
static uint64_t wrong_count;
static uint64_t open_count;

/* ---- messages ---- */

static void
put_message(struct bytes *out, uint32_t phase, const struct bytes *content)
{
    struct bytes message = {0};
    wire_append_run(&message, phase, content->data, content->used);
    const unsigned char prefix[] = {
        0, (unsigned char)(message.used >> 24), (unsigned char)(message.used >> 16),
        (unsigned char)(message.used >> 8), (unsigned char)message.used};
    bytes_put(out, prefix, sizeof(prefix));
    bytes_put(out, message.data, message.used);
    bytes_fini(&message);
}

static void
put_headers(struct bytes *out, uint32_t phase, const char *const *pairs)
{
    struct bytes map = {0};
    struct bytes content = {0};
    for (; pairs[0] != NULL; pairs += 2) {
        struct bytes pair = {0};
        wire_append_run(&pair, 1, pairs[0], strlen(pairs[0]));
        wire_append_run(&pair, 3, pairs[1], strlen(pairs[1]));
        wire_append_run(&map, 1, pair.data, pair.used);
        bytes_fini(&pair);
    }
    wire_append_run(&content, 1, map.data, map.used);
    put_message(out, phase, &content);
    bytes_fini(&map);
    bytes_fini(&content);
}

static void
put_body(struct bytes *out, uint32_t phase, const char *data, size_t bytes)
{
    for (size_t at = 0; at <= bytes; at += PIECE) {
        struct bytes content = {0};
        if (at < bytes)
            wire_append_run(&content, 1, data + at, bytes - at < PIECE ? bytes - at : PIECE);
        else
            break;
        put_message(out, phase, &content);
        bytes_fini(&content);
    }
    struct bytes end = {0};
    wire_append_number(&end, 2, 1);
    put_message(out, phase, &end);
    bytes_fini(&end);
}

static void
make_messages(void)
{
    static const char *const asks[] = {":authority",
                                       "localhost:8100",
                                       ":path",
                                       "/v1/chat/completions",
                                       ":method",
                                       "POST",
                                       ":scheme",
                                       "http",
                                       "user-agent",
                                       "curl/7.88.1",
                                       "accept",
                                       "*/*",
                                       "content-type",
                                       "application/json",
                                       "x-forwarded-for",
                                       "127.0.0.1",
                                       "x-forwarded-proto",
                                       "http",
                                       "x-request-id",
                                       "2f6d0e46-8a4e-4d5c-9b0e-0a1b2c3d4e5f",
                                       NULL};
    static const char *const answers[] = {
        ":status", "200", "content-type", "application/json", "content-length", "300", NULL};
    static const char head[] =
        "{\"model\":\"base\",\"messages\":[{\"role\":\"user\",\"content\":\"";
    static const char words[] = "how many fish are in a shoal? ";
    struct bytes body = {0};
    bytes_put_text(&body, head);
    while (body.used + 4 < options.bytes)
        bytes_put_char(&body, words[body.used % (sizeof(words) - 1)]);
    bytes_put_text(&body, "\"}]}");
    put_headers(&question, 2, asks);
    put_body(&question, 4, body.data, body.used);
    question_bytes = body.used;
    char text[300];
    memset(text, 'x', sizeof(text));
    put_headers(&reply, 3, answers);
    put_body(&reply, 5, text, sizeof(text));
    reply_bytes = sizeof(text);
    bytes_fini(&body);
}

/* ---- requests ---- */

static ssize_t
on_say(nghttp2_session *session, int32_t id, uint8_t *to, size_t room, uint32_t *flags,
       nghttp2_data_source *source, void *context)
{
    (void)session, (void)id, (void)context;
    struct load_request *request = source->ptr;
    size_t left = request->says->used - request->said;
    size_t bytes = left < room ? left : room;
    memcpy(to, request->says->data + request->said, bytes);
    request->said += bytes;
    if (bytes > 0)
        return (ssize_t)bytes;
    if (!request->is_done)
        return NGHTTP2_ERR_DEFERRED;
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    return 0;
}

static nghttp2_nv
field(char *name, char *value)
{
    return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value),
                        NGHTTP2_NV_FLAG_NONE};
}

static void
request_begin(struct load_request *request)
{
    static char text[][64] = {
        ":method",    "POST",           ":scheme",
        "http",       ":path",          "/envoy.service.ext_proc.v3.ExternalProcessor/Process",
        ":authority", "localhost:9002", "te",
        "trailers",   "content-type",   "application/grpc"};
    nghttp2_nv fields[6];
    for (int i = 0; i < 6; i++)
        fields[i] = field(text[2 * i], text[2 * i + 1]);
    request->says = &question;
    request->said = request->body_bytes = request->came.used = 0;
    request->is_answer = request->is_done = false;
    request->began_ns = bench_now_ns();
    nghttp2_data_provider provider = {.source = {.ptr = request}, .read_callback = on_say};
    request->id =
        nghttp2_submit_request(request->connection->session, NULL, fields, 6, &provider, request);
    if (request->id < 0)
        BENCH_FAIL("no stream: %s", nghttp2_strerror(request->id));
}

/* The end of a body: the next part of the request follows. */
static void
on_body_end(struct load_request *request)
{
    wrong_count += request->body_bytes != (request->is_answer ? reply_bytes : question_bytes);
    request->body_bytes = 0;
    request->is_done = request->is_answer;
    if (!request->is_answer) {
        request->says = &reply;
        request->said = 0;
    }
    request->is_answer = true;
    (void)nghttp2_session_resume_data(request->connection->session, request->id);
}

/* ProcessingResponse.(request_body|response_body).response.body_mutation.streamed_response. */
static void
on_message(struct load_request *request, const char *data, size_t bytes)
{
    const struct wire_span span = {.data = data, .bytes = bytes};
    const struct wire_message message = {.spans = &span, .span_count = 1, .bytes = bytes};
    struct wire_cursor cursor = wire_begin(&message);
    const uint32_t path[] = {request->is_answer ? 4 : 3, 1, 3, 3};
    struct wire_field found;
    for (size_t i = 0; i < sizeof(path) / sizeof(path[0]);) {
        if (wire_next(&cursor, &found) != WIRE_FIELD)
            return; /* an answer to headers */
        if (found.number == path[i] && found.type == WIRE_BYTES) {
            cursor = found.data;
            i++;
        }
    }
    bool is_end = false;
    while (wire_next(&cursor, &found) == WIRE_FIELD) {
        if (found.number == 1 && found.type == WIRE_BYTES)
            request->body_bytes += found.value;
        is_end = is_end || (found.number == 2 && found.value != 0);
    }
    if (is_end)
        on_body_end(request);
}

static int
on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t bytes,
        void *context)
{
    (void)flags, (void)context;
    struct load_request *request = nghttp2_session_get_stream_user_data(session, id);
    struct bytes *came = &request->came;
    bytes_put(came, data, bytes);
    size_t at = 0;
    while (came->used - at >= 5) {
        const unsigned char *prefix = (const unsigned char *)came->data + at;
        size_t size =
            (size_t)prefix[1] << 24 | (size_t)prefix[2] << 16 | (size_t)prefix[3] << 8 | prefix[4];
        if (came->used - at - 5 < size)
            break;
        on_message(request, came->data + at + 5, size);
        at += 5 + size;
    }
    memmove(came->data, came->data + at, came->used - at);
    came->used -= at;
    return 0;
}

static int
on_close(nghttp2_session *session, int32_t id, uint32_t code, void *context)
{
    (void)context;
    struct load_request *request = nghttp2_session_get_stream_user_data(session, id);
    uint64_t now_ns = bench_now_ns();
    wrong_count += code != NGHTTP2_NO_ERROR || !request->is_done;
    if (now_ns >= record_from_ns && now_ns < end_ns) {
        samples_add(&times, now_ns - request->began_ns);
        done_count++;
    }
    if (now_ns < end_ns)
        request_begin(request);
    else
        open_count--;
    return 0;
}

/* ---- connections ---- */

static void
connection_open(struct load_connection *connection)
{
    static const nghttp2_settings_entry settings = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE,
                                                    WINDOW_BYTES};
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons(options.port),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int on = 1;
    nghttp2_session_callbacks *callbacks;
    connection->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(connection->fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
        setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0)
        BENCH_FAIL("port %u: %s", options.port, strerror(errno));
    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        BENCH_FAIL("no memory");
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    if (nghttp2_session_client_new(&connection->session, callbacks, NULL) != 0 ||
        nghttp2_submit_settings(connection->session, NGHTTP2_FLAG_NONE, &settings, 1) != 0 ||
        nghttp2_session_set_local_window_size(connection->session, NGHTTP2_FLAG_NONE, 0,
                                              16 * WINDOW_BYTES) != 0)
        BENCH_FAIL("no session");
    nghttp2_session_callbacks_del(callbacks);
}

static void
write_all(struct load_connection *connection)
{
    for (;;) {
        if (connection->out_bytes == 0) {
            ssize_t bytes = nghttp2_session_mem_send(connection->session, &connection->out);
            if (bytes <= 0)
                return;
            connection->out_bytes = (size_t)bytes;
        }
        ssize_t sent = send(connection->fd, connection->out, connection->out_bytes,
                            MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE);
        if (sent < 0 && errno == EAGAIN)
            return;
        if (sent < 0)
            BENCH_FAIL("the server closed: %s", strerror(errno));
        connection->out += sent;
        connection->out_bytes -= (size_t)sent;
    }
}

static void
push(const struct load_connection *connection)
{
    int off = 0;
    int on = 1;
    (void)setsockopt(connection->fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on));
    (void)setsockopt(connection->fd, IPPROTO_TCP, TCP_CORK, &off, sizeof(off));
}

static void
read_some(struct load_connection *connection)
{
    static uint8_t input[READ_BYTES];
    ssize_t got = recv(connection->fd, input, sizeof(input), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0)
        BENCH_FAIL("the server closed the connection");
    ssize_t used = nghttp2_session_mem_recv(connection->session, input, (size_t)got);
    if (used < 0)
        BENCH_FAIL("no HTTP/2: %s", nghttp2_strerror((int)used));
}

static void
turn(void)
{
    struct pollfd polls[CONNECTIONS_MAX];
    for (uint64_t i = 0; i < options.connections; i++) {
        write_all(&connections[i]);
        push(&connections[i]);
        polls[i] = (struct pollfd){.fd = connections[i].fd, .events = POLLIN};
        if (connections[i].out_bytes > 0)
            polls[i].events |= POLLOUT;
    }
    if (poll(polls, options.connections, STALL_MS) == 0)
        BENCH_FAIL("nothing came for %d ms", STALL_MS);
    for (uint64_t i = 0; i < options.connections; i++)
        if ((polls[i].revents & ~POLLOUT) != 0)
            read_some(&connections[i]);
}

static int
measure(void)
{
    struct load_request *requests = calloc(options.streams, sizeof(*requests));
    if (requests == NULL)
        BENCH_FAIL("no memory");
    make_messages();
    for (uint64_t i = 0; i < options.connections; i++)
        connection_open(&connections[i]);
    record_from_ns = bench_now_ns() + options.warmup * BENCH_NS_PER_S;
    for (uint64_t i = 0; i < options.streams; i++, open_count++) {
        requests[i].connection = &connections[i % options.connections];
        request_begin(&requests[i]);
    }
    while (bench_now_ns() < record_from_ns)
        turn();
    uint64_t from_ns = bench_now_ns();
    uint64_t cpu_ns = bench_servers_cpu_ns(&options.servers);
    end_ns = from_ns + options.seconds * BENCH_NS_PER_S;
    while (bench_now_ns() < end_ns)
        turn();
    cpu_ns = bench_servers_cpu_ns(&options.servers) - cpu_ns;
    double seconds = (double)(bench_now_ns() - from_ns) / (double)BENCH_NS_PER_S;
    while (open_count > 0)
        turn();
    samples_sort(&times);
    const struct bench_field fields[] = {
        {"requests_per_s", (double)done_count / seconds, 0},
        {"p50_us", samples_percentile_us(&times, 50), 1},
        {"p99_us", samples_percentile_us(&times, 99), 1},
        {"server_cpu_us_per_request", (double)cpu_ns / 1e3 / (double)(done_count ? done_count : 1),
         1},
        {"wrong", (double)wrong_count, 0},
    };
    bench_print_fields("extproc_load", fields, sizeof(fields) / sizeof(fields[0]), true);
    puts("}");
    return wrong_count > 0;
}

static void
read_options(int count, char **arguments)
{
    static const struct option known[] = {{"cpu", required_argument, NULL, 'c'},
                                          {"connections", required_argument, NULL, 'n'},
                                          {"streams", required_argument, NULL, 's'},
                                          {"bytes", required_argument, NULL, 'b'},
                                          {"seconds", required_argument, NULL, 't'},
                                          {"warmup", required_argument, NULL, 'w'},
                                          {"server-pid", required_argument, NULL, 'p'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int id;
    while ((id = getopt_long(count, arguments, "", known, NULL)) != -1)
        switch (id) {
        case 'c': bench_pin((int)bench_number("cpu", optarg, 0, CPU_SETSIZE - 1)); break;
        case 'n':
            options.connections = bench_number("connections", optarg, 1, CONNECTIONS_MAX);
            break;
        case 's': options.streams = bench_number("streams", optarg, 1, 20000); break;
        case 'b': options.bytes = bench_number("bytes", optarg, 100, 64 << 20); break;
        case 't': options.seconds = bench_number("seconds", optarg, 1, 3600); break;
        case 'w': options.warmup = bench_number("warmup", optarg, 0, 3600); break;
        case 'p': bench_servers_add(&options.servers, optarg); break;
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
    samples_init(&times, SAMPLES_MAX);
    return measure();
}
