/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that find no room on a node that is mostly full: R14 (they wait in order; deadline,
 * cancellation, room elsewhere), A6, E3 for awaited loads, R4 with few loads, R9, models larger
 * than any node or than predicted (K4), memory that is not freed (K5), and the limit of R13.
 */
#include "mesh_rig.h"

enum { FULL = 9, GUARD_MS = LOAD_MS - 1000 };

static const char *
name(uint32_t number)
{
    static char text[4][TEXT];
    static uint32_t at;
    at = (at + 1) % 4;
    snprintf(text[at], TEXT, "m%u", number);
    return text[at];
}

static void
register_all(uint32_t count)
{
    for (uint32_t i = 1; i <= count; i++)
        put(name(i), "");
}

/* Loads nine models, a millisecond apart; loads take LOAD_MS on average, so that all are young. */
static void
fill(void)
{
    register_all(20);
    load_ms = FULL * LOAD_MS;
    use(name(1));
    load_ms = 0;
    for (uint32_t i = 2; i <= FULL; i++)
        use(name(i));
    load_ms = LOAD_MS;
    begin();
}

/* When the model with that number is old enough to be evicted. */
static int64_t
grown_up_ms(uint32_t number)
{
    return 100000 + FULL * LOAD_MS + number + GUARD_MS;
}

static void
grow_up(uint32_t number)
{
    assert_true(grown_up_ms(number) > now_ms);
    tick(grown_up_ms(number) - now_ms);
}

/* It has no room, and nothing that may go. */
static void
full_for_good(const char *id)
{
    instance_with((struct mesh_instance){
        .id = id,
        .session = 7,
        .figures = {.capacity_units = 1000, .full = true, .oldest_ms = WALL + HOUR}});
}

TEST_CASE(test_call_waits_for_room)
{
    fill();
    call_as(10, "m10", MESH_HOP_ENTRY);
    assert_int_equal(line_count, 0);
    for (int i = 0; i < 5; i++) {
        tick(GUARD_MS / 10);
        assert_int_equal(line_count, 0); /* nothing is out for it */
    }
    grow_up(1);
    assert_seen("unload m1", 1);
    assert_seen("serve 10 m10", 1);
    assert_seen("answer", 0);
}

/* R14: copies appear and vanish until the call has used up its tries. It found no room before, so
 * it goes on waiting, and is routed again when the tries have expired. */
TEST_CASE(test_vanishing_copies_do_not_end_a_waiting_call)
{
    fill();
    full_for_good("other");
    call_as(10, "m10", MESH_HOP_ENTRY);
    for (int i = 0; i < 2 * MESH_TRIES_MAX; i++) {
        begin();
        put("m10", "other:loaded");
        if (seen("forward 10 m10 other hit") > 0)
            end_call(10, MESH_END_NOT_HERE, 0);
        put("m10", "");
        assert_seen("answer", 0);
        now_ms++;
    }
    put("m10", "other:loaded");
    assert_seen("forward", 0); /* they are used up */
    tick(1000);
    assert_seen("forward 10 m10 other hit", 1);
}

/* R5: the call tries as many copies as it may. Copies that stay in the record are out of reach. */
static void
check_five_copies(const char *first, const char *then, const char *end)
{
    fill();
    static const char *const others[] = {"a", "b", "c", "d", "e"};
    for (int i = 0; i < MESH_COPIES_TRIED_MAX; i++)
        full_for_good(others[i]);
    call_as(10, "m10", MESH_HOP_ENTRY);
    put("m10", first);
    for (uint32_t i = 1; i <= MESH_COPIES_TRIED_MAX; i++) {
        if (i == MESH_COPIES_TRIED_MAX)
            put("m10", then);
        assert_seen("forward 10 m10", i);
        end_call(10, MESH_END_NOT_HERE, 0);
    }
    assert_seen("answer", end[0] != '\0');
    assert_seen(end, end[0] != '\0');
}

TEST_CASE(test_five_vanished_copies)
{
    check_five_copies("a:loaded b:loaded c:loaded d:loaded", "e:loaded", "");
    put("m10", "");
    tick(1000);
    put("m10", "a:loaded");
    assert_seen("forward 10 m10 a hit", 1);
}

TEST_CASE(test_five_unreachable_copies)
{
    static const char all[] = "a:loaded b:loaded c:loaded d:loaded e:loaded";
    (void)state;
    check_five_copies(all, all, "answer 10 failed");
}

