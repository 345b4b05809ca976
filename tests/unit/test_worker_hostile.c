/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that a local client which writes anything anywhere in its region, as fast as it can and
 * while workers read there, harms nobody: the requests of the lane and of an honest client at the
 * same stages are all answered, rightly, and no worker dies. The hostile client is a process of its
 * own, and ends by SIGKILL wherever it is. Proves too that a worker judges the BYTES of a client's
 * request as admission judges others', and takes no plan of blocks in which it would lend less than
 * it says. Played by hand: test_worker_client_region_rig.h.
 *
 * ctest: timeout=300
 */
#include "hostile_client.h"
#include "test_worker_client_region_rig.h"

#include <sys/prctl.h>

/* ---- checks ---- */

/* A request with the probe's tensor and another one; its outcome. */
static struct rig_outcome
call_with(struct client_region *client_region, const struct shoal_tensor *more)
{
    struct rig *rig = &client_region->rig;
    struct error error = ERROR_NONE;
    struct shm_ticket ticket;
    assert_int_equal(slot_acquire(&rig->region, OWNER_COORDINATOR, &ticket), RING_OK);
    builder_init(&rig->builder, &rig->region, ticket.index, OWNER_COORDINATOR, NULL, NULL);
    struct shoal_tensor tensor = {.name = "probe",
                                  .datatype = SHOAL_INT64,
                                  .rank = 1,
                                  .shape = {PROBE_WORDS},
                                  .bytes = PROBE_WORDS * sizeof(int64_t)};
    void *data;
    assert_int_equal(builder_add(&rig->builder, &tensor, &data, &error), STATUS_OK);
    memset(data, 0, tensor.bytes); /* PROBE_ECHO */
    assert_int_equal(builder_add(&rig->builder, more, &data, &error), STATUS_OK);
    memcpy(data, more->data, more->bytes);
    struct shm_slot *slot = region_slot(&rig->region, ticket.index);
    assert_int_equal(builder_seal(&rig->builder, &slot->payload[0], &error), STATUS_OK);
    assert_int_equal(
        slot_push(&rig->region, ticket, PLACE_FREE, 0, OWNER_COORDINATOR, clock_now_ns()), RING_OK);
    doorbell_ring(client_region_bell(&rig->region, 0));
    return rig_wait_outcome(rig);
}

/* Elements of BYTES: as many as the shape says, and none beyond the tensor. */
TEST_CASE(test_elements_are_checked)
{
    static char data[] = "\2\0\0\0hi\0\0\0\0";
    static const struct rig_stage stages[] = {{.modelet = "probe"}};
    struct rig *lane = rig_start(stages, 1);
    static struct client_region client_region;
    client_region_come(&client_region, lane, 0);
    for (int64_t elements = 1; elements <= 3; elements++) {
        struct shoal_tensor text = {.name = "text",
                                    .datatype = SHOAL_BYTES,
                                    .rank = 1,
                                    .shape = {elements},
                                    .data = data,
                                    .bytes = 10};
        struct rig_outcome outcome = call_with(&client_region, &text);
        assert_int_equal(outcome.status, elements == 2 ? STATUS_OK : STATUS_INVALID_ARGUMENT);
        assert_true(elements == 2 || strstr(outcome.text, "tensor \"text\": ") != NULL);
    }
    client_region_go(&client_region);
    rig_stop(lane);
}

/* Of the same size, and signed: a request for a large block would get a small one. */
TEST_CASE(test_descending_classes_are_refused)
{
    static const struct rig_stage stages[] = {{.modelet = "probe"}};
    struct rig *lane = rig_start(stages, 1);
    static struct client_region client_region;
    client_region_make(&client_region, lane, 0);
    struct region_header *header = client_region.rig.region.header;
    struct region_plan plan = header->plan;
    assert_true(plan.class_count >= 2);
    for (uint32_t i = 0; i < 2; i++) {
        header->plan.class_block_bytes[i] = plan.class_block_bytes[1 - i];
        header->plan.class_block_counts[i] = plan.class_block_counts[1 - i];
    }
    header->checksum = region_checksum(header);
    struct handshake_client_region word = word_of(&client_region, CLIENT_REGION_OPEN);
    announce(lane, &word, client_region.rig.region.fd);
    struct handshake_client_region said = receive(lane, 0, 0);
    assert_int_equal(said.event, CLIENT_REGION_LOST);
    assert_non_null(strstr(said.text, "size class 1"));
    assert_int_equal(rig_call(lane, (struct rig_request){.command = PROBE_ECHO}).status, STATUS_OK);
    client_region_go(&client_region);
    rig_stop(lane);
}

