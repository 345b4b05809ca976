/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration of a process that takes over from another one: an instance of its own, and
 * addresses for peers that the other one does not have.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <unistd.h>

#include "../test.h"
#include "base/check.h"
#include "coordinator/config/config_tree.h"
#include "coordinator/successor.h"

static struct config_mesh mesh;

/* A port that somebody listens on, or, closed again, nobody. */
static int
open_port(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

static void
given(const char *instance, const char *host, int port)
{
    mesh = (struct config_mesh){.on = true, .peers.count = 1};
    mesh.instance = must_copy(instance);
    mesh.peers.items[0] = must_format("%s:%d", host, port);
}

static int
forget(void **state)
{
    (void)state;
    free(mesh.instance);
    free(mesh.address);
    free(mesh.peers.items[0]);
    free(mesh.upgrade_peers.items[0]);
    mesh = (struct config_mesh){.on = false};
    return 0;
}

TEST_CASE(test_the_id_has_the_pid)
{
    int port;
    close(open_port(&port));
    given("node-a", "127.0.0.1", port);
    char *peers = must_copy(mesh.peers.items[0]);
    mesh.address = must_copy("a.example:8080");
    successor_configure(&mesh, 4711);
    assert_string_equal(mesh.instance, "node-a-4711");
    assert_string_equal(mesh.peers.items[0], peers); /* nobody has it */
    assert_string_equal(mesh.address, "a.example:8080");
    free(peers);
    forget(state);
    char name[CONFIG_NAME_BYTES_MAX + 1];
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    given(name, "127.0.0.1", port);
    successor_configure(&mesh, 4194304);
    assert_int_equal(strlen(mesh.instance), CONFIG_NAME_BYTES_MAX);
    assert_string_equal(mesh.instance + CONFIG_NAME_BYTES_MAX - 9, "n-4194304");
}

TEST_CASE(test_peers_that_are_taken)
{
    static const struct {
        const char *host, *peers;
    } hosts[] = {{"127.0.0.1", "127.0.0.1:0"}, {"port", "port:0"}};
    int port;
    int fd = open_port(&port);
    for (size_t i = 0; i < ARRAY_COUNT(hosts); i++) {
        given("a", hosts[i].host, port);
        mesh.address = must_copy("a.example:8080");
        successor_configure(&mesh, 7);
        assert_string_equal(mesh.peers.items[0], hosts[i].peers);
        assert_string_equal(mesh.address, "a.example"); /* with the port that is bound */
        forget(state);
    }
    given("a", "127.0.0.1", port);
    mesh.upgrade_peers.items[0] = must_copy("127.0.0.1:8081");
    mesh.upgrade_peers.count = 1;
    mesh.address = must_copy("a.example");
    successor_configure(&mesh, 7);
    assert_string_equal(mesh.peers.items[0], "127.0.0.1:8081");
    assert_string_equal(mesh.address, "a.example");
    close(fd);
}

TEST_CASE_WITH(test_without_a_mesh, NULL, NULL)
{
    successor_configure(&mesh, 7);
    assert_null(mesh.instance);
}

TEST_MAIN(.teardown = forget)