/* R9: a load here failed for this call; a copy loaded since then serves it. */
TEST_CASE(test_copy_loaded_after_a_refusal_serves)
{
    const struct mesh_tried loads = {.instance = "self", .list = MESH_LIST_LOAD};
    const struct mesh_tried fixed = {.instance = "self", .list = MESH_LIST_FIXED};
    struct mesh_event event = {
        .kind = MESH_CALL,
        .call = {.call = 1, .model = "m1", .hop = MESH_HOP_HIT, .tried_count = 1}};
    fill();
    event.call.tried = &loads;
    event.call.deadline_ms = now_ms + 9000;
    step(event);
    assert_seen("serve 1 m1", 1);
    event.call.tried = &fixed; /* the caller does not want it here */
    event.call.call = 2;
    step(event);
    assert_seen("answer 2 not-here", 1);
}

/* The next event finds the room, not only the next tick. */
TEST_CASE(test_new_room_is_used_at_once)
{
    fill();
    call_as(10, "m10", MESH_HOP_ENTRY);
    instance("other", 0); /* which is as full */
    put("m11", "other:loaded");
    call_as(11, "m11", MESH_HOP_ENTRY);
    begin();
    end_call(11, MESH_END_OK, 0);
    assert_int_equal(line_count, 0);
    runtime(2000);
    assert_seen("serve 10 m10", 1);
}

/* Room for one model goes to the first call in line. */
TEST_CASE(test_waiting_calls_get_room_in_order)
{
    fill();
    prompt = false;
    for (uint32_t i = 10; i <= 13; i++)
        call_as(i, name(i), MESH_HOP_ENTRY);
    grow_up(1);
    assert_seen("write m10 self:loading", 1);
    assert_seen("write", 1);
    runtime_ends(MESH_SIZE_PREDICTED, "m10");
    assert_seen("write m1", 1);
    assert_seen("write", 2); /* m1 goes for it; the others have nothing out */
    call_as(14, "m14", MESH_HOP_ENTRY);
    grow_up(2);
    assert_seen("write m11 self:loading", 1);
    assert_seen("size", 1);
    cancel(12);
    grow_up(3);
    assert_seen("write m13 self:loading", 1);
    assert_seen("size", 1);
    grow_up(4);
    assert_seen("write m14 self:loading", 1);
    assert_seen("answer", 0);
}

/* A call that arrives before the room was seen does not overtake either. */
TEST_CASE(test_new_call_does_not_overtake)
{
    fill();
    prompt = false;
    call_as(10, "m10", MESH_HOP_ENTRY);
    now_ms = grown_up_ms(1);
    call_as(11, "m11", MESH_HOP_ENTRY);
    assert_seen("size m10", 1);
    assert_seen("size", 1);
}

/* A call for a loaded model that cannot be reached fails instead of waiting for room. */
TEST_CASE(test_unreachable_copy_is_not_lack_of_room)
{
    put("m1", "");
    call_as(1, "m1", MESH_HOP_ENTRY);
    end_call(1, MESH_END_UNREACHABLE, 0);
    tick(1000); /* R12: it is tried again */
    end_call(1, MESH_END_UNREACHABLE, 0);
    assert_seen("answer 1 failed", 1);
    step((struct mesh_event){.kind = MESH_RUNTIME_LOST});
    tick(5000);
    instance("other", 0);
    put("m2", "other:loaded");
    call_as(2, "m2", MESH_HOP_ENTRY);
    end_call(2, MESH_END_NOT_HERE, 0);
    assert_seen("answer 2 failed", 1);
}

/* Room for three models, of which `count` are called in turn, `calls` times in all. Each call is
 * answered after a load at most, without a tick. */
static void
check_rotation(uint32_t count, uint32_t calls, int64_t took_ms)
{
    register_all(count);
    step((struct mesh_event){.kind = MESH_RUNTIME,
                             .runtime = {.capacity_bytes = UINT64_C(350) * UNIT,
                                         .default_bytes = UINT64_C(100) * UNIT,
                                         .loaders = 1,
                                         .load_timeout_ms = 90000}});
    load_ms = took_ms;
    for (uint32_t i = 0; i < calls; i++) {
        begin();
        int64_t began_ms = now_ms;
        call_as(1, name(1 + i % count), MESH_HOP_ENTRY);
        assert_seen("serve 1", 1);
        assert_true(now_ms - began_ms <= took_ms);
        end_call(1, MESH_END_OK, 0);
        now_ms++; /* the next caller's round trip */
    }
}

