/* SPDX-License-Identifier: Apache-2.0 */
#include "client/link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "shm/client_regions.h"
#include "shm/repair.h"
#include "shm/slot.h"

/* Interval of looks at the socket, and the longest sleep: the socket reports a worker's death,
 * another region, and the node's end. Twenty looks a second while a caller waits. */
#define POLL_NS (50 * (int64_t)NS_PER_MS)
/* Like POLL_NS, for when workers have left the region, because another region is about to come. */
#define POLL_SOON_NS ((int64_t)NS_PER_MS)

enum { TAKEN_PER_STEP = 64 };

/* ---- requests ---- */

static struct shoal_request *
pool_take(struct request_pool *pool)
{
    struct shoal_request *request = pool->free;
    if (request != NULL) {
        pool->free = request->next_free;
        return request;
    }
    request = calloc(1, sizeof(*request));
    CHECK(request != NULL);
    request->client = pool->client;
    request->next_all = pool->all;
    pool->all = request;
    return request;
}

void
pool_free(struct request_pool *pool)
{
    while (pool->all != NULL) {
        struct shoal_request *request = pool->all;
        pool->all = request->next_all;
        free(request);
    }
}

void
request_free(struct shoal_request *request)
{
    struct request_pool *pool = request->link->pool;
    request->state = REQUEST_FREE;
    request->next_free = pool->free;
    pool->free = request;
}

static void
set_status(struct shoal_request *request, enum status status, const char *text)
{
    request->status = (int32_t)status;
    request->text[0] = '\0';
    if (status != STATUS_OK)
        snprintf(request->text, sizeof(request->text), "%s", text);
}

static void
note_answered(struct client_link *link, struct shoal_request *request)
{
    request->listed = true;
    request->after = NULL;
    request->before = link->answered_last;
    *(link->answered_last != NULL ? &link->answered_last->after : &link->answered_first) = request;
    link->answered_last = request;
}

static void
forget_answered(struct client_link *link, struct shoal_request *request)
{
    if (!request->listed)
        return;
    request->listed = false;
    *(request->before != NULL ? &request->before->after : &link->answered_first) = request->after;
    *(request->after != NULL ? &request->after->before : &link->answered_last) = request->before;
}

struct shoal_request *
link_next_answered(struct client_link *link)
{
    struct shoal_request *request = link->answered_first;
    if (request != NULL)
        forget_answered(link, request);
    return request;
}

void
request_answer(struct shoal_request *request, enum status status, const char *text)
{
    request->state = REQUEST_ANSWERED;
    set_status(request, status, text);
    note_answered(request->link, request);
}

static void
lose_corrupt(struct client_link *link)
{
    struct error error = ERROR_NONE;
    error_set(&error, STATUS_DATA_LOSS, "the shared memory is corrupt: try again");
    link->spoiled = true;
    link_lose(link, &error);
    link->why = error; /* link_lose does nothing if the link was lost already */
}

/* Releases the request's slot; if that is impossible, the region is corrupt and lost. */
static void
give_slot_back(struct client_link *link, struct shoal_request *request)
{
    link->requests[request->ticket.index] = NULL;
    request_free(request);
    if (!link_is_lost(link) && slot_release(&link->region, request->ticket, request->place,
                                            OWNER_COORDINATOR) != STATUS_OK)
        lose_corrupt(link);
}

void
link_give_up(struct shoal_request *request, enum status status, const char *text)
{
    CHECK(request->state == REQUEST_FLYING);
    request->state = REQUEST_GIVEN_UP;
    set_status(request, status, text);
    slot_cancel(&request->link->region, request->ticket);
    note_answered(request->link, request);
}

/* The caller takes care of the requests in flight. */
void
link_lose(struct client_link *link, const struct error *why)
{
    if (link_is_lost(link))
        return;
    close(link->fd);
    link->fd = -1;
    link->why = *why;
}

