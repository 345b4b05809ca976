/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public functions (shoal/client.h), which check arguments; links do the work. A client has one
 * link in use, and keeps lost links until their requests are released.
 */
#include <shoal/client.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "client/link.h"
#include "ipc/counters.h"

#define CONNECT_TIMEOUT_NS (5 * NS_PER_S)
#define SPIN_NS (100 * (int64_t)NS_PER_US)

enum { LINKS_MAX = 8, PATH_BYTES = 256 };

struct shoal_client {
    char path[PATH_BYTES];
    struct local_hello hello;
    int64_t connect_timeout_ns;
    int64_t spin_ns;
    struct request_pool pool;
    struct client_link *links[LINKS_MAX]; /* the first is in use, or NULL; the others are lost */
};

static int32_t
give_error(struct shoal_error *theirs, const struct error *error)
{
    if (theirs != NULL)
        snprintf(theirs->text, sizeof(theirs->text), "%.255s", error->text);
    return (int32_t)error->status;
}

/* ---- the client ---- */

static enum status
find_socket(const char *given, char path[PATH_BYTES], struct error *error)
{
    const char *named = given != NULL ? given : getenv("SHOAL_LOCAL");
    if (named == NULL || named[0] == '\0') {
        char counters[PATH_BYTES];
        counters_default_path(counters, sizeof(counters));
        return local_path(counters, path, PATH_BYTES, error);
    }
    if (strlen(named) >= PATH_BYTES)
        return error_set(error, STATUS_INVALID_ARGUMENT, "the socket's name is too long");
    memcpy(path, named, strlen(named) + 1);
    return STATUS_OK;
}

static enum status
options_read(const struct shoal_client_options *options, struct shoal_client *client,
             struct error *error)
{
    if (options->struct_size != sizeof(*options))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "shoal_client_options.struct_size is %u, this library knows %zu: set "
                         "SHOAL_CLIENT_OPTIONS",
                         options->struct_size, sizeof(*options));
    const char *pipeline = options->pipeline != NULL ? options->pipeline : "";
    if (pipeline[0] == '\0' || strlen(pipeline) >= LOCAL_NAME_BYTES)
        return error_set(error, STATUS_INVALID_ARGUMENT, "pipeline: a name of 1 to %d bytes",
                         LOCAL_NAME_BYTES - 1);
    client->hello = (struct local_hello){.version = LOCAL_VERSION,
                                         .slots = options->requests_max,
                                         .message_bytes = options->message_bytes_max};
    snprintf(client->hello.pipeline, sizeof(client->hello.pipeline), "%s", pipeline);
    client->connect_timeout_ns =
        options->connect_timeout_ns > 0 ? options->connect_timeout_ns : CONNECT_TIMEOUT_NS;
    client->spin_ns = options->spin_ns == 0 ? SPIN_NS : options->spin_ns;
    if (client->spin_ns < 0)
        client->spin_ns = 0;
    return find_socket(options->socket, client->path, error);
}

/* Closes lost links without unreleased requests. */
static void
sweep(struct shoal_client *client)
{
    for (uint32_t i = 1; i < LINKS_MAX; i++)
        if (client->links[i] != NULL && client->links[i]->owned == 0) {
            link_close(client->links[i]);
            client->links[i] = NULL;
        }
}

/* Moves a lost link aside. */
static enum status
set_aside(struct shoal_client *client, struct error *error)
{
    sweep(client);
    for (uint32_t i = 1; i < LINKS_MAX; i++) {
        if (client->links[i] != NULL)
            continue;
        client->links[i] = client->links[0];
        client->links[0] = NULL;
        return STATUS_OK;
    }
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "requests of %d connections that were lost are not released: release them",
                     LINKS_MAX - 1);
}

static enum status
open_link(struct shoal_client *client, struct client_link **link, struct error *error)
{
    const struct link_options options = {.path = client->path,
                                         .hello = &client->hello,
                                         .timeout_ns = client->connect_timeout_ns,
                                         .spin_ns = client->spin_ns,
                                         .pool = &client->pool};
    return link_open(&options, link, error);
}

/* Finds the successor of a lost link: the region that the node has sent or, since the connection
 * may have closed because the node restarted, one that it gives on a new connection. */