TEST_CASE(test_one_model_more_than_fits)
{
    check_rotation(4, 4, 20); /* on a node that has loaded hardly anything */
    check_rotation(4, 40, 2000);
}

/* E3: nine models loaded for nobody are evicted at once, the first-loaded first. */
TEST_CASE(test_uncalled_models_are_not_protected)
{
    register_all(20);
    load_ms = FULL * LOAD_MS;
    for (uint32_t i = 1; i <= FULL; i++) {
        step((struct mesh_event){.kind = MESH_ENSURE,
                                 .ensure = {.model = name(i), .class = MESH_CLASS_COPY}});
        assert_int_equal(mesh_state(mesh, name(i)), MESH_STATE_LOADED);
        load_ms = 0;
        now_ms++;
    }
    use("m1");
    begin();
    use("m10");
    assert_seen("unload m2", 1);
    assert_seen("unload", 1);
}

/* E3: twenty callers come at once. All of them are delayed by one protection together, the first
 * nine loads'; what is loaded after that, for callers that had waited already, is not protected. */
TEST_CASE(test_protection_delays_a_caller_once)
{
    fill();
    for (uint32_t i = 10; i <= 20; i++)
        call_as(i, name(i), MESH_HOP_ENTRY);
    begin();
    load_ms = 0;
    grow_up(1);
    for (uint32_t i = 10; i <= 20; i++)
        if (numbers[i] == 0)
            pass(1);
    tick(8); /* all of the first nine have grown up */
    tick(1000);
    for (uint32_t i = 10; i <= 20; i++)
        assert_int_not_equal(numbers[i], 0);
}

/* K2, R17: what has not begun to load evicts nobody, however much is queued behind a load that
 * hangs. */
TEST_CASE(test_queued_loads_evict_nobody)
{
    fill();
    tick(HOUR);
    prompt = false;
    for (uint32_t i = 10; i <= 14; i++) {
        call_as(i, name(i), MESH_HOP_ENTRY);
        runtime_ends(MESH_SIZE_PREDICTED, name(i));
    }
    assert_seen("load", 1);
    assert_seen("unload", 1);
    assert_int_equal(mesh_figures(mesh).loading, 5);
    for (int i = 0; i < 20; i++)
        pass(1000);
    assert_seen("load", 1);
    assert_seen("unload", 1);
    runtime_ends(MESH_UNLOAD_ENDED, "m1");
    runtime_ends(MESH_LOAD_ENDED, "m10");
    assert_seen("serve 10 m10", 1);
    assert_seen("load", 2);
    assert_seen("unload", 2);
}

/* R17: loads hang here. After the assumed time the calls that wait for them go to another node,
 * those whose load is still queued with the withdrawal of it; new calls go there at once. */
TEST_CASE(test_calls_leave_hanging_loads)
{
    register_all(20);
    prompt = false;
    for (uint32_t i = 1; i <= 3; i++) {
        call_as(i, name(i), MESH_HOP_ENTRY);
        runtime_ends(MESH_SIZE_PREDICTED, name(i));
    }
    assert_seen("load m1", 1);
    assert_seen("load", 1);
    instance("other", 500);
    begin();
    pass(2000);
    assert_seen("forward", 0);
    pass(1000); /* R4: a third of the time-out, as nothing has been loaded yet */
    assert_seen("forward 1 m1 other load", 1);
    assert_seen("forward 2 m2 other load", 1);
    assert_seen("forward 3 m3 other load", 1);
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_LOADING);
    assert_int_equal(mesh_state(mesh, "m2"), MESH_STATE_NONE);
    assert_int_equal(mesh_state(mesh, "m3"), MESH_STATE_NONE);
    assert_true(mesh_figures(mesh).full);
    call_as(4, "m4", MESH_HOP_ENTRY);
    assert_seen("forward 4 m4 other load", 1);
    call_as(5, "m5", MESH_HOP_LOAD);
    assert_seen("answer 5 refused", 1);
    runtime_ends(MESH_LOAD_ENDED, "m1");
    assert_false(mesh_figures(mesh).full);
}

/* R17: a call from another node, and nobody else that could load the model. */
TEST_CASE(test_calls_of_others_leave_hanging_loads)
{
    register_all(20);
    prompt = false;
    call_as(1, "m1", MESH_HOP_LOAD);
    call_as(2, "m1", MESH_HOP_HIT);
    runtime_ends(MESH_SIZE_PREDICTED, "m1");
    for (int i = 0; i < 5; i++)
        pass(1000);
    assert_seen("answer", 0); /* nobody else is there */
    instance("other", 500);
    pass(1000);
    assert_seen("answer 1 not-here", 1);
    assert_seen("answer 2 not-here", 1);
}

