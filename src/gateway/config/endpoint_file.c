/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/config/endpoint_file.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/config/yaml_file.h"

static enum status
read_port(const struct yaml_file *file, const struct tree_node *item, const char *text,
          uint16_t *port, struct error *error)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || number < 1 || number > 65535)
        return yaml_mistake(file, item, error, "port %.20s: write a number from 1 to 65535", text);
    *port = (uint16_t)number;
    return STATUS_OK;
}

/* Not a number that looks like an address with a slip in it. */
static bool
is_host_name(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  ".-_";
    size_t bytes = strlen(text);
    return bytes < ENDPOINT_HOST_BYTES && strpbrk(text, letters) != NULL &&
           strspn(text, allowed) == bytes && text[0] != '.' && text[0] != '-';
}

static void
put_address(char out[ENDPOINT_ADDRESS_BYTES], const char *address, uint16_t port)
{
    bool is_six = strchr(address, ':') != NULL;
    snprintf(out, ENDPOINT_ADDRESS_BYTES, is_six ? "[%s]:%u" : "%s:%u", address, port);
}

void
endpoint_entry_resolve(struct endpoint_entry *entry, const char *address)
{
    entry->host[0] = '\0';
    put_address(entry->address, address, entry->port);
    put_address(entry->metrics_address, address, entry->metrics_port);
    put_address(entry->grpc_address, address, entry->grpc_port);
}

bool
endpoint_entry_place(struct endpoint_entry *entry, const char *host)
{
    struct in6_addr parsed;
    if (inet_pton(AF_INET6, host, &parsed) == 1 || inet_pton(AF_INET, host, &parsed) == 1) {
        endpoint_entry_resolve(entry, host);
        return true;
    }
    if (!is_host_name(host))
        return false;
    entry->address[0] = entry->metrics_address[0] = entry->grpc_address[0] = '\0';
    memcpy(entry->host, host, strlen(host) + 1);
    return true;
}

static enum status
read_mesh(const struct yaml_file *file, const struct tree_node *mesh, struct endpoint_entry *entry,
          struct error *error)
{
    const struct tree_node *labels = yaml_find(mesh, "labels");
    size_t used = (size_t)snprintf(entry->mesh_labels, sizeof(entry->mesh_labels), ",");
    entry->is_mesh = true;
    entry->address[0] = entry->metrics_address[0] = entry->grpc_address[0] = '\0';
    entry->host[0] = '\0';
    if (!yaml_is_map(mesh) || (labels != NULL && !yaml_is_list(labels)))
        return yaml_mistake(file, mesh, error, "mesh: write {}, or { labels: [a, b] }");
    for (const struct tree_node *value = yaml_first(labels); value != NULL; value = value->next) {
        const char *text = yaml_text(value);
        if (text == NULL || *text == '\0' || strchr(text, ',') != NULL)
            return yaml_mistake(file, value, error, "mesh: a label is a string without commas");
        used += (size_t)snprintf(entry->mesh_labels + used, sizeof(entry->mesh_labels) - used,
                                 "%s,", text);
        if (used >= sizeof(entry->mesh_labels))
            return yaml_mistake(file, value, error, "mesh: labels: longer than %d bytes",
                                ENDPOINT_LABELS_BYTES - 1);
    }
    return STATUS_OK;
}

static enum status
read_address(const struct yaml_file *file, const struct tree_node *item,
             struct endpoint_entry *entry, struct error *error)
{
    const char *address = yaml_text(yaml_find(item, "address"));
    const char *port = yaml_text(yaml_find(item, "port"));
    const char *metrics_port = yaml_text(yaml_find(item, "metricsPort"));
    const char *grpc_port = yaml_text(yaml_find(item, "grpcPort"));
    const struct tree_node *mesh = yaml_find(item, "mesh");
    if ((address == NULL) == (mesh == 0) || port == NULL)
        return yaml_mistake(file, item, error,
                            "an endpoint needs name, port, and either address or mesh");
    enum status status = read_port(file, item, port, &entry->port, error);
    if (status == STATUS_OK)
        status = read_port(file, item, metrics_port != NULL ? metrics_port : port,
                           &entry->metrics_port, error);
    if (status == STATUS_OK)
        status =
            read_port(file, item, grpc_port != NULL ? grpc_port : port, &entry->grpc_port, error);
    if (status != STATUS_OK)
        return status;
    if (mesh != NULL)
        return read_mesh(file, mesh, entry, error);
    if (!endpoint_entry_place(entry, address))
        return yaml_mistake(file, item, error,
                            "address %.64s: write an IPv4 or IPv6 address, or a name", address);
    return STATUS_OK;
}

