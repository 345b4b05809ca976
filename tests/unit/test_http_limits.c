/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limits of the HTTP server over real sockets, one by one: pools that do not take each other's
 * connections, the limit of one address, which idle connection gives way, the times for a head, a
 * body and an answer, those of answers that hold what others need, what is done in one turn, and
 * unix sockets. Each limit is seen in its counter too.
 *
 * ctest: timeout=120 presets=dev,tsan because its thread meets those that answer
 */
#include <sys/un.h>

#include "test_http_rig.h"

#define NOW "GET /now HTTP/1.1\r\nHost: x\r\n\r\n"

enum { FEW = 4, MANY = 100 };

static uint64_t
evicted(struct rig *rig)
{
    return counter_get(rig->counters, NODE_HTTP_EVICTED);
}

static void
assert_served(int fd)
{
    struct answer answer = ask(fd, NOW);
    assert_int_equal(answer.code, 200);
    answer_free(&answer);
}

static int
client_at(uint16_t port, uint32_t from)
{
    struct rig other = {.port = port};
    int fd = client_socket(&other);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(from)};
    assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof(own)), 0);
    connect_client(&other, fd);
    return fd;
}

/* ---- pools ---- */

TEST_CASE(test_pools_are_apart)
{
    struct rig *rig = rig_create();
    struct http_pool_options options = pool_options(rig, 60 * NS_PER_S);
    struct http_service service = service_of(rig);
    options.connections_max = FEW;
    uint16_t contended = rig_listen(rig, &options, &service);
    rig->port = rig_listen(rig, &options, &service);
    http_thread_start(rig->http);
    int quiet = client(rig);
    assert_served(quiet);
    int fds[8 * FEW];
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++)
        assert_served(fds[i] = client_at(contended, INADDR_LOOPBACK));
    assert_int_equal(evicted(rig), ARRAY_COUNT(fds) - FEW);
    assert_served(quiet); /* it is idle longer than any of the others */
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++)
        close(fds[i]);
    close(quiet);
    void *context = rig;
    teardown(&context);
}

/* The one that has been idle longest, not the one that came first. */
TEST_CASE(test_longest_idle_goes)
{
    struct rig *rig = rig_create();
    struct http_pool_options options = pool_options(rig, 60 * NS_PER_S);
    struct http_service service = service_of(rig);
    options.connections_max = 2;
    rig->port = rig_listen(rig, &options, &service);
    http_thread_start(rig->http);
    int first = client(rig);
    assert_served(first);
    int second = client(rig);
    assert_served(second);
    assert_served(first);
    int third = client(rig);
    assert_served(third);
    assert_closed(second);
    assert_served(first);
    assert_int_equal(evicted(rig), 1);
    close(first);
    close(third);
    void *context = rig;
    teardown(&context);
}

/* A request that has come, but was not read because many others connected, keeps its connection. */
TEST_CASE(test_unread_request_stays)
{
    struct rig *rig = rig_create();
    struct http_pool_options options = pool_options(rig, 60 * NS_PER_S);
    struct http_service service = service_of(rig);
    options.connections_max = FEW;
    rig->port = rig_listen(rig, &options, &service);
    int asks = client(rig);
    say(asks, NOW);
    int fds[8 * FEW];
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++)
        fds[i] = client(rig);
    http_thread_start(rig->http); /* finds all of them, and accepts before it reads */
    struct answer answer = receive(asks);
    assert_int_equal(answer.code, 200);
    answer_free(&answer);
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++)
        close(fds[i]);
    close(asks);
    void *context = rig;
    teardown(&context);
}

