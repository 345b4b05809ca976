/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/rest_headers.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* About the connection, or about how a body or an answer is written. Those that begin with a name
 * that ends in '-' count, too. */
static const char *const own[] = {
    "accept",
    "accept-",
    "connection",
    "content-",
    "date",
    "expect",
    "host",
    "inference-header-content-length",
    "keep-alive",
    "proxy-",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
};

static bool
is_own(const char *key)
{
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        size_t bytes = strlen(own[i]);
        if (strncmp(key, own[i], bytes) == 0 && (own[i][bytes - 1] == '-' || key[bytes] == '\0'))
            return true;
    }
    return false;
}

static bool
is_binary(const char *key)
{
    size_t bytes = strlen(key);
    return bytes > 4 && strcmp(key + bytes - 4, "-bin") == 0;
}

/* The header's name as metadata have it, but for its case. */
static const char *
strip(const char *name)
{
    static const char prefix[] = "grpc-metadata-";
    size_t bytes = sizeof(prefix) - 1;
    return strncasecmp(name, prefix, bytes) == 0 ? name + bytes : name;
}

bool
rest_headers_find(const struct http_request *request, const char *key, size_t *position,
                  struct wire_span *value)
{
    const char *name;
    const char *text;
    if (is_binary(key))
        return false;
    while (http_request_header_walk(request, position, &name, &text))
        if (strcasecmp(strip(name), key) == 0) {
            *value = (struct wire_span){text, strlen(text)};
            return true;
        }
    return false;
}

bool
rest_headers_walk(const struct http_request *request, size_t *position,
                  char key[REST_KEY_BYTES_MAX + 1], struct rpc_metadata *entry)
{
    const char *name;
    const char *text;
    while (http_request_header_walk(request, position, &name, &text)) {
        name = strip(name);
        size_t bytes = strlen(name);
        if (bytes > REST_KEY_BYTES_MAX)
            continue;
        for (size_t i = 0; i <= bytes; i++)
            key[i] = (char)tolower((unsigned char)name[i]);
        *entry = (struct rpc_metadata){{key, bytes}, {text, strlen(text)}};
        if (!is_own(key) && !is_binary(key) && rpc_metadata_is_legal(entry))
            return true;
    }
    return false;
}