void
link_release(struct shoal_request *request)
{
    struct client_link *link = request->link;
    forget_answered(link, request);
    link->owned--;
    switch (request->state) {
    case REQUEST_BUILDING:
        if (!link_is_lost(link)) {
            struct shm_payload unused = {0};
            builder_abandon(&request->builder, &unused);
        }
        give_slot_back(link, request);
        break;
    case REQUEST_ANSWERED: give_slot_back(link, request); break;
    case REQUEST_FLYING:
        slot_cancel(&link->region, request->ticket);
        request->state = REQUEST_LOOSE;
        break;
    case REQUEST_GIVEN_UP:
        if (link_is_lost(link))
            give_slot_back(link, request);
        else
            request->state = REQUEST_LOOSE;
        break;
    case REQUEST_FREE:
    case REQUEST_LOOSE: UNREACHABLE(); /* released twice */
    }
}

enum status
request_place(struct shoal_request *request, struct client_link *link, struct error *error)
{
    struct shm_ticket ticket;
    switch (slot_acquire(&link->region, OWNER_COORDINATOR, &ticket)) {
    case RING_OK: break;
    case RING_EMPTY:
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "all %u requests of this client are in use: release some",
                         link->region.slots.count);
    case RING_LOST:
    case RING_CORRUPT:
        lose_corrupt(link);
        return error_set(error, STATUS_UNAVAILABLE, "the shared memory is corrupt: try again");
    }
    if (link->requests[ticket.index] != NULL) {
        lose_corrupt(link);
        return error_set(error, STATUS_UNAVAILABLE, "the shared memory is corrupt: try again");
    }
    link->requests[ticket.index] = request;
    request->link = link;
    request->ticket = ticket;
    request->place = PLACE_FREE;
    builder_init(&request->builder, &link->region, ticket.index, OWNER_COORDINATOR, NULL, NULL);
    return STATUS_OK;
}

enum status
link_take(struct client_link *link, struct shoal_request **taken, struct error *error)
{
    struct shoal_request *request = pool_take(link->pool);
    request->link = link;
    enum status status = request_place(request, link, error);
    if (status != STATUS_OK) {
        request_free(request);
        return status;
    }
    request->state = REQUEST_BUILDING;
    request->deaths = 0;
    request->tag = NULL;
    request->status = SHOAL_UNSET;
    request->text[0] = '\0';
    request->view.tensor_count = 0;
    link->owned++;
    *taken = request;
    return STATUS_OK;
}

enum status
link_push(struct client_link *link, struct shoal_request *request, struct error *error)
{
    struct shm_slot *slot = region_slot(&link->region, request->ticket.index);
    enum status status = builder_seal(&request->builder, &slot->payload[0], error);
    if (status != STATUS_OK)
        return status;
    slot_set_deadline(slot, request->deadline_ns);
    if (slot_push(&link->region, request->ticket, PLACE_FREE, 0, OWNER_COORDINATOR,
                  clock_now_ns()) != RING_OK) {
        lose_corrupt(link);
        return error_set(error, STATUS_UNAVAILABLE, "the shared memory is corrupt: try again");
    }
    request->state = REQUEST_FLYING;
    link->flying++;
    if (request->deadline_ns < link->next_deadline_ns)
        link->next_deadline_ns = request->deadline_ns;
    doorbell_ring(client_region_bell(&link->region, 0));
    return STATUS_OK;
}

/* ---- what comes back ---- */

/* Foreign code writes the answer: validated as by a coordinator. */
static void
read_answer(struct client_link *link, struct shoal_request *request)
{
    struct shm_slot *slot = region_slot(&link->region, request->ticket.index);
    if (request->place == PLACE_ERROR) {
        struct error failure = ERROR_NONE;
        slot_failure(slot, &failure);
        request_answer(request, failure.status, failure.text);
        return;
    }
    struct error error;
    error_clear(&error);
    enum status status = payload_read_copied(&link->region, &slot->payload[request->place & 1],
                                             &request->table, &request->view, &error);
    if (status != STATUS_OK)
        request->view.tensor_count = 0;
    request_answer(request, status == STATUS_OK ? STATUS_OK : STATUS_INTERNAL, error.text);
}

