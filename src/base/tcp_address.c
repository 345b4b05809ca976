/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tcp_address.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bool
port_parse(const char *text, struct tcp_address *parsed)
{
    size_t length = strspn(text, "0123456789");
    if (length == 0 || length >= sizeof(parsed->port) || text[length] != '\0' ||
        atoi(text) > UINT16_MAX)
        return false;
    memcpy(parsed->port, text, length + 1);
    return true;
}

bool
tcp_address_parse(const char *address, struct tcp_address *parsed)
{
    const char *colon = strrchr(address, ':');
    if (colon == NULL || !port_parse(colon + 1, parsed))
        return false;
    const char *host = address;
    size_t length = (size_t)(colon - address);
    if (length >= 2 && host[0] == '[' && host[length - 1] == ']') {
        host++;
        length -= 2;
    }
    if (length == 0 || length >= sizeof(parsed->host))
        return false;
    memcpy(parsed->host, host, length);
    parsed->host[length] = '\0';
    if (strcmp(parsed->host, "port") == 0)
        parsed->host[0] = '\0';
    return true;
}
