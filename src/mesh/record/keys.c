/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/record/keys.h"

#include <string.h>

static const char *const areas[RECORD_AREAS] = {
    [RECORD_MODELS] = "registry",     [RECORD_VMODELS] = "vmodels",
    [RECORD_INSTANCES] = "instances", [RECORD_CONFIG] = "config",
    [RECORD_MANIFESTS] = "manifests", [RECORD_CANDIDATES] = "leaderLatch",
};

struct record_span
record_text(const char *text)
{
    return (struct record_span){text, strlen(text)};
}

enum status
record_prefix(const char *root, const char *mesh, const char *service, struct bytes *to,
              struct error *error)
{
    if (mesh[0] == '\0' || service[0] == '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the registry's keys: the %s's name is empty",
                         mesh[0] == '\0' ? "mesh" : "service");
    if (root != NULL)
        bytes_put_text(to, root);
    bytes_put_char(to, '/');
    bytes_put_text(to, mesh);
    bytes_put_char(to, '/');
    bytes_put_text(to, service);
    bytes_put_char(to, '/');
    return STATUS_OK;
}

void
record_area_put(struct bytes *to, struct record_span prefix, enum record_area area)
{
    bytes_put(to, prefix.data, prefix.bytes);
    bytes_put_text(to, areas[area]);
    bytes_put_char(to, '/');
}

/* Candidates have an underscore before their name. */
void
record_key_put(struct bytes *to, struct record_span prefix, enum record_area area,
               struct record_span id)
{
    record_area_put(to, prefix, area);
    if (area == RECORD_CANDIDATES)
        bytes_put_char(to, '_');
    bytes_put(to, id.data, id.bytes);
}

static bool
cut(struct record_span *from, const char *data, size_t bytes)
{
    if (from->bytes < bytes || memcmp(from->data, data, bytes) != 0)
        return false;
    from->data += bytes;
    from->bytes -= bytes;
    return true;
}

bool
record_key_parse(struct record_span prefix, struct record_span key, enum record_area *area,
                 struct record_span *id)
{
    if (!cut(&key, prefix.data, prefix.bytes))
        return false;
    for (enum record_area at = 0; at < RECORD_AREAS; at++) {
        struct record_span rest = key;
        if (!cut(&rest, areas[at], strlen(areas[at])) || !cut(&rest, "/", 1))
            continue;
        if (at == RECORD_CANDIDATES && !cut(&rest, "_", 1))
            return false;
        *area = at;
        *id = rest;
        return rest.bytes > 0;
    }
    return false;
}