static bool
take_back(struct client_link *link, uint8_t place)
{
    struct shm_ticket ticket;
    enum ring_result result = slot_pop(&link->region, place, OWNER_COORDINATOR, &ticket);
    if (result == RING_EMPTY)
        return false;
    struct shoal_request *request = result == RING_OK ? link->requests[ticket.index] : NULL;
    if (request == NULL || request->ticket.generation != ticket.generation ||
        (request->state != REQUEST_FLYING && request->state != REQUEST_GIVEN_UP &&
         request->state != REQUEST_LOOSE)) {
        lose_corrupt(link);
        return false;
    }
    link->flying--;
    request->place = place;
    if (request->state == REQUEST_LOOSE)
        give_slot_back(link, request);
    else if (request->state == REQUEST_GIVEN_UP)
        request->state = REQUEST_ANSWERED; /* its status stands */
    else
        read_answer(link, request);
    return true;
}

void
link_empty(struct client_link *link)
{
    while (!link->spoiled && take_back(link, region_result_place(&link->region)))
        continue;
    while (!link->spoiled && take_back(link, PLACE_ERROR))
        continue;
}

/* ---- news ---- */

static enum status link_make(int fd, const struct local_word *terms, int descriptor,
                             const struct link_options *options, struct client_link **made,
                             struct error *error) WARN_UNUSED;

struct judging {
    struct client_link *link;
    const struct local_word *word;
};

static enum repair_verdict
judge_request(void *context, struct shm_ticket ticket, uint8_t stage, struct error *error)
{
    const struct judging *judging = context;
    struct client_link *link = judging->link;
    struct shoal_request *request = link->requests[ticket.index];
    if (request == NULL || stage >= link->region.layout.plan.stage_count)
        return REPAIR_CORRUPT;
    request->deaths++;
    bool once = (link->terms.changes_inputs & UINT32_C(1) << stage) != 0;
    if (once || request->deaths >= link->terms.attempts_max[stage]) {
        error_set(error, STATUS_UNAVAILABLE,
                  "stage %u: %u workers died while they ran this request%s", stage, request->deaths,
                  once ? ": its modelet changes inputs" : "");
        return REPAIR_FAIL;
    }
    slot_run_alone(&link->region, ticket);
    return REPAIR_RUN_AGAIN;
}

static void
on_death(struct client_link *link, const struct local_word *word)
{
    if (word->owner <= OWNER_COORDINATOR || word->owner > OWNER_MAX)
        return;
    struct judging judging = {link, word};
    struct repair_judge judge = {judge_request, &judging};
    struct repair_report report;
    struct error error = ERROR_NONE;
    const struct repair_dead dead = {.owner = (uint16_t)word->owner, .stage = STAGES_MAX};
    if (region_repair(&link->region, &dead, OWNER_COORDINATOR, &judge, &report, &error) !=
        STATUS_OK)
        lose_corrupt(link);
}

static void
say(struct client_link *link, enum local_note_type type)
{
    struct local_note note = {LOCAL_VERSION, type};
    struct error error = ERROR_NONE;
    /* the socket has room for these few messages; a node that does not read has closed */
    (void)!local_send(link->fd, &note, sizeof(note), -1, &error);
}

/* Makes a link for the region that replaces this one; it takes over the connection. */
static void
on_welcome(struct client_link *link, const struct local_word *word, int descriptor)
{
    struct error error = ERROR_NONE;
    enum status status = STATUS_DATA_LOSS;
    const struct link_options same = {.spin_ns = link->spin.limit_ns, .pool = link->pool};
    if (descriptor >= 0)
        status = link_make(link->fd, word, descriptor, &same, &link->successor, &error);
    if (status == STATUS_OK)
        link->fd = -1;
    else
        link_lose(link, &error);
}

