/* SPDX-License-Identifier: Apache-2.0 */
/* A request of either protocol on its way to its handler. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/percent.h"
#include "http/internal.h"

enum { BODY_ROOM_FIRST = 4096, BODY_ROOM_KEPT = 16 << 10 };

static const struct http_service *
service_of(const struct http_request *request)
{
    return &request->connection->listener->service;
}

void
http_request_clear(struct http_request *request, enum http_room keep)
{
    if (request->path != request->path_encoded)
        free(request->path);
    char *body = request->body;
    size_t room = request->body_room;
    if (room > BODY_ROOM_KEPT || keep == HTTP_FREE_ROOM) {
        free(body);
        body = NULL;
        room = 0;
    }
    *request = (struct http_request){.wire = request->wire,
                                     .connection = request->connection,
                                     .head = request->head,
                                     .body = body,
                                     .body_room = room};
}

bool
http_request_has_body(const struct http_request *request)
{
    return request->head->is_chunked || request->head->length > 0;
}

/* Terminates the path in the head's text. */
bool
http_request_find_path(struct http_request *request)
{
    char *target = request->head->text + request->head->target;
    const char *found;
    size_t bytes;
    if (!http_target_path(target, &found, &bytes))
        return false;
    char *path = target + (found - target);
    char *end = path + bytes;
    request->query = *end == '?' ? end + 1 : "";
    path[bytes + strcspn(end, "#?")] = '\0';
    if (*request->query != '\0')
        end[1 + strcspn(request->query, "#")] = '\0';
    static char root[] = "/";
    request->path_encoded = bytes > 0 ? path : root;
    request->path = request->path_encoded;
    if (memchr(request->path_encoded, '%', bytes) == NULL)
        return true;
    if (strstr(request->path_encoded, "%00") != NULL)
        return false;
    request->path = strdup(request->path_encoded);
    CHECK(request->path != NULL);
    percent_decode(request->path);
    return true;
}

void
http_request_on_head(struct http_request *request)
{
    const struct http_service *service = service_of(request);
    if (service->on_head == NULL)
        return;
    http_count(request->connection->listener->pool, HTTP_REQUESTS, 1);
    request->is_open = true;
    service->on_head(service->context, request);
}

static void
body_append(struct http_request *request, const char *data, size_t bytes)
{
    size_t needed = request->body_bytes + bytes;
    if (needed > request->body_room) {
        size_t room = request->body_room * 2 > needed ? request->body_room * 2 : needed;
        if (!request->head->is_chunked && room > request->head->length)
            room = (size_t)request->head->length;
        room = room < BODY_ROOM_FIRST ? BODY_ROOM_FIRST : room;
        request->body = realloc(request->body, room);
        CHECK(request->body != NULL);
        request->body_room = room;
    }
    CHECK(needed <= request->body_room);
    memcpy(request->body + request->body_bytes, data, bytes);
    request->body_bytes = needed;
}

void
http_request_on_body(struct http_request *request, const char *data, size_t bytes)
{
    if (bytes > 0 && request->sink != NULL)
        request->sink->on_piece(request, data, bytes);
    else if (bytes > 0)
        body_append(request, data, bytes);
}

void
http_request_on_end(struct http_request *request)
{
    const struct http_service *service = service_of(request);
    request->body_ended = true;
    if (!request->is_open)
        http_count(request->connection->listener->pool, HTTP_REQUESTS, 1);
    request->is_open = true;
    if (request->sink != NULL)
        request->sink->on_end(request);
    else
        service->on_request(service->context, request);
}

void
http_request_lose(struct http_request *request)
{
    const struct http_service *service = service_of(request);
    if (!request->is_open || request->is_gone)
        return;
    request->is_gone = true;
    if (!request->connection->listener->pool->server->is_ending && service->on_gone != NULL)
        service->on_gone(service->context, request);
}

const char *
http_own_body(const struct http_service *service, const char *text, char body[HTTP_OWN_BODY_BYTES])
{
    if (service->error_body != NULL)
        service->error_body(text, body, HTTP_OWN_BODY_BYTES);
    else
        snprintf(body, HTTP_OWN_BODY_BYTES, "%s\n", text);
    return service->error_type != NULL ? service->error_type : "text/plain; charset=utf-8";
}
