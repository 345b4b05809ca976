/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/loop/control_request.h"

#include <jansson.h>
#include <string.h>

#include <shoal/modelet.h>

#include "base/check.h"

#define ANOTHER_VERSION "use the shoalctl that came with this shoald"

/* Each text takes less room than in the packet, where it has two quotes. */
struct text_room {
    char *at;
    size_t left;
};

static enum status
read_text(json_t *root, const char *name, size_t room_max, struct text_room *room,
          const char **text, struct error *error)
{
    json_t *value = json_object_get(root, name);
    size_t bytes = json_string_length(value) + 1;
    *text = "";
    if (value == NULL)
        return STATUS_OK;
    if (!json_is_string(value))
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s is not a string", name);
    if (bytes > room_max)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s has %zu bytes, more than %zu", name,
                         bytes - 1, room_max - 1);
    CHECK(bytes <= room->left);
    *text = memcpy(room->at, json_string_value(value), bytes);
    room->at += bytes;
    room->left -= bytes;
    return STATUS_OK;
}

static enum status
read_number(json_t *root, const char *name, uint32_t *number, struct error *error)
{
    json_t *value = json_object_get(root, name);
    json_int_t whole = json_integer_value(value);
    if (value != NULL && (!json_is_integer(value) || whole < 0 || whole > UINT32_MAX))
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s is not an integer from 0 to %u", name,
                         UINT32_MAX);
    *number = (uint32_t)whole;
    return STATUS_OK;
}

static enum status
read_verb(json_t *root, enum control_verb *verb, struct error *error)
{
    const char *name = json_string_value(json_object_get(root, "verb"));
    if (name == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "verb is missing, or not a string");
    for (*verb = 0; *verb < CONTROL_VERBS; ++*verb)
        if (strcmp(control_verb_name(*verb), name) == 0)
            return STATUS_OK;
    return error_set(error, STATUS_UNIMPLEMENTED, "unknown verb \"%.64s\"", name);
}

static enum status
read_version(json_t *root, struct error *error)
{
    json_t *version = json_object_get(root, "version");
    if (!json_is_object(root) || !json_is_integer(version))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "an object with an integer `version` is expected; " ANOTHER_VERSION);
    if (json_integer_value(version) != CONTROL_VERSION)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "its version is %" JSON_INTEGER_FORMAT ", not %d: " ANOTHER_VERSION,
                         json_integer_value(version), CONTROL_VERSION);
    return STATUS_OK;
}

static enum status
read_members(json_t *root, struct text_room room, struct control_request *request,
             struct error *error)
{
    if (read_version(root, error) != STATUS_OK ||
        read_verb(root, &request->verb, error) != STATUS_OK ||
        read_number(root, "from", &request->from, error) != STATUS_OK ||
        read_number(root, "limit", &request->limit, error) != STATUS_OK)
        return error->status;
    const struct {
        const char *name;
        const char **text;
        size_t room_max;
    } texts[] = {
        {"pipeline", &request->pipeline, CONTROL_NAME_BYTES},
        {"id", &request->id,
         request->verb == CONTROL_MESH_COPIES ? CONTROL_KEY_BYTES : SHOAL_NAME_BYTES_MAX + 1},
        {"path", &request->path, CONTROL_PATH_BYTES},
        {"key", &request->key, CONTROL_KEY_BYTES},
        {"prefix", &request->prefix, CONTROL_KEY_BYTES},
        {"node", &request->node, CONTROL_PATH_BYTES},
        {"config", &request->config, CONTROL_PATH_BYTES},
    };
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++)
        if (read_text(root, texts[i].name, texts[i].room_max, &room, texts[i].text, error) !=
            STATUS_OK)
            return error->status;
    json_t *no_wait = json_object_get(root, "no_wait");
    if (no_wait != NULL && !json_is_boolean(no_wait))
        return error_set(error, STATUS_INVALID_ARGUMENT, "no_wait is not true or false");
    request->no_wait = json_is_true(no_wait);
    return STATUS_OK;
}

enum status
control_request_read(char packet[CONTROL_REQUEST_BYTES], size_t bytes,
                     struct control_request *request, struct error *error)
{
    json_error_t wrong;
    *request = (struct control_request){0};
    if (bytes > CONTROL_REQUEST_BYTES)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "not a request: it has %zu bytes, at most %d are read", bytes,
                         CONTROL_REQUEST_BYTES);
    json_t *root = json_loadb(packet, bytes, JSON_REJECT_DUPLICATES, &wrong);
    if (root == NULL)
        error_set(error, STATUS_INVALID_ARGUMENT, "%s at byte %d; " ANOTHER_VERSION, wrong.text,
                  wrong.position);
    else
        (void)read_members(root, (struct text_room){packet, bytes}, request, error);
    json_decref(root);
    return error->status == STATUS_OK ? STATUS_OK : error_prefix(error, "not a request");
}