static void
on_word(struct client_link *link, struct local_word *word, int descriptor)
{
    struct error error = ERROR_NONE;
    if (word->type == LOCAL_WELCOME) {
        on_welcome(link, word, descriptor);
        return;
    }
    if (descriptor >= 0)
        close(descriptor);
    if (word->type == LOCAL_DEATH) {
        on_death(link, word);
    } else if (word->type == LOCAL_DRAIN) {
        link->draining = true;
        say(link, NOTE_DRAINING);
    } else if (word->type == LOCAL_REFUSED) {
        word->text[sizeof(word->text) - 1] = '\0';
        link->spoiled = true;
        error_set(&error, STATUS_UNAVAILABLE, "%s", word->text);
        link_lose(link, &error);
    }
}

static void
receive(struct client_link *link, int64_t now_ns)
{
    link->received_ns = now_ns;
    while (!link_is_lost(link)) {
        struct local_word word;
        struct error error = ERROR_NONE;
        int descriptor;
        switch (
            local_receive(link->fd, &word, sizeof(word), LOCAL_DONT_WAIT, &descriptor, &error)) {
        case STATUS_OK: on_word(link, &word, descriptor); break;
        case STATUS_DEADLINE_EXCEEDED: return;
        default: link_lose(link, &error); return;
        }
    }
}

/* Returns the interval of looks at the socket. */
static int64_t
poll_every_ns(const struct client_link *link)
{
    return client_region_is_ending(&link->region) ? POLL_SOON_NS : POLL_NS;
}

bool
link_step(struct client_link *link, int64_t now_ns)
{
    bool any = false;
    uint8_t results = region_result_place(&link->region);
    for (int i = 0; i < TAKEN_PER_STEP && !link_is_lost(link) && take_back(link, results); i++)
        any = true;
    for (int i = 0; i < TAKEN_PER_STEP && !link_is_lost(link) && take_back(link, PLACE_ERROR); i++)
        any = true;
    int64_t since_ns = now_ns - link->received_ns;
    if (!link_is_lost(link) && since_ns >= POLL_SOON_NS && since_ns >= poll_every_ns(link))
        receive(link, now_ns);
    if (link->draining && link->flying == 0 && !link_is_lost(link)) {
        struct error error = ERROR_NONE;
        error_set(&error, STATUS_UNAVAILABLE, "the node is stopping: it takes no requests");
        link_lose(link, &error);
    }
    return any;
}

static bool
has_answers(const struct client_link *link)
{
    struct shm_ring results = region_slot_ring(&link->region, region_result_place(&link->region));
    struct shm_ring errors = region_slot_ring(&link->region, PLACE_ERROR);
    return ring_has_cell(&results) || ring_has_cell(&errors);
}

void
link_rest(struct client_link *link, int64_t until_ns)
{
    int64_t now_ns = clock_now_ns();
    int64_t end_ns = now_ns + spin_budget(&link->spin, now_ns);
    for (; now_ns < end_ns && now_ns < until_ns; now_ns = spin_pause(&link->spin, now_ns)) {
        if (has_answers(link)) {
            spin_rewarded(&link->spin);
            return;
        }
    }
    if (now_ns >= until_ns)
        return;
    spin_failed(&link->spin);
    struct shm_doorbell *bell = &link->region.header->coordinator_bell;
    uint32_t prepared = doorbell_prepare(bell);
    if (has_answers(link)) {
        doorbell_cancel(bell);
        return;
    }
    int64_t longest_ns = poll_every_ns(link); /* the last workers to leave ring this bell */
    if (until_ns - now_ns < longest_ns)
        longest_ns = until_ns - now_ns;
    if (doorbell_sleep(bell, prepared, longest_ns))
        spin_after_sleep(&link->spin, clock_now_ns() - now_ns);
}

