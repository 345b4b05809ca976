/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker in the hands of a hostile local client: the input is a small program. Its steps let a
 * client submit and take honestly, write any word anywhere in its region, before a request is read
 * or while the modelet runs, forge tickets, punch holes, come and go; between them the worker does
 * what it does: receives client regions on its control socket, gathers, reads, checks, runs, passes
 * on. client_region_steps.h has the list. Words that change between two loads of the same read are
 * not this target's matter: tests/unit/test_worker_hostile.c.
 *
 * Properties: no sanitizer speaks, no CHECK fails, the lane's requests are all answered
 * rightly, the lane is never called corrupt; what the modelet is shown of a request agrees in
 * itself, lies in the client's arena, and its strings where the client can't write; what it is lent
 * for outputs lies in one block, and over no input and no other output. As long as the program
 * wrote nothing: the client is never called corrupt, and each of its requests comes back once.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "client_region_steps.h"
#include "shm/arena.h"
#include "shm/slot.h"
#include "worker/worker.h"

enum {
    BATCH = 4,
    STEPS_MAX = 300,
    TURNS_AT_END = 64,
    OUTPUTS_MAX = 80,
    PAGE_BYTES = 4096,
    LARGE_BYTES = 9000,
    LATER_BYTES = 32,
    DESCRIPTORS_FROM = 32,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct region lane;
static struct region client; /* the client's own view of its region */
static char *lane_pristine;
static char *client_pristine;
static int control[2]; /* ours, and the worker's end */
static _Atomic uint64_t counters[1 << 14];
static struct handshake_ready ready;
static struct worker worker;
static struct host_item items[BATCH];
static struct shoal_item *shown[BATCH];
static uint32_t positions[BATCH];
static struct payload_builder builder;

static bool written; /* by the program, into the client's region */
static bool arrived; /* the client has */
static bool ceases;  /* and is coming to its end */
static uint64_t serial;
static uint32_t lost_said;
static uint32_t left_said;
static uint32_t pushed; /* by the client, and not taken back */
static uint64_t lane_number;
static uint32_t lane_flying;
static uint8_t later[LATER_BYTES];
static size_t later_bytes;

static void write_somewhere(struct program *program);

/* ---- the modelet ---- */

static bool
lies_within(const char *at, uint64_t bytes, const char *begin, uint64_t room)
{
    return at >= begin && bytes <= room && (uint64_t)(at - begin) <= room - bytes;
}

/* The block in which it lies wholly; BLOCK_NONE: there is none. */
static uint32_t
block_of(const struct region *region, const char *at, uint64_t bytes)
{
    for (uint32_t i = 0; i < region->layout.block_count; i++)
        if (lies_within(at, bytes, arena_block(region, i), arena_block_bytes(&region->layout, i)))
            return i;
    return BLOCK_NONE;
}

static void
check_input(const struct host_item *item, const struct shoal_tensor *tensor)
{
    uint64_t bytes;
    size_t name_bytes = strnlen(tensor->name, SHOAL_NAME_BYTES_MAX + 1);
    CHECK(name_bytes <= SHOAL_NAME_BYTES_MAX);
    CHECK(tensor->rank <= SHOAL_RANK_MAX && tensor->datatype < SHOAL_DATATYPE_END);
    CHECK(tensor_bytes_for(tensor->datatype, tensor->rank, tensor->shape, &bytes));
    CHECK(tensor->datatype == SHOAL_BYTES || bytes == tensor->bytes);
    CHECK((uintptr_t)tensor->data % PAYLOAD_ALIGNMENT == 0);
    CHECK(block_of(item->source->region, tensor->data, tensor->bytes) != BLOCK_NONE);
    if (item->source->is_client_region)
        CHECK(lies_within(tensor->name, name_bytes + 1, item->table.bytes,
                          sizeof(item->table.bytes)));
}

struct lent {
    const char *data;
    uint64_t bytes;
};

/* Adds an output and writes all of it; false: it is refused. `lent`: the bytes before it. */
static bool
add_output(struct host_item *item, const char *name, int64_t bytes, struct lent *lent,
           uint32_t count)
{
    char *data = worker.host->output(&item->shown, name, SHOAL_UINT8, 1, &bytes);
    if (data == NULL)
        return false;
    uint32_t block = block_of(item->source->region, data, (uint64_t)bytes);
    CHECK(block != BLOCK_NONE);
    for (uint32_t i = 0; i < item->view.payload.block_count; i++)
        CHECK(item->view.payload.blocks[i] != block);
    for (uint32_t i = 0; i < count; i++)
        CHECK(data >= lent[i].data + lent[i].bytes || data + bytes <= lent[i].data);
    lent[count] = (struct lent){data, (uint64_t)bytes};
    memset(data, 0x5a, (size_t)bytes);
    return true;
}

static int32_t
answer_many(struct host_item *item)
{
    struct lent lent[OUTPUTS_MAX];
    char name[] = "out-00";
    for (uint32_t i = 0; i < OUTPUTS_MAX; i++) {
        name[4] = (char)('0' + i / 10);
        name[5] = (char)('0' + i % 10);
        if (!add_output(item, name, (int64_t)((i + 1) * (i + 1) * (i + 1) * 16), lent, i))
            break;
    }
    return SHOAL_OK;
}

static int32_t
answer_copy(struct host_item *item, uint64_t number)
{
    int64_t one = 1;
    uint64_t *data = worker.host->output(&item->shown, "number", SHOAL_UINT64, 1, &one);
    if (data == NULL)
        return SHOAL_OK;
    CHECK(block_of(item->source->region, (char *)data, sizeof(*data)) != BLOCK_NONE);
    *data = number + 1;
    return SHOAL_OK;
}

static uint64_t
number_of(const struct shoal_item *item)
{
    uint64_t number = 0;
    if (item->input_count > 0 && item->inputs[0].bytes >= sizeof(number))
        memcpy(&number, item->inputs[0].data, sizeof(number));
    return number;
}

static int32_t
answer(struct host_item *item, uint64_t number)
{
    const struct shoal_host *host = worker.host;
    struct shoal_parameter parameter;
    if (host->parameter(&item->shown, "key", &parameter) &&
        parameter.type == SHOAL_PARAMETER_STRING)
        CHECK(strlen(parameter.string) <= parameter.string_bytes);
    if (!item->source->is_client_region)
        return answer_copy(item, number);
    switch (number % ANSWERS) {
    case ANSWER_FORWARDS: return host->forward(&item->shown, 0, "number");
    case ANSWER_FAILS: return host->fail(&item->shown, SHOAL_ABORTED, "told to");
    case ANSWER_MANY: return answer_many(item);
    default: return answer_copy(item, number);
    }
}

static int
run(void *instance, void *model, struct shoal_batch *batch)
{
    (void)instance;
    (void)model;
    int status = SHOAL_OK;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct host_item *item = item_of(batch->items[i]);
        for (uint32_t k = 0; k < item->shown.input_count; k++)
            check_input(item, &item->shown.inputs[k]);
        uint64_t number = number_of(&item->shown);
        if (item->source->is_client_region && number % ANSWERS == ANSWER_FAILS_BATCH &&
            batch->count > 1)
            status = SHOAL_INTERNAL;
        struct program program = {later, later_bytes};
        later_bytes = 0;
        if (program.left > 0)
            write_somewhere(&program);
        item->shown.status = answer(item, number);
    }
    return status;
}