/* A region that no worker could map, of a lane that has a successor: there is nothing to finish. */
TEST_CASE(test_refused_comes_to_its_end)
{
    static const struct rig_stage stages[] = {{.modelet = "probe"}, {.modelet = "probe"}};
    struct rig *lane = rig_start(stages, 2);
    static struct client_region client_region;
    client_region_make(&client_region, lane, 0);
    client_region.rig.region.header->magic++;
    struct handshake_client_region word = word_of(&client_region, CLIENT_REGION_OPEN);
    announce(lane, &word, client_region.rig.region.fd);
    for (uint32_t stage = 0; stage < 2; stage++) {
        expect_word(&client_region, stage, 0, CLIENT_REGION_LOST);
        client_region_end_at(&client_region, stage);
        expect_word(&client_region, stage, 0, CLIENT_REGION_CLOSED);
    }
    assert_int_equal(rig_call(lane, (struct rig_request){.command = PROBE_ECHO}).status, STATUS_OK);
    region_detach(&client_region.rig.region);
    rig_stop(lane);
}

/* ---- the storm ---- */

/* A request with one number; false: its resources are not to be had. */
static bool
submit_number(struct rig *rig, int64_t number, uint8_t place)
{
    struct error error = ERROR_NONE;
    struct shm_ticket ticket;
    if (slot_acquire(&rig->region, OWNER_COORDINATOR, &ticket) != RING_OK)
        return false;
    struct shoal_tensor tensor = {
        .name = "x", .datatype = SHOAL_INT64, .rank = 1, .shape = {1}, .bytes = sizeof(number)};
    void *data;
    builder_init(&rig->builder, &rig->region, ticket.index, OWNER_COORDINATOR, NULL, NULL);
    if (builder_add(&rig->builder, &tensor, &data, &error) != STATUS_OK)
        return false;
    memcpy(data, &number, sizeof(number));
    struct shm_slot *slot = region_slot(&rig->region, ticket.index);
    return builder_seal(&rig->builder, &slot->payload[place & 1], &error) == STATUS_OK &&
           slot_push(&rig->region, ticket, PLACE_FREE, place, OWNER_COORDINATOR, clock_now_ns()) ==
               RING_OK;
}

static void
give_back_what_came(const struct region *region)
{
    struct shm_ticket ticket;
    const uint8_t places[] = {region_result_place(region), PLACE_ERROR};
    for (size_t i = 0; i < sizeof(places); i++)
        if (slot_pop(region, places[i], OWNER_COORDINATOR, &ticket) == RING_OK)
            (void)!slot_release(region, ticket, places[i], OWNER_COORDINATOR);
}

/* Never comes back: ended by SIGKILL. It does not believe reports on its region either. */
static void
be_hostile(struct client_region *client_region, enum way way, uint64_t random)
{
    const struct region *region = &client_region->rig.region;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        write_somewhere(region, way, &random);
        uint64_t act = random_draw(&random) % 64;
        if (act < 8 && submit_number(&client_region->rig, (int64_t)act, act == 0))
            doorbell_ring(client_region_bell(region, act == 0));
        else if (act < 12)
            give_back_what_came(region);
        else if (act == 12)
            doorbell_wake(client_region_bell(region, (uint32_t)(random >> 32) % 2));
    }
}

