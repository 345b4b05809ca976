/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An address to listen on, as an operator writes it: `port:8033` (all interfaces),
 * `127.0.0.1:8033`, `name:8033`, `[::1]:8033`. Pure: no name is resolved.
 */
#pragma once

#include <stdbool.h>

struct tcp_address {
    char host[256]; /* without brackets; "" for all interfaces */
    char port[6];   /* decimal, 0 to 65535 */
};

/* False: malformed. */
bool tcp_address_parse(const char *address, struct tcp_address *parsed);