/* ---- the worker ---- */

static void
region_make(struct region *region, char **pristine, uint64_t arena_bytes)
{
    struct region_plan plan = {.slot_count = SLOTS, .stage_count = STAGES, .worker_counts = {1, 1}};
    struct error error = ERROR_NONE;
    CHECK(plan_arena(&plan, 16 << 10, arena_bytes, &error) == STATUS_OK);
    CHECK(region_create(region, &plan, 1, &error) == STATUS_OK);
    *pristine = malloc(region->layout.region_bytes);
    CHECK(*pristine != NULL);
    memcpy(*pristine, region->base, region->layout.region_bytes);
    region->fd =
        fcntl(region->fd, F_DUPFD_CLOEXEC, DESCRIPTORS_FROM); /* not where the worker's is */
    CHECK(region->fd >= 0);
}

static void
start(void)
{
    log_init("fuzz", LOG_ERROR);
    region_make(&lane, &lane_pristine, 256 << 10);
    region_make(&client, &client_pristine, 256 << 10);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) == 0);
    control[0] = fcntl(control[0], F_DUPFD_CLOEXEC, DESCRIPTORS_FROM);
    CHECK(control[0] >= 0 && dup2(control[1], HANDSHAKE_FD_CONTROL) == HANDSHAKE_FD_CONTROL);
}