/* The answer to a number from two stages, 2x + 3; waits for it. */
static void
expect_answer(struct rig *rig, int64_t number)
{
    struct shm_doorbell *bell = &rig->region.header->coordinator_bell;
    uint8_t place = region_result_place(&rig->region);
    struct shm_ticket ticket;
    int64_t deadline_ns = clock_now_ns() + RIG_PATIENCE_NS;
    while (slot_pop(&rig->region, place, OWNER_COORDINATOR, &ticket) != RING_OK) {
        uint32_t prepared = doorbell_prepare(bell);
        struct shm_ring ring = region_slot_ring(&rig->region, place);
        if (!ring_has_cell(&ring) && !doorbell_sleep(bell, prepared, deadline_ns - clock_now_ns()))
            fail_msg("no answer");
    }
    struct error error = ERROR_NONE;
    struct shm_slot *slot = region_slot(&rig->region, ticket.index);
    if (payload_read(&rig->region, &slot->payload[place & 1], &rig->view, &error) != STATUS_OK)
        fail_msg("answer: %s", error.text);
    assert_int_equal(rig->view.tensor_count, 1);
    int64_t answer;
    memcpy(&answer, rig->view.tensors[0].data, sizeof(answer));
    assert_int_equal(answer, 2 * number + 3);
    assert_int_equal(slot_release(&rig->region, ticket, place, OWNER_COORDINATOR), STATUS_OK);
}

static void
call_both(struct rig *lane, struct client_region *honest, int64_t number)
{
    assert_true(submit_number(lane, number, 0));
    stage_notify(&lane->region, 0);
    assert_true(submit_number(&honest->rig, -number, 0));
    doorbell_ring(client_region_bell(&honest->rig.region, 0));
    expect_answer(&honest->rig, -number);
    expect_answer(lane, number);
}

/* Each worker may have found it corrupt, once, and says when it has left. */
static uint32_t
hostile_goes(struct client_region *client_region)
{
    uint32_t lost = 0;
    struct handshake_client_region word = word_of(client_region, CLIENT_REGION_DISCARD);
    announce(client_region->lane, &word, -1);
    for (uint32_t i = 0; i < client_region->lane->stage_count; i++) {
        for (uint32_t k = 0; k < rig_worker_count(client_region->lane, i); k++) {
            struct handshake_client_region said = receive(client_region->lane, i, k);
            if (said.event == CLIENT_REGION_LOST) {
                lost++;
                said = receive(client_region->lane, i, k);
            }
            assert_int_equal(said.event, CLIENT_REGION_CLOSED);
            assert_int_equal(said.serial, client_region->serial);
        }
    }
    region_detach(&client_region->rig.region);
    return lost;
}

enum { LIVES = 10 * WAYS, CALLS_OF_A_LIFE = 25 };

TEST_CASE(test_storm)
{
    static const struct rig_stage stages[] = {
        {.modelet = "lib/shoal/libscale.so", .workers = 2, .batch_size = 4},
        {.modelet = "lib/shoal/libshift.so", .workers = 2, .batch_size = 4}};
    struct rig *lane = rig_start(stages, 2);
    uint64_t random = random_seed((uint64_t)clock_now_ns());
    static struct client_region honest;
    static struct client_region hostile;
    uint32_t lost[WAYS] = {0};
    client_region_come(&honest, lane, 1);
    for (uint32_t life = 0; life < LIVES; life++) {
        client_region_make(&hostile, lane, 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            be_hostile(&hostile, life % WAYS, random_draw(&random));
        random_draw(&random); /* as the child did */
        struct handshake_client_region word = word_of(&hostile, CLIENT_REGION_OPEN);
        announce(lane, &word, hostile.rig.region.fd);
        for (int64_t i = 1; i <= CALLS_OF_A_LIFE; i++)
            call_both(lane, &honest, (int64_t)life * CALLS_OF_A_LIFE + i);
        if (life % 2 == 0)
            kill(pid, SIGKILL);
        lost[life % WAYS] += hostile_goes(&hostile);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(waitpid(lane->workers[i / 2][i % 2].pid, NULL, WNOHANG), 0);
    }
    assert_true(lost[WAY_RINGS] > 0 && lost[WAY_WORDS] > 0 && lost[WAY_HEADER] > 0);
    client_region_go(&honest);
    rig_stop(lane);
}

TEST_MAIN()