/* ---- opening ---- */

static enum status
connect_to(const char *path, int64_t timeout_ns, int *connected, struct error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path))
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s: too long for a socket's name", path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set_errno(error, "socket");
    struct timeval patience = {.tv_sec = timeout_ns / NS_PER_S,
                               .tv_usec = timeout_ns % NS_PER_S / NS_PER_US};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        enum status status =
            errno == EACCES || errno == EPERM
                ? error_set(error, STATUS_PERMISSION_DENIED,
                            "%s: permission denied: the node's own user and root may connect", path)
                : error_set(error, STATUS_UNAVAILABLE, "no node at %s that takes local clients: %s",
                            path, strerror(errno));
        close(fd);
        return status;
    }
    *connected = fd;
    return STATUS_OK;
}

static enum status
be_welcomed(int fd, const struct local_hello *hello, struct local_word *terms, int *descriptor,
            struct error *error)
{
    enum status status = local_send(fd, hello, sizeof(*hello), -1, error);
    if (status == STATUS_OK)
        status = local_receive(fd, terms, sizeof(*terms), LOCAL_WAIT, descriptor, error);
    if (status == STATUS_UNAVAILABLE)
        return error_set(error, STATUS_UNAVAILABLE,
                         "the node closed the connection without an answer: it is about to end");
    if (status != STATUS_OK)
        return error_prefix(error, "waiting for the node's welcome");
    terms->text[sizeof(terms->text) - 1] = '\0';
    if (terms->version != LOCAL_VERSION)
        status =
            error_set(error, STATUS_FAILED_PRECONDITION,
                      "the node speaks version %u, this library %u", terms->version, LOCAL_VERSION);
    else if (terms->type == LOCAL_REFUSED)
        status = error_set(error, status_from_number((long)terms->status), "%s", terms->text);
    else if (terms->type != LOCAL_WELCOME || *descriptor < 0)
        status = error_set(error, STATUS_DATA_LOSS, "not a welcome: type %u", terms->type);
    if (status != STATUS_OK && *descriptor >= 0)
        close(*descriptor);
    return status;
}

/* Makes a link for a region that came over `fd`. Always takes over the descriptor, the connection
 * only on success. */
static enum status
link_make(int fd, const struct local_word *terms, int descriptor,
          const struct link_options *options, struct client_link **made, struct error *error)
{
    struct client_link *link = calloc(1, sizeof(*link));
    CHECK(link != NULL);
    enum status status = region_attach(&link->region, descriptor, error);
    if (status != STATUS_OK) {
        close(descriptor);
        free(link);
        return error_prefix(error, "the node's shared memory");
    }
    link->fd = fd;
    link->terms = *terms;
    link->pool = options->pool;
    spin_init(&link->spin, options->spin_ns);
    link->requests = calloc(link->region.slots.count, sizeof(struct shoal_request *));
    CHECK(link->requests != NULL);
    link->received_ns = clock_now_ns();
    link->next_deadline_ns = TIME_NEVER_NS;
    say(link, NOTE_TAKEN);
    *made = link;
    return STATUS_OK;
}

enum status
link_open(const struct link_options *options, struct client_link **opened, struct error *error)
{
    int fd = -1;
    int descriptor = -1;
    struct local_word terms;
    enum status status = connect_to(options->path, options->timeout_ns, &fd, error);
    if (status != STATUS_OK)
        return status;
    status = be_welcomed(fd, options->hello, &terms, &descriptor, error);
    if (status == STATUS_OK)
        status = link_make(fd, &terms, descriptor, options, opened, error);
    if (status != STATUS_OK)
        close(fd);
    return status;
}

void
link_close(struct client_link *link)
{
    if (link->successor != NULL)
        link_close(link->successor);
    if (link->fd >= 0)
        close(link->fd);
    region_detach(&link->region);
    free(link->requests);
    free(link);
}