static void
begin(uint8_t kind)
{
    memcpy(lane.base, lane_pristine, lane.layout.region_bytes);
    memcpy(client.base, client_pristine, client.layout.region_bytes);
    ready = (struct handshake_ready){.inputs = {{"number", SHOAL_UINT64, 1, {1}}}};
    ready.input_count = (kind & WORKER_DECLARES) != 0;
    groups_fini(&worker.groups);
    worker = (struct worker){
        .ready = &ready,
        .region = lane,
        .host = host_table("fuzz", "/", NULL),
        .owner = OWNER_COORDINATOR + 1,
        .place = (kind & WORKER_LATER_STAGE) != 0,
        .items = items,
        .positions = positions,
        .shown = shown,
        .start = {.worker_count = 1, .halvings_max = 8, .pipeline = "fuzz", .stage = "stage"},
        .modelet.table = {.name = "fuzz", .run = run},
    };
    worker.entry.worker = region_worker(&worker.region, worker.place, 0);
    worker.entry.stage = region_stage(&worker.region, worker.place);
    worker.entry.values = counters;
    CHECK(groups_init(&worker.groups, BATCH, (kind & WORKER_WAITS) != 0 ? 3600 * NS_PER_S : 0,
                      GROUPS_ONE));
    sources_init(&worker);
    atomic_store(&worker.entry.worker->owner, worker.owner);
    written = arrived = false;
    pushed = lost_said = left_said = lane_flying = 0;
    later_bytes = 0;
}

static void
turn(void)
{
    (void)worker_turn(&worker, clock_now_ns());
    CHECK(!worker.corrupt);
    struct handshake_client_region said;
    struct error error = ERROR_NONE;
    int fd;
    while (handshake_receive_client_region(control[0], &said, &fd, &error) == STATUS_OK) {
        CHECK(said.serial == serial && fd < 0);
        lost_said += said.event == CLIENT_REGION_LOST;
        left_said += said.event == CLIENT_REGION_CLOSED;
    }
    CHECK(lost_said <= 1 && left_said <= 1);
}

static void
notify_worker(enum handshake_client_region_event event)
{
    struct handshake_client_region word = {
        .header = {HANDSHAKE_VERSION, HANDSHAKE_CLIENT_REGION, sizeof(word), 0},
        .event = event,
        .serial = serial,
    };
    struct error error = ERROR_NONE;
    CHECK(handshake_send_client_region(control[0], &word,
                                       event == CLIENT_REGION_OPEN ? client.fd : -1,
                                       &error) == STATUS_OK);
    CHECK(!sources_receive(&worker));
}

static void
arrive(void)
{
    if (arrived)
        return;
    arrived = true;
    ceases = false;
    lost_said = left_said = 0;
    serial++;
    notify_worker(CLIENT_REGION_OPEN);
    turn();
    CHECK(written || lost_said == 0);
}

static void
leave(void)
{
    if (!arrived)
        return;
    CHECK(written || lost_said == 0);
    if (left_said == 0)
        notify_worker(CLIENT_REGION_DISCARD);
    atomic_store(&worker.entry.stage->draining, 1);
    for (uint32_t i = 0; i < TURNS_AT_END && left_said == 0; i++)
        turn();
    atomic_store(&worker.entry.stage->draining, 0);
    CHECK(left_said == 1 && worker.sources[1].region == NULL && worker.client_regions.limit == 0);
    arrived = false;
    memcpy(client.base, client_pristine, client.layout.region_bytes);
    written = false;
    pushed = 0;
}