static enum status
read_scheme(const struct yaml_file *file, const struct tree_node *item,
            struct endpoint_entry *entry, struct error *error)
{
    const char *scheme = yaml_text(yaml_find(item, "scheme"));
    const char *name = yaml_text(yaml_find(item, "serverName"));
    bool has_tls = scheme != NULL && strcmp(scheme, "https") == 0;
    entry->tls_name[0] = '\0';
    if (scheme != NULL && !has_tls && strcmp(scheme, "http") != 0)
        return yaml_mistake(file, item, error, "scheme %.20s: write http or https", scheme);
    if (name != NULL && !has_tls)
        return yaml_mistake(file, item, error, "serverName needs `scheme: https`");
    if (name == NULL)
        name = yaml_text(yaml_find(item, "address"));
    if (name == NULL && has_tls)
        return yaml_mistake(file, item, error, "mesh: `scheme: https` needs serverName");
    if (name == NULL)
        return STATUS_OK;
    if (*name == '\0' || strlen(name) >= sizeof(entry->tls_name))
        return yaml_mistake(file, item, error, "serverName: write 1 to %d characters",
                            ENDPOINT_NAME_BYTES - 1);
    if (has_tls)
        memcpy(entry->tls_name, name, strlen(name) + 1);
    return STATUS_OK;
}

static enum status
read_labels(const struct yaml_file *file, const struct tree_node *item,
            struct endpoint_entry *entry, struct error *error)
{
    const struct tree_node *labels = yaml_find(item, "labels");
    size_t used = 0;
    entry->labels[0] = '\0';
    for (const struct tree_node *value = yaml_first(labels); value != NULL; value = value->next) {
        const char *text = yaml_text(value);
        if (!yaml_is_map(labels) || text == NULL || strchr(text, '\n') != NULL ||
            strchr(value->key, '\n') != NULL)
            return yaml_mistake(file, value, error, "labels: expected keys with single values");
        used += (size_t)snprintf(entry->labels + used, sizeof(entry->labels) - used, "%s%s=%s\n",
                                 used == 0 ? "\n" : "", value->key, text);
        if (used >= sizeof(entry->labels))
            return yaml_mistake(file, value, error, "labels: longer than %d bytes",
                                ENDPOINT_LABELS_BYTES - 1);
    }
    return STATUS_OK;
}

/* Nodes of other labels may be others. */
static bool
is_same_place(const struct endpoint_entry *a, const struct endpoint_entry *b)
{
    return a->port == b->port && a->is_mesh == b->is_mesh && strcmp(a->address, b->address) == 0 &&
           strcmp(a->host, b->host) == 0 &&
           (!a->is_mesh || strcmp(a->mesh_labels, b->mesh_labels) == 0);
}

static enum status
read_entry(const struct yaml_file *file, const struct tree_node *item,
           struct endpoint_entry *entries, uint32_t count, struct error *error)
{
    struct endpoint_entry *entry = &entries[count];
    const char *name = yaml_text(yaml_find(item, "name"));
    if (name == NULL || *name == '\0' || strlen(name) >= sizeof(entry->name) ||
        strpbrk(name, "\"\\\n") != NULL)
        return yaml_mistake(file, item, error,
                            "an endpoint needs a name of 1 to %d characters, without quotes",
                            ENDPOINT_NAME_BYTES - 1);
    memcpy(entry->name, name, strlen(name) + 1);
    enum status status = read_address(file, item, entry, error);
    if (status == STATUS_OK)
        status = read_scheme(file, item, entry, error);
    if (status == STATUS_OK)
        status = read_labels(file, item, entry, error);
    for (uint32_t i = 0; i < count && status == STATUS_OK; i++)
        if (strcmp(entries[i].name, entry->name) == 0 || is_same_place(&entries[i], entry))
            status = yaml_mistake(file, item, error, "%s, %s: listed twice", entry->name,
                                  entry->is_mesh           ? "mesh"
                                  : entry->host[0] != '\0' ? entry->host
                                                           : entry->address);
    return status;
}

enum status
endpoint_file_read(const char *path, const struct label_config *labels, uint32_t max,
                   struct endpoint_entry *entries, uint32_t *count, struct error *error)
{
    struct yaml_file *file;
    *count = 0;
    enum status status = yaml_file_read(path, &file, error);
    if (status != STATUS_OK)
        return status;
    const struct tree_node *list = yaml_find(yaml_root(file), "endpoints");
    if (!yaml_is_list(list))
        status = yaml_mistake(file, list, error, "expected a list `endpoints:`");
    const struct tree_node *item;
    for (item = yaml_first(list); status == STATUS_OK && item != NULL; item = item->next) {
        const struct tree_node *its_labels = yaml_find(item, "labels");
        if (!label_config_passes(labels, its_labels))
            continue;
        if (*count == max)
            status =
                yaml_mistake(file, item, error, "more than %u endpoints: raise endpoints_max", max);
        else
            status = read_entry(file, item, entries, *count, error);
        if (status == STATUS_OK)
            entries[(*count)++].label = label_config_value(labels, its_labels);
    }
    yaml_file_free(file);
    return status;
}