static enum status
find_successor(struct shoal_client *client, struct client_link *lost, struct client_link **next,
               struct error *error)
{
    *next = lost->successor;
    lost->successor = NULL;
    if (*next != NULL)
        return STATUS_OK;
    if (lost->spoiled)
        return error_set(error, STATUS_UNAVAILABLE, "%s", lost->why.text);
    if (open_link(client, next, error) == STATUS_OK)
        return STATUS_OK;
    return error_prefix(error,
                        "the node has ended or no longer serves this client; connecting again");
}

/* Handles the loss of the link in use: requests in flight continue in another link or fail. False:
 * none are in flight. */
static bool
follow(struct shoal_client *client)
{
    struct client_link *lost = client->links[0];
    struct client_link *next = NULL;
    struct error error = ERROR_NONE;
    if (lost->flying == 0 && lost->successor == NULL)
        return false;
    if (find_successor(client, lost, &next, &error) == STATUS_OK &&
        set_aside(client, &error) == STATUS_OK) {
        client->links[0] = next;
        link_carry(lost, next);
        snprintf(error.text, sizeof(error.text), "%s", lost->why.text); /* for a spoiled link */
    } else if (next != NULL) {
        link_close(next);
    }
    link_fail(lost, STATUS_UNAVAILABLE, error.text);
    sweep(client);
    return true;
}

/* Takes answers. True: there was one, or may have been. */
static bool
step(struct shoal_client *client, int64_t now_ns)
{
    struct client_link *link = client->links[0];
    if (link == NULL)
        return false;
    bool any = !link_is_lost(link) && link_step(link, now_ns);
    return link_is_lost(link) ? follow(client) : any;
}

/* Makes sure that a usable link exists, connecting if necessary. */
static enum status
connected(struct shoal_client *client, struct error *error)
{
    if (client->links[0] != NULL && link_is_lost(client->links[0]))
        (void)follow(client);
    const struct client_link *link = client->links[0];
    if (link != NULL && !link_is_lost(link) && link->draining)
        return error_set(error, STATUS_UNAVAILABLE, "the node is stopping: it takes no requests");
    if (link != NULL && !link_is_lost(link))
        return STATUS_OK;
    if (link != NULL && set_aside(client, error) != STATUS_OK)
        return error->status;
    sweep(client);
    return open_link(client, &client->links[0], error);
}

int32_t
shoal_client_open(const struct shoal_client_options *options, struct shoal_client **opened,
                  struct shoal_error *theirs)
{
    struct error error = ERROR_NONE;
    struct shoal_client *client = calloc(1, sizeof(*client));
    CHECK(client != NULL);
    client->pool.client = client;
    if (options_read(options, client, &error) == STATUS_OK &&
        connected(client, &error) == STATUS_OK) {
        *opened = client;
        return SHOAL_OK;
    }
    free(client);
    return give_error(theirs, &error);
}

void
shoal_client_close(struct shoal_client *client)
{
    if (client == NULL)
        return;
    for (uint32_t i = 0; i < LINKS_MAX; i++)
        if (client->links[i] != NULL)
            link_close(client->links[i]);
    pool_free(&client->pool);
    free(client);
}

/* ---- a request, before it is submitted ---- */

static uint32_t
count_owned(const struct shoal_client *client)
{
    uint32_t owned = 0;
    for (uint32_t i = 0; i < LINKS_MAX; i++)
        if (client->links[i] != NULL)
            owned += client->links[i]->owned;
    return owned;
}

/* Limits unreleased requests over all links to the number of slots, so that each finds a slot in
 * another region. */
static enum status
take(struct shoal_client *client, struct shoal_request **request, struct error *error)
{
    uint32_t most = client->links[0]->region.slots.count;
    if (count_owned(client) >= most)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "all %u requests of this client are in use: release some", most);
    return link_take(client->links[0], request, error);
}

int32_t
shoal_request_begin(struct shoal_client *client, struct shoal_request **request,
                    struct shoal_error *theirs)
{
    struct error error = ERROR_NONE;
    if (connected(client, &error) != STATUS_OK)
        return give_error(theirs, &error);
    if (take(client, request, &error) == STATUS_OK)
        return SHOAL_OK;
    /* requests released in flight may have come back since */
    (void)step(client, clock_now_ns());
    struct error again = ERROR_NONE;
    if (connected(client, &again) == STATUS_OK && take(client, request, &again) == STATUS_OK)
        return SHOAL_OK;
    return give_error(theirs, &error);
}

/* Notes why the request cannot be submitted; the first reason counts. */
static int32_t
refuse(struct shoal_request *request, const struct error *error)
{
    if (request->status == SHOAL_UNSET) {
        request->status = (int32_t)error->status;
        snprintf(request->text, sizeof(request->text), "%s", error->text);
    }
    return request->status;
}