static void
cease(void)
{
    if (!arrived || ceases)
        return;
    ceases = true;
    notify_worker(CLIENT_REGION_FINISH);
    turn();
}

/* ---- callers ---- */

/* A tensor with a number at its start; 0: it can't be had. */
static bool
add_tensor(const char *name, uint32_t datatype, const void *bytes, size_t count, size_t room)
{
    bool plain = datatype == SHOAL_UINT64;
    struct shoal_tensor tensor = {.name = name,
                                  .datatype = datatype,
                                  .rank = 1,
                                  .shape = {plain ? (int64_t)(room / sizeof(uint64_t)) : 2},
                                  .bytes = room};
    struct error error = ERROR_NONE;
    void *data;
    if (builder_add(&builder, &tensor, &data, &error) != STATUS_OK)
        return false;
    memset(data, 0, room);
    memcpy(data, bytes, count);
    return true;
}

static bool
add_parts(uint8_t kind, uint64_t number)
{
    static const char strings[] = "\2\0\0\0hi\1\0\0\0x"; /* "hi" and "x" */
    struct shoal_parameter parameter = {
        .type = SHOAL_PARAMETER_STRING, .string = "value", .string_bytes = 5};
    struct error error = ERROR_NONE;
    size_t room = kind == KIND_LARGE ? LARGE_BYTES / 8 * 8 : sizeof(number);
    if (kind != KIND_EMPTY && !add_tensor("number", SHOAL_UINT64, &number, sizeof(number), room))
        return false;
    switch (kind) {
    case KIND_TWO: return add_tensor("more", SHOAL_UINT64, &number, sizeof(number), 64);
    case KIND_STRINGS: return add_tensor("more", SHOAL_BYTES, strings, 11, 11);
    case KIND_STRINGS_CUT: return add_tensor("more", SHOAL_BYTES, strings, 10, 10);
    case KIND_PARAMETERS:
        return builder_parameter(&builder, "key", &parameter, &error) == STATUS_OK;
    default: return true;
    }
}

/* The coordinator's part in a region, or the client's; nothing that it finds there is believed. */
static bool
submit(const struct region *region, uint8_t kind, uint64_t number)
{
    struct shm_ticket ticket;
    struct error error = ERROR_NONE;
    if (slot_acquire(region, OWNER_COORDINATOR, &ticket) != RING_OK)
        return false;
    uint8_t place = worker.place ^ (kind == KIND_OTHER_PLACE);
    struct shm_slot *slot = region_slot(region, ticket.index);
    builder_init(&builder, region, ticket.index, OWNER_COORDINATOR, NULL, NULL);
    if (!add_parts(kind, number) ||
        builder_seal(&builder, &slot->payload[place & 1], &error) != STATUS_OK) {
        struct shm_payload unused;
        builder_abandon(&builder, &unused);
        (void)!slot_release(region, ticket, PLACE_FREE, OWNER_COORDINATOR);
        return false;
    }
    slot_set_deadline(slot, kind == KIND_LATE ? 1 : TIME_NEVER_NS);
    if (kind == KIND_CANCELLED)
        slot_cancel(region, ticket);
    return slot_push(region, ticket, PLACE_FREE, place, OWNER_COORDINATOR, clock_now_ns()) ==
               RING_OK &&
           place == worker.place;
}

/* Where a slot's result is found. */
static const uint8_t done_places[] = {PLACE_ERROR, 0, 1, STAGES};

static void
take(void)
{
    struct shm_ticket ticket;
    for (size_t i = 0; i < sizeof(done_places); i++) {
        if (done_places[i] == worker.place)
            continue;
        while (slot_pop(&client, done_places[i], OWNER_COORDINATOR, &ticket) == RING_OK) {
            if (slot_release(&client, ticket, done_places[i], OWNER_COORDINATOR) != STATUS_OK) {
                CHECK(written);
                return;
            }
            pushed -= pushed > 0 && (i == 0 || done_places[i] == worker.place + 1);
        }
    }
}