TEST_CASE(test_address)
{
    struct rig *rig = rig_create();
    struct http_pool_options options = pool_options(rig, 60 * NS_PER_S);
    struct http_service service = service_of(rig);
    options.peer_connections_max = FEW;
    rig->port = rig_listen(rig, &options, &service);
    http_thread_start(rig->http);
    int other = client_at(rig->port, INADDR_LOOPBACK + 1);
    assert_served(other);
    int busy[FEW];
    for (int i = 0; i < FEW; i++) {
        busy[i] = client(rig);
        say(busy[i], "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    wait_opened(rig, FEW);
    int refused = client(rig);
    struct answer answer = receive(refused);
    assert_int_equal(answer.code, 503);
    answer_free(&answer);
    assert_closed(refused);
    assert_int_equal(evicted(rig), 0); /* the other's idle one is not this one's to have */
    assert_served(other);
    close(busy[0]);
    wait_gone(rig, 1);
    int idle = client(rig);
    assert_served(idle);
    int next = client(rig); /* the address has an idle one now */
    assert_served(next);
    assert_closed(idle);
    assert_int_equal(evicted(rig), 1);
    for (int i = 1; i < FEW; i++)
        close(busy[i]);
    close(next);
    close(other);
    wait_gone(rig, FEW);
    void *context = rig;
    teardown(&context);
}

/* The one connection that an address has gives way, and with it all that is known of the address.
 */
TEST_CASE(test_address_with_one)
{
    struct rig *rig = rig_create();
    struct http_pool_options options = pool_options(rig, 60 * NS_PER_S);
    struct http_service service = service_of(rig);
    options.peer_connections_max = 1;
    rig->port = rig_listen(rig, &options, &service);
    http_thread_start(rig->http);
    int idle = client(rig);
    assert_served(idle);
    int next = client(rig);
    assert_served(next);
    assert_closed(idle);
    assert_int_equal(evicted(rig), 1);
    close(next);
    void *context = rig;
    teardown(&context);
}

/* ---- time ---- */

static struct rig *
timed_rig(int64_t header_ns, int64_t body_ns, int64_t write_ns)
{
    struct rig *rig = rig_create();
    struct http_pool_options options = pool_options(rig, 60 * NS_PER_S);
    struct http_service service = service_of(rig);
    options.header_timeout_ns = header_ns;
    options.body_timeout_ns = body_ns;
    options.write_timeout_ns = write_ns;
    rig->port = rig_listen(rig, &options, &service);
    http_thread_start(rig->http);
    return rig;
}

static void
assert_late(struct rig *rig, int fd)
{
    struct answer answer = receive(fd);
    assert_int_equal(answer.code, 408);
    answer_free(&answer);
    assert_closed(fd);
    assert_int_equal(counter_get(rig->counters, NODE_HTTP_TIMED_OUT), 1);
    void *context = rig;
    teardown(&context);
}

TEST_CASE(test_slow_head)
{
    struct rig *rig = timed_rig(100 * (int64_t)NS_PER_MS, 60 * NS_PER_S, 60 * NS_PER_S);
    int fd = client_saying(rig, "GET /now HTT");
    assert_late(rig, fd);
}

TEST_CASE(test_slow_body)
{
    struct rig *rig = timed_rig(60 * NS_PER_S, 100 * (int64_t)NS_PER_MS, 60 * NS_PER_S);
    int fd = client_saying(rig, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc");
    assert_late(rig, fd);
}

TEST_CASE(test_slow_reader)
{
    struct rig *rig = timed_rig(60 * NS_PER_S, 60 * NS_PER_S, 100 * (int64_t)NS_PER_MS);
    int fd = client_saying(rig, "GET /huge HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_released(rig, 1);
    assert_int_equal(counter_get(rig->counters, NODE_HTTP_TIMED_OUT), 1);
    close(fd);
    void *context = rig;
    teardown(&context);
}

/* ---- answers that hold what others need ---- */

/* /large is such an answer, and /huge is not. */
static void
on_scarce(void *context, struct http_request *request)
{
    if (strcmp(http_request_path(request), "/large") == 0)
        http_request_set_scarce(request);
    on_request(context, request);
}

static struct rig *
scarce_rig(int64_t scarce_ns, struct http_pool **pool)
{
    struct rig *rig = rig_create();
    struct http_pool_options options = pool_options(rig, 3600 * NS_PER_S);
    struct http_service service = service_of(rig);
    service.on_request = on_scarce;
    options.scarce_timeout_ns = scarce_ns;
    *pool = http_pool_create(http_thread_server(rig->http), &options);
    rig->port = pool_listen(*pool, &service);
    http_thread_start(rig->http);
    return rig;
}

/* Its own buffer is too small for what the server's does not take. */
static int
client_asking(struct rig *rig, uint32_t from, const char *path)
{
    int fd = client_socket(rig);
    int room = 4096;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(from)};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof(own)), 0);
    connect_client(rig, fd);
    say(fd, "GET ");
    say(fd, path);
    say(fd, " HTTP/1.1\r\nHost: x\r\n\r\n");
    return fd;
}

static void
end_rig(struct rig *rig, const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
    void *context = rig;
    teardown(&context);
}

static uint64_t
cut(struct rig *rig)
{
    return counter_get(rig->counters, NODE_HTTP_CUT);
}

TEST_CASE(test_scarce_answer_has_less_time)
{
    struct http_pool *pool;
    struct rig *rig = scarce_rig(100 * (int64_t)NS_PER_MS, &pool);
    int fds[] = {client_asking(rig, INADDR_LOOPBACK, "/huge"),
                 client_asking(rig, INADDR_LOOPBACK, "/large")};
    wait_released(rig, 1);
    assert_int_equal(cut(rig), 1);
    assert_int_equal(counter_get(rig->counters, NODE_HTTP_TIMED_OUT), 0);
    wait_connections(rig, 1);
    end_rig(rig, fds, ARRAY_COUNT(fds));
}

static void
relieve(void *pool)
{
    http_pool_relieve(pool);
}

/* The one that stands still alone is spared, as are answers that hold nothing. */
TEST_CASE(test_machine_with_most_makes_room)
{
    struct http_pool *pool;
    struct rig *rig = scarce_rig(3600 * NS_PER_S, &pool);
    int fds[] = {client_asking(rig, INADDR_LOOPBACK + 1, "/large"),
                 client_asking(rig, INADDR_LOOPBACK + 2, "/huge"),
                 client_asking(rig, INADDR_LOOPBACK + 2, "/huge"),
                 client_asking(rig, INADDR_LOOPBACK, "/large"),
                 client_asking(rig, INADDR_LOOPBACK, "/large")};
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    while (cut(rig) < 2 && clock_now_ns() < until_ns) {
        http_thread_post(rig->http, relieve, pool);
        wait_moment();
    }
    assert_int_equal(cut(rig), 2);
    wait_connections(rig, 3);
    for (int i = 0; i < FEW; i++)
        http_thread_post(rig->http, relieve, pool);
    int other = client(rig);
    assert_served(other); /* after these */
    close(other);
    assert_int_equal(cut(rig), 2);
    end_rig(rig, fds, ARRAY_COUNT(fds));
}

/* ---- turns ---- */

/* The state when /mark was served. */
static struct {
    uint64_t requests;
    uint64_t connections;
} marked;

static void
on_marking(void *context, struct http_request *request)
{
    struct rig *rig = context;
    if (strcmp(http_request_path(request), "/mark") == 0) {
        marked.requests = counter_get(rig->counters, NODE_HTTP_REQUESTS);
        marked.connections = counter_get(rig->counters, NODE_HTTP_CONNECTIONS);
    }
    answer_text(request, "now");
}

/* Neither many requests of one client nor many new clients hold up another. */
TEST_CASE(test_everybody_has_a_turn)
{
    struct rig *rig = rig_create();
    struct http_pool_options options = pool_options(rig, 60 * NS_PER_S);
    struct http_service service = service_of(rig);
    service.on_request = on_marking;
    rig->port = rig_listen(rig, &options, &service);
    http_thread_start(rig->http);
    int ahead = client(rig);
    int other = client(rig);
    assert_served(ahead);
    assert_served(other);
    http_thread_post(rig->http, look_away, rig);
    CHECK(sem_wait(&rig->looks_away) == 0);
    int fds[MANY];
    for (int i = 0; i < MANY; i++) {
        say(ahead, NOW);
        fds[i] = client(rig);
    }
    say(other, "GET /mark HTTP/1.1\r\nHost: x\r\n\r\n");
    CHECK(sem_post(&rig->said) == 0);
    struct answer answer = receive(other);
    assert_in_range(marked.requests, 3, 2 + 1 + MANY / 10);
    assert_in_range(marked.connections, 2, 2 + MANY / 2);
    answer_free(&answer);
    for (int i = 0; i < MANY; i++) {
        answer = receive(ahead);
        answer_free(&answer);
        close(fds[i]);
    }
    close(ahead);
    close(other);
    void *context = rig;
    teardown(&context);
}

/* ---- unix sockets ---- */

TEST_CASE(test_unix)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof(at.sun_path), "/tmp/shoal-http-%d.sock", (int)getpid());
    char address[128];
    snprintf(address, sizeof(address), "unix:%s", at.sun_path);
    for (int round = 0; round < 2; round++) { /* the second finds what the first has left */
        struct rig *rig = rig_create();
        struct http_pool_options options = pool_options(rig, 60 * NS_PER_S);
        struct http_service service = service_of(rig);
        struct error error = ERROR_NONE;
        int left = socket(AF_UNIX, SOCK_STREAM, 0);
        assert_int_equal(bind(left, (struct sockaddr *)&at, sizeof(at)), 0);
        close(left);
        struct http_pool *pool = http_pool_create(http_thread_server(rig->http), &options);
        assert_int_equal(http_listen(pool, address, &service, NULL, &error), STATUS_OK);
        assert_int_equal(http_listen(pool, address, &service, NULL, &error), STATUS_UNAVAILABLE);
        http_thread_start(rig->http);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
        struct answer answer = ask(fd, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_string_equal(answer.body, "0 /x - unix");
        answer_free(&answer);
        close(fd);
        void *context = rig;
        teardown(&context);
        assert_int_equal(access(at.sun_path, F_OK), -1);
    }
}

TEST_MAIN()
