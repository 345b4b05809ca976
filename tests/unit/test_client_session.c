/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves what the coordinator does with clients that are not libshoal: the test speaks the socket's
 * protocol (ipc/local.h) and writes into the region itself. A client that sends a malformed message
 * is disconnected; one that does not take its region gets no other until it does; one that destroys
 * its region, or whose requests kill workers, gets the reason before it is disconnected, and the
 * node serves others. Counted each time, as shoalctl shows it.
 *
 * ctest: timeout=120
 */
#include "test_client_rig.h"

#include <sys/socket.h>
#include <sys/un.h>

#include "ipc/local.h"
#include "shm/client_regions.h"
#include "shm/slot.h"

/* ---- a client by hand ---- */

struct hand {
    int fd;
    struct region region;
};

static struct local_word
receive(struct hand *hand, int *descriptor)
{
    struct local_word word;
    struct error error = ERROR_NONE;
    if (local_receive(hand->fd, &word, sizeof(word), LOCAL_WAIT, descriptor, &error) != STATUS_OK)
        fail_msg("the node says: %s", error.text);
    return word;
}

static void
take_welcome(struct hand *hand, const struct local_word *word, int descriptor)
{
    if (word->type != LOCAL_WELCOME)
        fail_msg("type %u: %.*s", word->type, LOCAL_TEXT_BYTES, word->text);
    struct error error = ERROR_NONE;
    region_detach(&hand->region);
    assert_int_equal(region_attach(&hand->region, descriptor, &error), STATUS_OK);
}

static void
receive_welcome(struct hand *hand)
{
    int descriptor = -1;
    struct local_word word = receive(hand, &descriptor);
    take_welcome(hand, &word, descriptor);
}

/* Deaths of workers may come before it. */
static void
receive_refused(struct hand *hand, const char *why)
{
    int descriptor;
    struct local_word word = receive(hand, &descriptor);
    while (word.type == LOCAL_DEATH)
        word = receive(hand, &descriptor);
    assert_int_equal(word.type, LOCAL_REFUSED);
    assert_non_null(strstr(word.text, why));
}

static void
receive_closed(struct hand *hand)
{
    struct local_word word;
    struct error error = ERROR_NONE;
    int descriptor;
    assert_int_equal(local_receive(hand->fd, &word, sizeof(word), LOCAL_WAIT, &descriptor, &error),
                     STATUS_UNAVAILABLE);
}

static void
say(const struct hand *hand, uint32_t type)
{
    struct local_note note = {LOCAL_VERSION, type};
    struct error error = ERROR_NONE;
    assert_int_equal(local_send(hand->fd, &note, sizeof(note), -1, &error), STATUS_OK);
}

static void
say_hello(struct hand *hand, const struct node *node)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", node->socket);
    *hand = (struct hand){.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
    assert_true(hand->fd >= 0);
    struct timeval patience = {.tv_sec = PATIENCE_NS / NS_PER_S};
    setsockopt(hand->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    assert_int_equal(connect(hand->fd, (struct sockaddr *)&address, sizeof(address)), 0);
    struct local_hello hello = {.version = LOCAL_VERSION, .pipeline = "probe"};
    struct error error = ERROR_NONE;
    assert_int_equal(local_send(hand->fd, &hello, sizeof(hello), -1, &error), STATUS_OK);
}

/* The place of a client that has left is free when every worker has left its region. */
static void
hand_open(struct hand *hand, const struct node *node)
{
    int64_t deadline_ns = clock_now_ns() + PATIENCE_NS;
    for (;;) {
        int descriptor = -1;
        say_hello(hand, node);
        struct local_word word = receive(hand, &descriptor);
        bool full = word.type == LOCAL_REFUSED && strstr(word.text, "(local_clients)") != NULL;
        if (!full || clock_now_ns() >= deadline_ns) {
            take_welcome(hand, &word, descriptor);
            return;
        }
        close(hand->fd);
        poll(NULL, 0, 5);
    }
}

static void
hand_close(struct hand *hand)
{
    close(hand->fd);
    region_detach(&hand->region);
}

static void
node_up(struct node *node, const struct client_node_options *options)
{
    node_start(node, options);
    shoal_client_close(open_client(node));
    wait_counter(node, "local_left", 1);
}

/* ---- tests ---- */

TEST_CASE(test_malformed_messages)
{
    struct node node;
    node_up(&node, &(struct client_node_options){.clients = 1});
    struct hand hand;
    static const uint32_t notes[][3] = {
        {NOTE_DRAINING},          /* of what drain? */
        {NOTE_TAKEN, NOTE_TAKEN}, /* there is one region */
        {77},
    };
    for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]); i++) {
        hand_open(&hand, &node);
        for (size_t k = 0; notes[i][k] != 0; k++)
            say(&hand, notes[i][k]);
        receive_closed(&hand);
        hand_close(&hand);
        wait_counter(&node, "local_left", i + 2);
    }
    struct local_hello twice = {.version = LOCAL_VERSION, .pipeline = "probe"};
    struct error error = ERROR_NONE;
    hand_open(&hand, &node);
    assert_int_equal(local_send(hand.fd, &twice, sizeof(twice), -1, &error), STATUS_OK);
    receive_closed(&hand);
    hand_close(&hand);
    shoal_client_close(open_client(&node)); /* the only place is free again */
    node_stop(&node);
    node_remove(&node);
}