/* R17: a call leaves a load, which ends while another node refuses the call: the copy serves it. */
TEST_CASE(test_call_returns_to_the_load_it_left)
{
    register_all(20);
    prompt = false;
    call_as(1, "m1", MESH_HOP_ENTRY);
    runtime_ends(MESH_SIZE_PREDICTED, "m1");
    instance("other", 500);
    pass(3000);
    begin();
    runtime_ends(MESH_LOAD_ENDED, "m1");
    end_call(1, MESH_END_REFUSED, 0);
    assert_seen("serve 1 m1", 1);
    assert_seen("answer", 0);
}

/* R17: a call that another node sends back tries a third one, and does not return to the load that
 * the record still shows. */
TEST_CASE(test_sent_back_call_tries_a_third_node)
{
    step((struct mesh_event){.kind = MESH_RUNTIME_LOST});
    instance("slow", 500);
    put("m1", "");
    call_as(1, "m1", MESH_HOP_ENTRY);
    assert_seen("forward 1 m1 slow load", 1);
    add_place("m1", "slow", MESH_PLACE_LOADING);
    instance("other", 500);
    begin();
    end_call(1, MESH_END_NOT_HERE, 0);
    assert_seen("forward 1 m1 other load", 1);
    assert_seen("forward", 1);
}

/* Two calls for one model are one load. */
TEST_CASE(test_two_calls_share_one_load)
{
    fill();
    prompt = false;
    call_as(10, "m10", MESH_HOP_ENTRY);
    call_as(11, "m10", MESH_HOP_ENTRY);
    call_as(12, "m12", MESH_HOP_ENTRY);
    grow_up(1);
    assert_seen("size", 1);
    begin();
    add_place("m12", "other", MESH_PLACE_LOADED); /* nobody that is there */
    assert_int_equal(line_count, 0);
    instance("other", 0);
    add_place("m12", "other", MESH_PLACE_LOADED); /* somebody else has loaded it */
    assert_seen("forward 12 m12 other hit", 1);
}

/* A6, E3: nine awaited loads are not evicted, and no more is claimed than fits. */
TEST_CASE(test_awaited_loads_are_not_evicted)
{
    register_all(20);
    prompt = false;
    for (uint32_t i = 1; i <= FULL + 3; i++)
        call_as(i, name(i), MESH_HOP_ENTRY);
    assert_seen("size", FULL);
    for (uint32_t i = 1; i <= FULL; i++)
        runtime_ends(MESH_SIZE_PREDICTED, name(i));
    begin();
    for (int i = 0; i < 50; i++) { /* longer than the churn age */
        tick(1000);
        assert_int_equal(line_count, 0);
    }
}

/* The call ends at the tick before its deadline, after a minute if it has none. */
TEST_CASE(test_call_waits_until_its_deadline)
{
    register_all(20);
    prompt = false;
    for (uint32_t i = 1; i <= FULL; i++)
        call_as(i, name(i), MESH_HOP_ENTRY);
    call_as(10, "m10", MESH_HOP_ENTRY);
    call_as(11, "m11", MESH_HOP_ENTRY);
    step((struct mesh_event){
        .kind = MESH_CALL,
        .call = {.call = 12, .model = "m12", .deadline_ms = INT64_C(9000000000000)}});
    cancel(11);
    begin();
    tick(58000);
    assert_seen("answer", 0);
    tick(1000);
    assert_seen("answer 10 full", 1);
    assert_seen("answer 12 full", 1);
    assert_seen("answer", 2);
    assert_non_null(strstr(answer_text, "Cache churn threshold exceeded"));
}

static void
old_and_full(const char *id)
{
    instance_with((struct mesh_instance){
        .id = id,
        .session = 7,
        .figures = {.capacity_units = 1000, .full = true, .oldest_ms = WALL + now_ms - MINUTE}});
}

/* A full node gets four calls at a time, none for a moment after a refusal, and the same call only
 * after a while. */
