/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections of addresses that flooded the server: when each gets its turn (penalty.c, at times of
 * the test's choice), and what the accepting thread does with those that wait. Floods are reported
 * to it here, with numbers as channelz has them; real ones are in tests/integration/test_21_*.py.
 *
 * ctest: timeout=120 presets=dev,tsan because connections pass from one thread to another
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "test_rpc_rig.h"

#define HOUR_NS (3600 * (int64_t)NS_PER_S)

/* ---- addresses ---- */

static struct rpc_peer
peer_number(unsigned number, uint16_t port)
{
    struct rpc_peer peer = {.family = AF_INET, .port = port, .address = {10, 0}};
    peer.address[2] = (unsigned char)(number >> 8);
    peer.address[3] = (unsigned char)number;
    return peer;
}

static void
assert_parsed(const char *text, const char *address, uint16_t port, uint32_t scope)
{
    struct rpc_peer parsed;
    assert_true(rpc_peer_parse(text, &parsed));
    struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_scope_id = scope};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_storage storage = {0};
    if (inet_pton(AF_INET, address, &four.sin_addr) == 1) {
        memcpy(&storage, &four, sizeof(four));
    } else {
        assert_int_equal(inet_pton(AF_INET6, address, &six.sin6_addr), 1);
        memcpy(&storage, &six, sizeof(six));
    }
    struct rpc_peer given = rpc_peer_of(&storage);
    assert_true(rpc_peer_same(&parsed, &given));
}

TEST_CASE(test_texts_of_peers)
{
    assert_parsed("ipv4:192.0.2.7:1234", "192.0.2.7", 1234, 0);
    assert_parsed("ipv4:192.0.2.7:1234", "::ffff:192.0.2.7", 1234, 0);
    assert_parsed("ipv6:%5B::1%5D:65535", "::1", 65535, 0);
    assert_parsed("ipv6:%5Bfe80::1:2%2517%5D:80", "fe80::1:2", 80, 17);
    static const char *const others[] = {
        "",
        "unix:/run/s",
        "fd:8",
        "ipv4:",
        "ipv4:192.0.2.7",
        "ipv6:%5B::1",
        "ipv6:%5B%251%5D:1",
        "ipv4:192.0.2.7192.0.2.7192.0.2.7192.0.2.7192.0.2.7:1",
    };
    struct rpc_peer peer;
    for (size_t i = 0; i < ARRAY_COUNT(others); i++)
        assert_false(rpc_peer_parse(others[i], &peer));
    struct rpc_peer link, other_link;
    assert_true(rpc_peer_parse("ipv6:%5Bfe80::1%252%5D:80", &link));
    assert_true(rpc_peer_parse("ipv6:%5Bfe80::1%253%5D:80", &other_link));
    assert_false(rpc_peer_same_machine(&link, &other_link));
}

TEST_CASE(test_turns)
{
    struct rpc_penalties penalties = {0};
    struct rpc_peer flooder = peer_number(1, 1000);
    struct rpc_peer same_address = peer_number(1, 2000);
    struct rpc_peer other = peer_number(2, 1000);
    int64_t now_ns = HOUR_NS;
    assert_int_equal(rpc_penalties_until(&penalties, &flooder), 0);
    rpc_penalties_add(&penalties, &flooder, now_ns);
    assert_int_equal(rpc_penalties_until(&penalties, &same_address), now_ns + RPC_PENALTY_NS);
    assert_int_equal(rpc_penalties_until(&penalties, &other), 0);
    now_ns += RPC_PENALTY_NS;
    rpc_penalties_step(&penalties, &same_address, now_ns);
    assert_int_equal(rpc_penalties_until(&penalties, &flooder), now_ns + RPC_PENALTY_STEP_NS);
    rpc_penalties_add(&penalties, &same_address, ++now_ns); /* it floods, too */
    assert_int_equal(rpc_penalties_until(&penalties, &flooder), now_ns + RPC_PENALTY_AGAIN_NS);
    now_ns += RPC_PENALTY_AGAIN_NS + RPC_PENALTY_MEMORY_NS;
    rpc_penalties_add(&penalties, &flooder, now_ns);
    assert_int_equal(rpc_penalties_until(&penalties, &flooder), now_ns + RPC_PENALTY_AGAIN_NS);
    now_ns += RPC_PENALTY_AGAIN_NS + RPC_PENALTY_MEMORY_NS + 1; /* that was long ago */
    rpc_penalties_add(&penalties, &flooder, now_ns);
    assert_int_equal(rpc_penalties_until(&penalties, &flooder), now_ns + RPC_PENALTY_NS);
    rpc_penalties_step(&penalties, &other, now_ns); /* it has not flooded */
    assert_int_equal(rpc_penalties_until(&penalties, &other), 0);
}

