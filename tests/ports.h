/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TCP ports for servers that a test starts, and may stop and start again.
 *
 * Tests run beside one another, and a port is free between the moment it is chosen and the moment
 * its server listens, and while the server is down. So a process reserves each port that it chooses
 * by binding an abstract socket address that contains the number, until it ends. Tests in Python do
 * the same, by the same name (shoal_ports.py).
 */
#pragma once

#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "random.h"

/* Below the ports that the kernel gives to clients and for port 0. */
enum { PORT_FIRST = 10000, PORT_COUNT = 22000 };

/* True: no other test has it. The reservation ends with the process. */
static inline bool
port_reserve(uint16_t port)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int length =
        snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "shoal-port-%u", (unsigned)port);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    if (bind(fd, (struct sockaddr *)&name, bytes) == 0)
        return true;
    CHECK(errno == EADDRINUSE);
    close(fd);
    return false;
}

/* True: nobody listens there, on any address. */
static inline bool
port_is_free(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    int bound = bind(fd, (struct sockaddr *)&address, sizeof(address));
    close(fd);
    return bound == 0;
}

static inline uint16_t
free_port(void)
{
    static uint64_t state;
    if (state == 0)
        CHECK(getrandom(&state, sizeof(state), 0) == sizeof(state));
    for (;;) {
        uint16_t port = (uint16_t)(PORT_FIRST + random_draw(&state) % PORT_COUNT);
        if (port_reserve(port) && port_is_free(port))
            return port;
    }
}
