/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/rest_guard.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/check.h"
#include "coordinator/config/config.h"

enum { NAME_BYTES_MAX = 255 };

/* A host without its port, in lower case; "" if it is too long or empty. */
struct guard_name {
    char text[NAME_BYTES_MAX + 1];
};

void
rest_guard_init(struct rest_guard *guard, const char *hosts)
{
    guard->hosts = hosts;
    CHECK(gethostname(guard->machine, sizeof(guard->machine)) == 0);
    guard->machine[sizeof(guard->machine) - 1] = '\0';
}

static struct guard_name
name_of(const char *authority)
{
    struct guard_name name = {""};
    bool is_bracketed = authority[0] == '[';
    authority += is_bracketed;
    size_t bytes = strcspn(authority, is_bracketed ? "]" : ":");
    for (size_t i = 0; i < bytes && bytes <= NAME_BYTES_MAX; i++)
        name.text[i] = (char)tolower((unsigned char)authority[i]);
    return name;
}

static bool
is_address(const char *name)
{
    struct in6_addr address;
    return inet_pton(AF_INET, name, &address) == 1 || inet_pton(AF_INET6, name, &address) == 1;
}

/* "localhost", and names below it, which browsers resolve to this machine without asking. */
static bool
is_localhost(const char *name)
{
    static const char localhost[] = "localhost";
    size_t bytes = strlen(name);
    size_t suffix = sizeof(localhost) - 1;
    return bytes >= suffix && strcmp(name + bytes - suffix, localhost) == 0 &&
           (bytes == suffix || name[bytes - suffix - 1] == '.');
}

/* The machine's whole name, or its first label, which no other site can have. A machine without a
 * name has none of them. */
static bool
is_machine(const struct rest_guard *guard, const char *name)
{
    size_t bytes = strlen(name);
    if (bytes == 0 || strncasecmp(guard->machine, name, bytes) != 0)
        return false;
    char after = guard->machine[bytes];
    return after == '\0' || (after == '.' && strchr(name, '.') == NULL);
}

static bool
is_listed(const struct rest_guard *guard, const struct guard_name *name)
{
    return config_labels_have(guard->hosts, name->text, strlen(name->text));
}

static enum status
check_host(const struct rest_guard *guard, const char *host, struct error *error)
{
    struct guard_name name = name_of(host);
    if (is_address(name.text) || is_localhost(name.text) || is_machine(guard, name.text) ||
        is_listed(guard, &name))
        return STATUS_OK;
    return error_set(error, STATUS_PERMISSION_DENIED,
                     "Host \"%.100s\" is not an address, localhost or this machine's name: list "
                     "the name in the key http_hosts",
                     host);
}

static enum status
check_origin(const struct rest_guard *guard, const char *host, const char *origin,
             struct error *error)
{
    const char *authority = strstr(origin, "://");
    if (authority != NULL && host != NULL && strcasecmp(authority + 3, host) == 0)
        return STATUS_OK;
    struct guard_name name = name_of(authority != NULL ? authority + 3 : "");
    if (is_listed(guard, &name))
        return STATUS_OK;
    return error_set(error, STATUS_PERMISSION_DENIED,
                     "Origin \"%.100s\": pages of other sites may not call this node, except those "
                     "of the key http_hosts",
                     origin);
}

enum status
rest_guard_check(const struct rest_guard *guard, enum http_place place, const char *host,
                 const char *origin, struct error *error)
{
    bool checks_host =
        place == HTTP_AT_LOOPBACK || (place == HTTP_AT_NETWORK && guard->hosts != NULL);
    enum status status = STATUS_OK;
    if (checks_host && host != NULL) /* HTTP/1.0 may have none, browsers always do */
        status = check_host(guard, host, error);
    if (status == STATUS_OK && origin != NULL)
        status = check_origin(guard, host, origin, error);
    return status;
}
