/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends the requests in a region that is no longer served. Only this client uses it then: workers
 * that held items have finished them, or are dead and were repaired. Requests that had come back
 * are answered. Requests that wait at the first stage have not begun and have their inputs as
 * submitted: they are submitted again in another region. Requests beyond the first stage cannot
 * begin anew, because their inputs' blocks may have been reused.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "client/link.h"
#include "shm/slot.h"

/* Moves a request into a slot and blocks of another link. On failure everything is unchanged. */
static enum status
carry(struct shoal_request *request, struct client_link *to, struct error *error)
{
    struct client_link *from = request->link;
    struct shm_ticket ticket = request->ticket;
    uint8_t place = request->place;
    struct payload_builder *held = malloc(sizeof(*held)); /* only during a reload */
    CHECK(held != NULL);
    memcpy(held, &request->builder, sizeof(*held));
    enum status status = request_place(request, to, error);
    if (status == STATUS_OK) {
        status = builder_copy(&request->builder, held, error);
        if (status == STATUS_OK) {
            from->requests[ticket.index] = NULL;
            from->owned--;
            to->owned++;
        } else {
            struct shm_payload unused = {0};
            builder_abandon(&request->builder, &unused);
            to->requests[request->ticket.index] = NULL;
            (void)!slot_release(&to->region, request->ticket, PLACE_FREE, OWNER_COORDINATOR);
            request->link = from;
            request->ticket = ticket;
            request->place = place;
            memcpy(&request->builder, held, sizeof(*held));
        }
    }
    free(held);
    return status;
}

enum status
link_carry_one(struct shoal_request *request, struct client_link *to, struct error *error)
{
    if (carry(request, to, error) == STATUS_OK)
        return STATUS_OK;
    return error_prefix(error, "after a reload of the pipeline");
}

/* Checks that the request can begin anew. */
static enum status
judge(const struct shoal_request *request, struct error *error)
{
    const struct client_link *link = request->link;
    struct shm_word word = slot_where(&link->region, request->ticket.index);
    bool waits = word.generation == request->ticket.generation && word.place == 0;
    if (waits && !(word.held && (link->terms.changes_inputs & 1)))
        return STATUS_OK;
    return error_set(error, STATUS_UNAVAILABLE,
                     "the request's generation of the pipeline did not finish it: try again");
}

static void
push_again(struct shoal_request *request, struct client_link *to)
{
    struct error error = ERROR_NONE;
    enum status status = judge(request, &error);
    if (status == STATUS_OK)
        status = link_carry_one(request, to, &error);
    if (status == STATUS_OK && link_push(to, request, &error) != STATUS_OK) {
        struct shm_payload unused = {0};
        builder_abandon(&request->builder, &unused);
        status = error.status;
    }
    if (status != STATUS_OK)
        request_answer(request, status, error.text);
}

/* False if the node has dropped this client: it takes the region's pages out before it closes, so
 * the header reads as zeros, and so would inputs. */
static bool
is_intact(struct client_link *from)
{
    struct error error = ERROR_NONE;
    if (!from->spoiled && region_check_header(&from->region, &error) != STATUS_OK) {
        from->spoiled = true;
        error_set(&from->why, STATUS_UNAVAILABLE,
                  "the node has disconnected this client: its log says why");
    }
    return !from->spoiled;
}

void
link_carry(struct client_link *from, struct client_link *to)
{
    CHECK(link_is_lost(from));
    if (!is_intact(from))
        return;
    link_empty(from);
    for (uint32_t i = 0; i < from->region.slots.count && !from->spoiled; i++) {
        struct shoal_request *request = from->requests[i];
        if (request == NULL || request->state != REQUEST_FLYING)
            continue;
        from->flying--;
        push_again(request, to);
    }
}

void
link_fail(struct client_link *link, enum status status, const char *text)
{
    CHECK(link_is_lost(link));
    if (is_intact(link))
        link_empty(link);
    for (uint32_t i = 0; i < link->region.slots.count; i++) {
        struct shoal_request *request = link->requests[i];
        if (request != NULL && request->state == REQUEST_FLYING) {
            request_answer(request, status, text);
        } else if (request != NULL && request->state == REQUEST_LOOSE) {
            link->requests[i] = NULL;
            request_free(request);
        }
    }
    link->flying = 0;
}