static void *
add_input(struct shoal_request *request, const struct shoal_tensor *tensor)
{
    struct error error = ERROR_NONE;
    void *data;
    if (request->state != REQUEST_BUILDING)
        return NULL; /* already submitted: its status must not change */
    if (request->link->spoiled)
        error_set(&error, STATUS_UNAVAILABLE, "%s", request->link->why.text);
    else if (builder_add(&request->builder, tensor, &data, &error) == STATUS_OK)
        return data;
    (void)refuse(request, &error);
    return NULL;
}

static bool
tensor_init(struct shoal_request *request, struct shoal_tensor *tensor, const char *name,
            uint32_t datatype, uint32_t rank, const int64_t *shape)
{
    struct error error = ERROR_NONE;
    if (name == NULL)
        error_set(&error, STATUS_INVALID_ARGUMENT, "an input without a name");
    else if (rank > SHOAL_RANK_MAX)
        error_set(&error, STATUS_INVALID_ARGUMENT, "input \"%.32s\": rank %u; at most %d", name,
                  rank, SHOAL_RANK_MAX);
    if (error.status != STATUS_OK) {
        (void)refuse(request, &error);
        return false;
    }
    *tensor = (struct shoal_tensor){.name = name, .datatype = datatype, .rank = rank};
    if (rank > 0)
        memcpy(tensor->shape, shape, rank * sizeof(shape[0]));
    return true;
}

void *
shoal_request_input(struct shoal_request *request, const char *name, uint32_t datatype,
                    uint32_t rank, const int64_t *shape)
{
    struct shoal_tensor tensor;
    if (!tensor_init(request, &tensor, name, datatype, rank, shape))
        return NULL;
    struct error error = ERROR_NONE;
    uint64_t bytes = 0;
    if (datatype == SHOAL_BYTES)
        error_set(&error, STATUS_INVALID_ARGUMENT,
                  "input \"%.32s\": a BYTES tensor is made with shoal_request_input_bytes", name);
    else if (!tensor_bytes_for(datatype, rank, tensor.shape, &bytes))
        error_set(&error, STATUS_INVALID_ARGUMENT,
                  "input \"%.32s\": a negative dimension, or a size that overflows", name);
    if (error.status != STATUS_OK) {
        (void)refuse(request, &error);
        return NULL;
    }
    tensor.bytes = bytes;
    return add_input(request, &tensor);
}

void *
shoal_request_input_bytes(struct shoal_request *request, const char *name, uint32_t datatype,
                          uint32_t rank, const int64_t *shape, size_t bytes)
{
    struct shoal_tensor tensor;
    if (!tensor_init(request, &tensor, name, datatype, rank, shape))
        return NULL;
    tensor.bytes = bytes;
    return add_input(request, &tensor);
}

int32_t
shoal_request_parameter(struct shoal_request *request, const char *name,
                        const struct shoal_parameter *parameter)
{
    struct error error = ERROR_NONE;
    if (request->state != REQUEST_BUILDING)
        return SHOAL_FAILED_PRECONDITION;
    if (builder_parameter(&request->builder, name, parameter, &error) == STATUS_OK)
        return SHOAL_OK;
    return refuse(request, &error);
}

/* Moves the request to the link in use, if it was begun in another. */
static enum status
bring(struct shoal_request *request, struct error *error)
{
    struct shoal_client *client = request->client;
    enum status status = connected(client, error);
    if (status != STATUS_OK || request->link == client->links[0])
        return status;
    if (request->link->spoiled || region_check_header(&request->link->region, error) != STATUS_OK)
        return error_set(error, STATUS_UNAVAILABLE,
                         "the memory in which the request was begun is lost: begin it again");
    status = link_carry_one(request, client->links[0], error);
    if (status == STATUS_OK)
        sweep(client); /* it may have been the last one there */
    return status;
}

int32_t
shoal_request_submit(struct shoal_request *request, int64_t deadline_ns)
{
    if (request->state != REQUEST_BUILDING)
        return SHOAL_FAILED_PRECONDITION;
    struct error error = ERROR_NONE;
    if (request->status != SHOAL_UNSET)
        return request->status;
    if (bring(request, &error) != STATUS_OK)
        return refuse(request, &error);
    struct client_link *link = request->link;
    request->deadline_ns = deadline_ns;
    if (deadline_ns == TIME_NEVER_NS && link->terms.default_timeout_ns > 0)
        request->deadline_ns = clock_now_ns() + link->terms.default_timeout_ns;
    if (link_push(link, request, &error) == STATUS_OK)
        return SHOAL_OK;
    return refuse(request, &error);
}