/* One region in its hands and one on the way, however often the pipeline is reloaded. */
TEST_CASE(test_no_region_before_the_last_is_taken)
{
    enum { RELOADS = 3 };
    struct node node;
    node_up(&node, &(struct client_node_options){.clients = 1});
    struct hand hand;
    hand_open(&hand, &node);
    for (uint64_t i = 1; i <= RELOADS; i++) {
        kill(node.pid, SIGHUP);
        wait_counter(&node, "reloads", i);
    }
    wait_counter(&node, "local_clients", 0);
    wait_counter(&node, "local_moved", 0);
    struct shoal_client *other;
    struct shoal_error error = {""}; /* its place is kept */
    assert_int_equal(try_open(&node, "probe", &other, &error), SHOAL_RESOURCE_EXHAUSTED);
    say(&hand, NOTE_TAKEN);
    receive_welcome(&hand);
    wait_counter(&node, "local_moved", 1);
    say(&hand, NOTE_TAKEN);
    kill(node.pid, SIGTERM);
    int descriptor;
    assert_int_equal(receive(&hand, &descriptor).type, LOCAL_DRAIN);
    receive_refused(&hand, "the node is stopping");
    receive_closed(&hand);
    node_wait(&node);
    hand_close(&hand);
    node_remove(&node);
}

TEST_CASE(test_destroyed_region)
{
    struct node node;
    node_up(&node, &(struct client_node_options){.clients = 2});
    struct shoal_client *client = open_client(&node);
    struct hand hand;
    hand_open(&hand, &node);
    struct shm_ticket ticket;
    assert_int_equal(slot_acquire(&hand.region, OWNER_COORDINATOR, &ticket), RING_OK);
    assert_int_equal(slot_push(&hand.region, ticket, PLACE_FREE, 0, OWNER_COORDINATOR, 1), RING_OK);
    for (uint32_t i = 0; i < hand.region.slots.count; i++)
        atomic_store(object_word(&hand.region.slots, i), 0);
    doorbell_ring(client_region_bell(&hand.region, 0));
    receive_refused(&hand, "its shared memory was found corrupt");
    receive_closed(&hand);
    wait_counter(&node, "local_dropped_corrupt", 1);
    struct error error = ERROR_NONE;
    assert_int_not_equal(region_check_header(&hand.region, &error), STATUS_OK); /* taken out */
    hand_close(&hand);
    assert_echo(client, TAG);
    shoal_client_close(client);
    node_stop(&node);
    node_remove(&node);
}

/* It never repairs, and pushes the same again and again. */
TEST_CASE(test_requests_that_kill_workers)
{
    struct node node;
    node_up(&node, &(struct client_node_options){.clients = 2, .slots = 64});
    struct hand hand;
    hand_open(&hand, &node);
    static struct payload_builder builder;
    struct shm_ticket ticket;
    for (int i = 0; i < 32 && slot_acquire(&hand.region, OWNER_COORDINATOR, &ticket) == RING_OK;
         i++) {
        struct shoal_tensor tensor = {.name = "probe",
                                      .datatype = SHOAL_INT64,
                                      .rank = 1,
                                      .shape = {PROBE_WORDS},
                                      .bytes = PROBE_WORDS * sizeof(int64_t)};
        struct error error = ERROR_NONE;
        void *data;
        builder_init(&builder, &hand.region, ticket.index, OWNER_COORDINATOR, NULL, NULL);
        assert_int_equal(builder_add(&builder, &tensor, &data, &error), STATUS_OK);
        memcpy(data, (int64_t[]){PROBE_EXIT, 1, 0}, tensor.bytes);
        struct shm_slot *slot = region_slot(&hand.region, ticket.index);
        assert_int_equal(builder_seal(&builder, &slot->payload[0], &error), STATUS_OK);
        slot_set_deadline(slot, TIME_NEVER_NS);
        assert_int_equal(slot_push(&hand.region, ticket, PLACE_FREE, 0, OWNER_COORDINATOR, 1),
                         RING_OK);
        doorbell_ring(client_region_bell(&hand.region, 0));
    }
    receive_refused(&hand, "more than 8 workers died");
    receive_closed(&hand);
    wait_counter(&node, "local_dropped_deaths", 1);
    hand_close(&hand);
    shoal_client_close(open_client(&node)); /* forgiven in time, and served */
    node_stop(&node);
    node_remove(&node);
}

TEST_MAIN()
