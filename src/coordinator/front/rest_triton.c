/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Triton's extensions over REST, and the list of models: a path and a small body become the request
 * that the gRPC method of the same meaning has.
 */
#include <stdlib.h>
#include <string.h>

#include "base/percent.h"
#include "coordinator/front/regions.h"
#include "coordinator/front/repository.h"
#include "coordinator/front/rest_inquiry.h"
#include "coordinator/front/rest_openapi.h"

enum { PAGE_ROWS_MAX = 1000 };

static enum status
keep(char *to, size_t room, const char *text, struct error *error)
{
    size_t bytes = strlen(text);
    if (bytes >= room)
        return error_set(error, STATUS_INVALID_ARGUMENT, "a name has at most %zu bytes, not %zu",
                         room - 1, bytes);
    memcpy(to, text, bytes + 1);
    return STATUS_OK;
}

/* The value of a parameter of the query, decoded; NULL: there is none. To be freed. */
static char *
query_value(const struct http_request *request, const char *name)
{
    size_t name_bytes = strlen(name);
    const char *at = http_request_query(request);
    while (*at != '\0') {
        size_t bytes = strcspn(at, "&");
        if (bytes > name_bytes && at[name_bytes] == '=' && memcmp(at, name, name_bytes) == 0) {
            char *value = strndup(at + name_bytes + 1, bytes - name_bytes - 1);
            if (value != NULL)
                percent_decode(value);
            return value;
        }
        at += bytes + (at[bytes] == '&');
    }
    return NULL;
}

static uint32_t
rows_max(enum rest_what what)
{
    return what == REST_OPENAPI ? OPENAPI_MODELS_MAX : PAGE_ROWS_MAX;
}

/* NULL: as many as a page may have; 0: it is no number. */
static uint32_t
page_rows(const char *limit, enum rest_what what)
{
    char *end;
    if (limit == NULL)
        return rows_max(what);
    unsigned long rows = strtoul(limit, &end, 10);
    bool is_number = limit[0] >= '0' && limit[0] <= '9' && *end == '\0';
    return is_number && rows <= UINT32_MAX ? (uint32_t)rows : 0;
}

/* A page of the list: `limit` names after `after`, and one more to see if there are more. */
static enum status
read_page(struct inquiry *inquiry, struct triton_request *request)
{
    char *limit = query_value(inquiry->request, "limit");
    char *after = query_value(inquiry->request, "after");
    enum status status = STATUS_OK;
    uint32_t rows_most = rows_max(inquiry->route.what);
    uint32_t rows = page_rows(limit, inquiry->route.what);
    if (rows == 0 || rows > rows_most)
        status = error_set(&inquiry->error, STATUS_INVALID_ARGUMENT,
                           "limit \"%.40s\": must be 1 to %u", limit, rows_most);
    if (status == STATUS_OK && after != NULL)
        status = keep(request->after, sizeof(request->after), after, &inquiry->error);
    request->limit = rows + 1;
    free(limit);
    free(after);
    return status;
}

static enum status
read_request(struct inquiry *inquiry, struct triton_request *request)
{
    const struct rest_route *route = &inquiry->route;
    size_t bytes;
    const void *body = http_request_body(inquiry->request, &bytes);
    request->method = route->row->method;
    request->ready = route->what == REST_OPENAPI; /* others do not report their tensors */
    if (route->what == REST_MODELS || route->what == REST_OPENAPI)
        return read_page(inquiry, request);
    const char *name = route->region[0] != '\0' ? route->region : route->model;
    enum status status = keep(request->name, sizeof(request->name), name, &inquiry->error);
    if (status == STATUS_OK)
        status = keep(request->version, sizeof(request->version), route->version, &inquiry->error);
    return status == STATUS_OK ? triton_read_json(request, body, bytes, &inquiry->error) : status;
}

enum status
rest_triton(struct inquiry *inquiry)
{
    struct rest *rest = inquiry->rest;
    struct triton_request request = {0};
    const struct wire_message none = {.bytes = 0};
    int64_t deadline_ns;
    enum status status = rest_deadline(inquiry, &deadline_ns);
    if (status == STATUS_OK)
        status = read_request(inquiry, &request);
    if (status != STATUS_OK)
        return status;
    struct rest_call *call = rest_call_create(rest, inquiry->request, inquiry->route.what, NULL);
    if (call == NULL)
        return rest_stopping(inquiry);
    if (inquiry->route.what != REST_TRITON)
        call->page_rows = request.limit - 1; /* one more was asked for */
    struct inbound inbound = rest_call_inbound(call, &none, deadline_ns);
    if (request.method >= TRITON_SHARED_STATUS)
        regions_take(rest->node.shared_memory, &inbound, &request);
    else
        repository_take(rest->node.repository, &inbound, &request);
    rest_call_taken(call, deadline_ns); /* its answer has to come by this thread */
    return STATUS_OK;
}