TEST_CASE(test_full_nodes_are_not_flooded)
{
    fill();
    instance("other", 0);
    for (uint32_t i = 10; i < 20; i++)
        call_as(i, name(i), MESH_HOP_ENTRY);
    assert_seen("forward", 0);
    begin();
    old_and_full("other");
    assert_seen("forward", 4);
    assert_seen("forward 10 m10 other load", 1);
    assert_seen("forward 13 m13 other load", 1);
    begin();
    end_call(11, MESH_END_REFUSED, 0);
    assert_int_equal(line_count, 0);
    now_ms += 300;
    end_call(10, MESH_END_OK, 0);
    assert_seen("forward", 2); /* the two that came after those four */
    assert_seen("forward 14 m14 other load", 1);
    assert_seen("forward 15 m15 other load", 1);
    for (uint32_t i = 12; i < 20; i++)
        end_call(i, MESH_END_OK, 0);
    assert_seen("forward", 6);
    assert_seen("forward 11", 0);
    tick(100);
    assert_seen("forward", 0);
    tick(200);
    assert_seen("forward 11 m11 other load", 1);
    assert_seen("answer", 0);
}

/* A load in advance does not take the room that a call waits for. */
TEST_CASE(test_advance_load_does_not_take_the_room)
{
    fill();
    call_as(10, "m10", MESH_HOP_ENTRY);
    now_ms = grown_up_ms(1);
    step((struct mesh_event){.kind = MESH_ENSURE,
                             .ensure = {.model = "m11", .class = MESH_CLASS_ADVANCE}});
    assert_seen("size m11", 0);
    assert_seen("serve 10 m10", 1);
}

/* A call that waits on a draining node fails once no other node can take it. */
TEST_CASE(test_waiting_call_on_a_draining_node)
{
    fill();
    instance("other", 0);
    call_as(10, "m10", MESH_HOP_ENTRY);
    begin();
    drain();
    assert_seen("drained", 0);
    old_and_full("other");
    assert_seen("forward 10 m10 other load", 1);
    instance("other", 0);
    call_as(11, "m11", MESH_HOP_ENTRY);
    begin();
    instance_with((struct mesh_instance){.id = "other", .session = 7, .draining = true});
    tick(1000);
    assert_seen("answer 11 unavailable", 1); /* R18 */
}

/* D5: the drain does not end while a call waits for another node's room. */
TEST_CASE(test_drain_waits_for_waiting_calls)
{
    instance("other", 0);
    put("m1", "");
    step((struct mesh_event){.kind = MESH_RUNTIME_LOST});
    call_as(1, "m1", MESH_HOP_ENTRY);
    drain();
    assert_seen("answer", 0);
    assert_seen("drained", 0);
    cancel(1);
    tick(1000);
    assert_seen("drained", 1);
}

static void
rests(bool is)
{
    step((struct mesh_event){.kind = MESH_RUNTIME_RESTS, .rest = {.rests = is}});
}

/* A call waits for a runtime that comes when it is needed, and for no other one. */
TEST_CASE(test_call_waits_for_a_resting_runtime)
{
    put("m1", "");
    step((struct mesh_event){.kind = MESH_RUNTIME_LOST});
    tick(5000); /* it does not return by itself */
    instance_with((struct mesh_instance){
        .id = "self", .session = session, .figures = {.capacity_units = 1000, .full = true}});
    call_as(1, "m1", MESH_HOP_ENTRY);
    assert_seen("answer 1 failed", 1);
    begin();
    rests(true);
    call_as(2, "m1", MESH_HOP_ENTRY);
    step((struct mesh_event){.kind = MESH_CALL,
                             .call = {.call = 3, .model = "m1", .deadline_ms = now_ms + 3000}});
    tick(1500);
    assert_seen("answer", 0);
    tick(1000);
    assert_seen("answer 3 unavailable", 1);
    step((struct mesh_event){.kind = MESH_RUNTIME,
                             .runtime = {.capacity_bytes = UINT64_C(1000) * UNIT,
                                         .default_bytes = UINT64_C(100) * UNIT,
                                         .loaders = 1,
                                         .load_timeout_ms = 90000}});
    rests(false);
    assert_seen("serve 2 m1", 1);
}

/* By the types of models that there are. */
TEST_CASE(test_a_runtime_is_needed_for_models_of_its_types)
{
    const char *const sort = "mt:sort";
    const struct mesh_type_rule rule = {.type = "mt:sort", .required = &sort, .required_count = 1};
    step((struct mesh_event){.kind = MESH_TYPES, .types = {.rules = &rule, .rule_count = 1}});
    assert_false(mesh_is_needed(mesh, 0, "mt:sort,rt:x"));
    put_as("m1", "mt:sort", "", WALL);
    assert_true(mesh_is_needed(mesh, 0, "mt:sort,rt:x"));
    assert_false(mesh_is_needed(mesh, 0, "mt:other"));
    model_gone("m1");
    assert_false(mesh_is_needed(mesh, 0, "mt:sort,rt:x"));
    put_as("m2", "free", "", WALL);
    assert_true(mesh_is_needed(mesh, 0, "mt:other"));
}