TEST_CASE(test_full_table)
{
    struct rpc_penalties penalties = {0};
    struct rpc_peer peer;
    int64_t now_ns = HOUR_NS;
    for (unsigned i = 0; i < RPC_PENALTIES_MAX; i++) {
        peer = peer_number(i, 1);
        rpc_penalties_add(&penalties, &peer, now_ns + i);
    }
    struct rpc_peer first = peer_number(0, 1);
    struct rpc_peer second = peer_number(1, 1);
    struct rpc_peer last = peer_number(RPC_PENALTIES_MAX, 1);
    rpc_penalties_add(&penalties, &first, now_ns + RPC_PENALTIES_MAX); /* it has an entry already */
    rpc_penalties_add(&penalties, &last, now_ns + RPC_PENALTIES_MAX);
    assert_int_equal(rpc_penalties_until(&penalties, &second), 0);
    for (unsigned i = 0; i <= RPC_PENALTIES_MAX; i++) {
        peer = peer_number(i, 1);
        assert_int_equal(rpc_penalties_until(&penalties, &peer) == 0, i == 1);
    }
    now_ns += RPC_PENALTY_NS + 2; /* the time of the third is over: nobody else loses its entry */
    rpc_penalties_add(&penalties, &second, now_ns);
    for (unsigned i = 0; i <= RPC_PENALTIES_MAX; i++) {
        peer = peer_number(i, 1);
        assert_int_equal(rpc_penalties_until(&penalties, &peer) == 0, i == 2);
    }
}

/* ---- connections by hand ---- */

static int
tcp_port(const struct rig *rig)
{
    return rpc_server_port(rig->server, 1);
}

/* From 127.0.0.`machine`, at that port or any. */
static int
connect_from(const struct rig *rig, unsigned machine, uint16_t port)
{
    static const int on = 1;
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_port = htons(port)};
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + machine);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)tcp_port(rig))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    static const char begin[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
    assert_int_equal(send(fd, begin, sizeof(begin), MSG_NOSIGNAL), sizeof(begin));
    return fd;
}

static uint16_t
own_port(int fd)
{
    struct sockaddr_in address;
    socklen_t bytes = sizeof(address);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    return ntohs(address.sin_port);
}

/* Bytes that have come, at least one unless the connection has ended: then 0 or less. */
static ssize_t
wait_bytes(int fd)
{
    char bytes[1024];
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&poll_fd, 1, PATIENCE_S * 1000), 1);
    return read(fd, bytes, sizeof(bytes));
}

static void
wait_end(int fd)
{
    while (wait_bytes(fd) > 0)
        continue;
}

/* The library has it: it has sent its settings. */
static int
connect_and_wait(const struct rig *rig, unsigned machine, uint16_t port)
{
    int fd = connect_from(rig, machine, port);
    assert_true(wait_bytes(fd) > 0);
    return fd;
}

/* With a reset, so that the port can be used again at once. */
static void
close_hard(int fd)
{
    struct linger linger = {.l_onoff = 1};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
    close(fd);
}

static const char *
peer_text(unsigned machine, uint16_t port)
{
    static char text[64];
    snprintf(text, sizeof(text), "ipv4:127.0.0.%u:%u", machine, port);
    return text;
}

enum figure { ACCEPTED, CONNECTIONS, REFUSED };

static uint64_t
figure_of(const struct rig *rig, enum figure figure)
{
    struct rpc_figures figures = rpc_server_figures(rig->server);
    return figure == ACCEPTED      ? figures.accepted
           : figure == CONNECTIONS ? figures.connections
                                   : figures.refused;
}

static void
wait_figure(const struct rig *rig, enum figure figure, uint64_t wanted)
{
    int64_t until_ns = clock_now_ns() + PATIENCE_S * (int64_t)NS_PER_S;
    while (figure_of(rig, figure) != wanted && clock_now_ns() < until_ns)
        poll(NULL, 0, 1);
    assert_int_equal(figure_of(rig, figure), wanted);
}

/* A connection of 127.0.0.2 has flooded the server, at a time of the test's choice. */
static void
flood(struct rig *rig, int64_t now_ns)
{
    static long number = 1000;
    uint64_t cut = rpc_server_figures(rig->server).cut;
    int fd = connect_and_wait(rig, 2, 0);
    assert_true(rpc_acceptor_cut_flood(rig->server->acceptor, peer_text(2, own_port(fd)), number++,
                                       now_ns));
    assert_int_equal(rpc_server_figures(rig->server).cut, cut + 1);
    wait_end(fd);
    close(fd);
}

/* ---- connections that wait ---- */

static uint64_t
held_by(const struct rig *rig)
{
    return rpc_server_figures(rig->server).held;
}