/* ---- answers ---- */

static bool
is_answered(const struct shoal_request *request)
{
    return request->state != REQUEST_FLYING;
}

/* The node checks the deadline too, but may do so only after a run. */
static void
keep_deadline(struct shoal_request *request, int64_t now_ns)
{
    if (!is_answered(request) && now_ns >= request->deadline_ns)
        link_give_up(request, STATUS_DEADLINE_EXCEEDED, "the deadline has passed");
}

int32_t
shoal_request_wait(struct shoal_request *request, int64_t until_ns)
{
    for (;;) {
        int64_t now_ns = clock_now_ns();
        bool any = step(request->client, now_ns);
        keep_deadline(request, now_ns);
        if (is_answered(request) || now_ns >= until_ns)
            return request->status;
        if (!any)
            link_rest(request->link,
                      until_ns < request->deadline_ns ? until_ns : request->deadline_ns);
    }
}

/* Returns the first answer that was not returned yet. */
static struct shoal_request *
next_answer(struct shoal_client *client)
{
    struct shoal_request *request = NULL;
    for (uint32_t i = 0; i < LINKS_MAX && request == NULL; i++)
        if (client->links[i] != NULL)
            request = link_next_answered(client->links[i]);
    return request;
}

/* Gives up late requests. Returns the next deadline. */
static int64_t
keep_deadlines(struct client_link *link, int64_t now_ns)
{
    int64_t next_ns = TIME_NEVER_NS;
    if (now_ns < link->next_deadline_ns)
        return link->next_deadline_ns;
    for (uint32_t i = 0; i < link->region.slots.count; i++) {
        struct shoal_request *request = link->requests[i];
        if (request == NULL || request->state != REQUEST_FLYING)
            continue;
        keep_deadline(request, now_ns);
        if (request->state == REQUEST_FLYING && request->deadline_ns < next_ns)
            next_ns = request->deadline_ns;
    }
    link->next_deadline_ns = next_ns;
    return next_ns;
}

struct shoal_request *
shoal_client_wait_any(struct shoal_client *client, int64_t until_ns)
{
    for (;;) {
        int64_t now_ns = clock_now_ns();
        bool any = step(client, now_ns);
        struct client_link *link = client->links[0];
        struct shoal_request *request = next_answer(client);
        if (request != NULL || link == NULL || link_is_lost(link) || link->flying == 0)
            return request;
        int64_t next_ns = keep_deadlines(link, now_ns);
        if (link->answered_first == NULL && now_ns >= until_ns)
            return NULL;
        if (!any && link->answered_first == NULL)
            link_rest(link, until_ns < next_ns ? until_ns : next_ns);
    }
}

void
shoal_request_cancel(struct shoal_request *request)
{
    if (request->state == REQUEST_FLYING)
        link_give_up(request, STATUS_CANCELLED, "cancelled by its caller");
}

int32_t
shoal_request_status(const struct shoal_request *request)
{
    return request->status;
}

const char *
shoal_request_text(const struct shoal_request *request)
{
    return request->text;
}

uint32_t
shoal_request_output_count(const struct shoal_request *request)
{
    return request->status == SHOAL_OK ? request->view.tensor_count : 0;
}

const struct shoal_tensor *
shoal_request_output(const struct shoal_request *request, uint32_t index)
{
    return index < shoal_request_output_count(request) ? &request->view.tensors[index] : NULL;
}

const struct shoal_tensor *
shoal_request_output_named(const struct shoal_request *request, const char *name)
{
    for (uint32_t i = 0; i < shoal_request_output_count(request); i++)
        if (strcmp(request->view.tensors[i].name, name) == 0)
            return &request->view.tensors[i];
    return NULL;
}

void
shoal_request_set_tag(struct shoal_request *request, void *tag)
{
    request->tag = tag;
}

void *
shoal_request_tag(const struct shoal_request *request)
{
    return request->tag;
}

void
shoal_request_release(struct shoal_request *request)
{
    if (request == NULL)
        return;
    struct shoal_client *client = request->client;
    bool lost = link_is_lost(request->link);
    link_release(request);
    if (lost)
        sweep(client); /* it may have been the last one there */
}