static void
take_lane(void)
{
    static struct payload_view view;
    uint8_t place = worker.place + 1;
    struct shm_ticket ticket;
    struct error error = ERROR_NONE;
    CHECK(slot_pop(&lane, PLACE_ERROR, OWNER_COORDINATOR, &ticket) == RING_EMPTY);
    while (slot_pop(&lane, place, OWNER_COORDINATOR, &ticket) == RING_OK) {
        CHECK(payload_read(&lane, &region_slot(&lane, ticket.index)->payload[place & 1], &view,
                           &error) == STATUS_OK);
        uint64_t number;
        CHECK(view.tensor_count == 1 && view.tensors[0].bytes == sizeof(number));
        memcpy(&number, view.tensors[0].data, sizeof(number));
        CHECK(number > lane_number - lane_flying && number <= lane_number + 1);
        lane_flying--;
        CHECK(slot_release(&lane, ticket, place, OWNER_COORDINATOR) == STATUS_OK);
    }
}

/* ---- what a hostile client does ---- */

static char *
target_of(struct program *program)
{
    uint8_t what = take8(program) % TARGETS;
    uint8_t which = take8(program);
    switch (what) {
    case TARGET_STAGE:
    case TARGET_SEAT: return BYTES(client_region_bell(&client, which % STAGES));
    case TARGET_HEADER: return client.base + take16(program) % (sizeof(struct region_header) - 7);
    default: return target_in(&client, program, what, which);
    }
}

/* A header that was written into is signed again, or it would never get any further. */
static void
write_somewhere(struct program *program)
{
    char *target = target_of(program);
    write_value(&client, program, target);
    written = true;
    if (target < client.base + offsetof(struct region_header, checksum))
        client.header->checksum = region_checksum(client.header);
}

static void
write_later(struct program *program)
{
    later_bytes = take8(program) % (LATER_BYTES + 1);
    for (size_t i = 0; i < later_bytes; i++)
        later[i] = take8(program);
}

static void
forge(struct program *program)
{
    written = true;
    (void)!forge_ticket(&client, program);
}

static void
punch(struct program *program)
{
    uint64_t page = take16(program) % (client.layout.region_bytes / PAGE_BYTES);
    written = true;
    CHECK(fallocate(client.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    (off_t)(page * PAGE_BYTES), PAGE_BYTES) == 0);
}

/* ---- a program ---- */

static void
step(struct program *program)
{
    switch (take8(program) % CLIENT_REGION_STEPS) {
    case CLIENT_REGION_SUBMIT: {
        uint8_t kind = take8(program) % KINDS;
        pushed += submit(&client, kind, take8(program));
        break;
    }
    case CLIENT_REGION_TURN: turn(); break;
    case CLIENT_REGION_TAKE: take(); break;
    case CLIENT_REGION_LANE:
        if (submit(&lane, KIND_PLAIN, lane_number)) {
            lane_number++;
            lane_flying++;
        }
        break;
    case CLIENT_REGION_LEAVES: leave(); break;
    case CLIENT_REGION_ARRIVES: arrive(); break;
    case CLIENT_REGION_WRITES: write_somewhere(program); break;
    case CLIENT_REGION_LATER: write_later(program); break;
    case CLIENT_REGION_FORGES: forge(program); break;
    case CLIENT_REGION_PUNCHES: punch(program); break;
    case CLIENT_REGION_CEASES: cease(); break;
    default: break;
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (lane.base == NULL)
        start();
    struct program program = {data, size};
    begin(take8(&program));
    arrive();
    for (uint32_t i = 0; i < STEPS_MAX && program.left > 0; i++) {
        step(&program);
        take_lane();
    }
    atomic_store(&worker.entry.stage->draining, 1);
    for (uint32_t i = 0; i < TURNS_AT_END; i++) {
        turn();
        take();
        take_lane();
    }
    CHECK(lane_flying == 0 && slots_used(&lane) == 0 && arena_used(&lane, -1) == 0);
    CHECK(written || !arrived || ceases || pushed == 0);
    leave();
    return 0;
}