/* A model larger than every node fails at once, with a text that says so. */
TEST_CASE(test_model_larger_than_every_node)
{
    put("m1", "");
    size_units = 2000;
    call_as(1, "m1", MESH_HOP_ENTRY);
    assert_seen("answer 1 load-failed", 1);
    assert_string_equal(answer_text, "the model is larger than this node's memory: it needs "
                                     "15.7 MiB, and the node has 7.5 MiB for models");
    assert_seen("load", 0);
    runtime(100);
    put("m2", "");
    call_as(2, "m2", MESH_HOP_ENTRY);
    assert_seen("answer 2 failed", 1);
    assert_non_null(strstr(answer_text, "larger than any node's memory"));
    assert_non_null(strstr(answer_text, "0.8 MiB (`default_size_mib`)"));
    assert_non_null(strstr(answer_text, "has 0.8 MiB for models")); /* 90 of 100 units */
    instance("other", 0); /* which is large enough, and full */
    call_as(3, "m2", MESH_HOP_ENTRY);
    assert_seen("answer", 2);
}

/* Loads an older model beside eight that may be evicted; it turns out to take 300 units. */
static void
load_a_large_old_one(enum mesh_class class, bool deleted_meanwhile)
{
    for (uint32_t i = 0; i < 8; i++) {
        put(name(i), "");
        use(name(i));
    }
    tick(60000);
    put("large", "");
    prompt = false;
    step((struct mesh_event){
        .kind = MESH_ENSURE,
        .ensure = {.model = "large", .used_ms = 1, .class = class, .where = MESH_HERE}});
    runtime_ends(MESH_SIZE_PREDICTED, "large");
    assert_seen("load large", 1);
    prompt = true;
    if (deleted_meanwhile)
        model_gone("large");
    begin();
    size_units = 300;
    runtime_ends(MESH_LOAD_ENDED, "large");
}

/* K4: it was loaded in advance and is the oldest, so it goes itself. */
TEST_CASE(test_advance_load_larger_than_predicted_goes)
{
    load_a_large_old_one(MESH_CLASS_ADVANCE, false);
    assert_seen("unload", 1);
    assert_seen("unload large", 1);
}

/* K4: it was requested, so others go. */
TEST_CASE(test_requested_load_larger_than_predicted_evicts)
{
    load_a_large_old_one(MESH_CLASS_COPY, false);
    assert_seen("unload", 2);
    assert_seen("unload m0", 1);
    assert_seen("unload m1", 1);
}

/* K4: its record is gone, so it goes in any case. */
TEST_CASE(test_deleted_load_larger_than_predicted_goes)
{
    load_a_large_old_one(MESH_CLASS_COPY, true);
    assert_seen("unload", 1);
    assert_seen("unload large", 1);
}

/* K5: the evicted model gives no memory back, so another one goes. */
TEST_CASE(test_unload_that_frees_nothing_evicts_another)
{
    fill();
    tick(HOUR);
    prompt = false;
    call_as(10, "m10", MESH_HOP_ENTRY);
    runtime_ends(MESH_SIZE_PREDICTED, "m10");
    assert_seen("unload", 1);
    assert_seen("unload m1", 1);
    step((struct mesh_event){.kind = MESH_UNLOAD_ENDED,
                             .loaded = {.ticket = tickets[model_at("m1") - models]}});
    assert_seen("unload", 2);
    assert_seen("unload m2", 1);
    runtime_ends(MESH_UNLOAD_ENDED, "m2");
    assert_seen("unload", 2);
}

/* R13: 256 unknown ids a second; calls for more are answered "unavailable". */
TEST_CASE(test_unknown_ids_are_limited)
{
    char id[TEXT];
    mesh_destroy(mesh);
    start((struct mesh_config){.models_max = 1000});
    network = NETWORK_DOWN;
    begin();
    for (uint32_t i = 0; i < 256; i++) {
        snprintf(id, sizeof(id), "u%u", i);
        call_as(1, id, MESH_HOP_ENTRY);
        cancel(1);
    }
    assert_seen("compare", 256);
    call_as(1, "one-more", MESH_HOP_ENTRY);
    assert_seen("compare", 256);
    assert_seen("answer 1 unavailable", 1);
}

TEST_MAIN(.setup = fresh, .teardown = drop)