/* Three of one address wait for a second, and for each other; one of another address for nobody. */
TEST_CASE(test_they_wait_in_turn)
{
    struct rig *rig = rig_start(1, NULL);
    int64_t began_ns = 0;
    int fds[3];
    uint64_t held = 0;
    for (int tries = 0; held != 3; tries++) { /* again if the machine stood still for a second */
        assert_true(tries < 20);
        uint64_t accepted = figure_of(rig, ACCEPTED);
        uint64_t before = held_by(rig);
        began_ns = clock_now_ns();
        flood(rig, began_ns);
        for (unsigned i = 0; i < 3; i++) {
            fds[i] = connect_from(rig, 2, 0);
            wait_figure(rig, ACCEPTED, accepted + 2 + i);
        }
        held = held_by(rig) - before;
        close(connect_and_wait(rig, 3, 0));
        assert_int_equal(held_by(rig) - before, held);
        for (int i = 0; i < 3 && held != 3; i++)
            close(fds[i]);
        if (held != 3)
            wait_figure(rig, CONNECTIONS, 0);
    }
    for (unsigned i = 0; i < 3; i++) {
        assert_true(wait_bytes(fds[i]) > 0);
        assert_true(clock_now_ns() - began_ns >= RPC_PENALTY_NS + i * RPC_PENALTY_STEP_NS);
        close(fds[i]);
    }
    rig_stop(rig);
}

static void
adjust_two_per_peer(struct rpc_server_options *options)
{
    options->connections_per_peer_max = 2;
}

/* One that waits has its place, and gives it back when it goes, in every case. */
TEST_CASE(test_they_count)
{
    struct rig *rig = rig_start(1, adjust_two_per_peer);
    flood(rig, clock_now_ns() + HOUR_NS);
    wait_figure(rig, CONNECTIONS, 0);
    for (int hard = 0; hard < 2; hard++) {
        uint64_t refused = figure_of(rig, REFUSED);
        int fds[] = {connect_from(rig, 2, 0), connect_from(rig, 2, 0)};
        wait_figure(rig, CONNECTIONS, 2);
        int third = connect_from(rig, 2, 0);
        wait_figure(rig, REFUSED, refused + 1);
        close(third);
        for (int i = 0; i < 2; i++)
            if (hard)
                close_hard(fds[i]);
            else
                close(fds[i]);
        wait_figure(rig, CONNECTIONS, 0);
    }
    assert_int_equal(held_by(rig), 4);
    rig_stop(rig);
}

/* They end with the server, which does not wait for them. */
TEST_CASE(test_they_end_with_the_server)
{
    for (int answered = 0; answered < 2; answered++) {
        struct rig *rig = rig_start(1, NULL);
        flood(rig, clock_now_ns() + HOUR_NS);
        int fd = connect_from(rig, 2, 0);
        wait_figure(rig, ACCEPTED, 2);
        rpc_server_stop(rig->server);
        if (answered)
            wait_end(fd);
        rig_join(rig);
        rig_destroy(rig);
        wait_end(fd);
        close(fd);
    }
}

/* ---- connections that channelz still lists ---- */

static uint64_t
fill(struct rig *rig, uint16_t port, long number, uint64_t resets)
{
    struct rpc_socket_figures figures = {
        .peer = peer_text(1, port), .number = number, .resets = resets};
    return rpc_acceptor_fill(rig->server->acceptor, &figures, 1000, HOUR_NS);
}

/* A port is used again while its former connection is still listed: the new one does not answer for
 * what the former did. */
TEST_CASE(test_port_used_again)
{
    struct rig *rig = rig_start(1, NULL);
    int fd = connect_and_wait(rig, 1, 0);
    uint16_t port = own_port(fd);
    assert_int_equal(fill(rig, port, 10, 5), 5);
    assert_int_equal(fill(rig, port, 10, 7), 7);
    close_hard(fd);
    wait_figure(rig, CONNECTIONS, 0);
    assert_int_equal(fill(rig, port, 10, 8), 0);
    fd = connect_and_wait(rig, 1, port);
    assert_int_equal(fill(rig, port, 10, 5000), 0);
    assert_int_equal(fill(rig, port, 11, 3), 3);
    assert_int_equal(fill(rig, port, 10, 5000), 0);
    assert_int_equal(fill(rig, port, 11, 4), 4);
    struct rpc_acceptor *acceptor = rig->server->acceptor;
    assert_true(rpc_acceptor_cut_flood(acceptor, peer_text(1, port), 10, 0));
    assert_int_equal(rpc_server_figures(rig->server).cut, 0);
    assert_true(rpc_acceptor_cut_flood(acceptor, peer_text(1, port), 11, 0));
    assert_int_equal(rpc_server_figures(rig->server).cut, 1);
    wait_end(fd);
    close(fd);
    rig_stop(rig);
}

TEST_MAIN(.group_setup = rig_group_setup, .group_teardown = rig_group_teardown)
