/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/config/endpoint_file.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/config/yaml_file.h"

/* Writes the address with that port. */
static enum status
put_address(const struct yaml_file *file, int item, const char *address, const char *port,
            char out[ENDPOINT_ADDRESS_BYTES], struct error *error)
{
    struct in6_addr parsed;
    char *end;
    bool is_six = inet_pton(AF_INET6, address, &parsed) == 1;
    unsigned long number = strtoul(port, &end, 10);
    if (*port < '0' || *port > '9' || *end != '\0' || number < 1 || number > 65535)
        return yaml_mistake(file, item, error, "port %.20s: write a number from 1 to 65535", port);
    snprintf(out, ENDPOINT_ADDRESS_BYTES, is_six ? "[%s]:%lu" : "%s:%lu", address, number);
    return STATUS_OK;
}

static enum status
read_address(const struct yaml_file *file, int item, struct endpoint_entry *entry,
             struct error *error)
{
    const char *address = yaml_text(file, yaml_find(file, item, "address"));
    const char *port = yaml_text(file, yaml_find(file, item, "port"));
    const char *metrics_port = yaml_text(file, yaml_find(file, item, "metricsPort"));
    struct in6_addr parsed;
    if (address == NULL || port == NULL)
        return yaml_mistake(file, item, error, "an endpoint needs name, address and port");
    if (inet_pton(AF_INET6, address, &parsed) != 1 && inet_pton(AF_INET, address, &parsed) != 1)
        return yaml_mistake(file, item, error, "address %.64s: write an IPv4 or IPv6 address",
                            address);
    enum status status = put_address(file, item, address, port, entry->address, error);
    return status == STATUS_OK
               ? put_address(file, item, address, metrics_port != NULL ? metrics_port : port,
                             entry->metrics_address, error)
               : status;
}

static enum status
read_scheme(const struct yaml_file *file, int item, struct endpoint_entry *entry,
            struct error *error)
{
    const char *scheme = yaml_text(file, yaml_find(file, item, "scheme"));
    const char *name = yaml_text(file, yaml_find(file, item, "serverName"));
    bool has_tls = scheme != NULL && strcmp(scheme, "https") == 0;
    entry->tls_name[0] = '\0';
    if (scheme != NULL && !has_tls && strcmp(scheme, "http") != 0)
        return yaml_mistake(file, item, error, "scheme %.20s: write http or https", scheme);
    if (name != NULL && !has_tls)
        return yaml_mistake(file, item, error, "serverName needs `scheme: https`");
    if (name == NULL)
        name = yaml_text(file, yaml_find(file, item, "address"));
    if (*name == '\0' || strlen(name) >= sizeof(entry->tls_name))
        return yaml_mistake(file, item, error, "serverName: write 1 to %d characters",
                            ENDPOINT_NAME_BYTES - 1);
    if (has_tls)
        memcpy(entry->tls_name, name, strlen(name) + 1);
    return STATUS_OK;
}

static enum status
read_entry(const struct yaml_file *file, int item, struct endpoint_entry *entries, uint32_t count,
           struct error *error)
{
    struct endpoint_entry *entry = &entries[count];
    const char *name = yaml_text(file, yaml_find(file, item, "name"));
    if (name == NULL || *name == '\0' || strlen(name) >= sizeof(entry->name) ||
        strpbrk(name, "\"\\\n") != NULL)
        return yaml_mistake(file, item, error,
                            "an endpoint needs a name of 1 to %d characters, without quotes",
                            ENDPOINT_NAME_BYTES - 1);
    memcpy(entry->name, name, strlen(name) + 1);
    enum status status = read_address(file, item, entry, error);
    if (status == STATUS_OK)
        status = read_scheme(file, item, entry, error);
    for (uint32_t i = 0; i < count && status == STATUS_OK; i++)
        if (strcmp(entries[i].name, entry->name) == 0 ||
            strcmp(entries[i].address, entry->address) == 0)
            status = yaml_mistake(file, item, error, "%s, %s: listed twice", entry->name,
                                  entry->address);
    return status;
}

enum status
endpoint_file_read(const char *path, uint32_t max, struct endpoint_entry *entries, uint32_t *count,
                   struct error *error)
{
    struct yaml_file *file;
    *count = 0;
    enum status status = yaml_file_read(path, &file, error);
    if (status != STATUS_OK)
        return status;
    int list = yaml_find(file, yaml_root(file), "endpoints");
    if (!yaml_is_list(file, list))
        status = yaml_mistake(file, list, error, "a list `endpoints:` is wanted");
    for (int item; status == STATUS_OK && (item = yaml_at(file, list, *count, NULL)) != 0;) {
        if (*count == max)
            status =
                yaml_mistake(file, item, error, "more than %u endpoints: raise endpoints_max", max);
        else
            status = read_entry(file, item, entries, *count, error);
        *count += status == STATUS_OK;
    }
    yaml_file_free(file);
    return status;
}
