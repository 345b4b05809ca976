/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models whose size the runtime reports after the load (K7): they serve at once, count as predicted
 * until then, and as measured from then on.
 */
#include "mesh_rig.h"

static uint64_t
free_units(void)
{
    return mesh_figures(mesh).free_units;
}

/* Loads it without a size, for a call; it is predicted to take 100 units. */
static void
load_unmeasured(const char *model)
{
    size_units = 0;
    put(model, "");
    call_as(0, model, MESH_HOP_LOAD);
    end_call(0, MESH_END_OK, 0);
}

static void
measure(const char *model, uint64_t units)
{
    begin();
    size_units = units;
    runtime_ends(MESH_SIZE_MEASURED, model);
}

TEST_CASE(test_serves_before_it_is_measured)
{
    const uint64_t free_before = free_units();
    load_unmeasured("m1");
    assert_seen("serve 0 m1", 1);
    assert_seen("write m1 self:loaded", 1);
    assert_int_equal(free_before - free_units(), 100);
    measure("m1", 130);
    assert_int_equal(line_count, 0); /* the record does not say it */
    assert_int_equal(free_before - free_units(), 130);
    measure("m1", 20);
    assert_int_equal(free_before - free_units(), 20);
}

/* K4: the others make room in the same step; it stays though it is the oldest by now. */
TEST_CASE(test_measured_larger_than_predicted)
{
    char id[TEXT];
    for (int i = 0; i < 9; i++) {
        snprintf(id, sizeof(id), "m%d", i);
        load_unmeasured(id);
        now_ms += MINUTE;
    }
    begin();
    measure("m0", 300);
    assert_int_equal(mesh_state(mesh, "m0"), MESH_STATE_LOADED);
    assert_seen("unload m1", 1);
    assert_seen("unload m2", 1);
    assert_seen("unload", 2);
}

/* A call waits for room: it comes when a model is measured smaller. */
TEST_CASE(test_measured_smaller_than_predicted)
{
    char id[TEXT];
    for (uint32_t i = 0; i < 9; i++) {
        snprintf(id, sizeof(id), "m%u", i);
        load_unmeasured(id);
        call_as(10 + i, id, MESH_HOP_ENTRY); /* lasts, so that its memory stays taken */
    }
    const uint64_t free_before = free_units();
    measure("m0", 1);
    assert_int_equal(free_units() - free_before, 99);
    assert_seen("unload", 0);
}

TEST_CASE(test_measured_larger_than_the_node)
{
    load_unmeasured("m1");
    call_as(1, "m1", MESH_HOP_ENTRY);
    measure("m1", 2000);
    assert_seen("write m1 self:failed", 1);
    assert_seen("unload", 0); /* I4: it serves a call */
    end_call(1, MESH_END_OK, 0);
    assert_seen("unload m1", 1);
    call_as(2, "m1", MESH_HOP_ENTRY);
    assert_seen("answer 2 load-failed", 1);
    assert_seen("load", 0);
}

/* An unloading model counts with its measured memory until it has gone. */
TEST_CASE(test_measured_on_its_way_out)
{
    prompt = true;
    unloads_wait = true;
    const uint64_t free_before = free_units();
    load_unmeasured("m1");
    model_at("m1")->revision = 0;
    model_gone("m1");
    assert_int_equal(mesh_state(mesh, "m1"), MESH_STATE_UNLOADING);
    measure("m1", 500);
    assert_int_equal(mesh_sums(mesh).resident_units, 500);
    runtime_ends(MESH_UNLOAD_ENDED, "m1");
    assert_int_equal(mesh_sums(mesh).resident_units, 0);
    assert_int_equal(free_units(), free_before);
    measure("m1", 500); /* too late */
    assert_int_equal(mesh_sums(mesh).resident_units, 0);
}

/* The answer belongs to a former load of the model, or to a runtime that was lost. */
TEST_CASE(test_measured_too_late)
{
    load_unmeasured("m1");
    const uint64_t former = tickets[model_at("m1") - models];
    step((struct mesh_event){.kind = MESH_RUNTIME_LOST});
    measure("m1", 500);
    assert_int_equal(mesh_sums(mesh).resident_units, 0);
    runtime(1000);
    size_units = 0;
    call_as(0, "m1", MESH_HOP_LOAD);
    end_call(0, MESH_END_OK, 0);
    assert_int_equal(mesh_sums(mesh).resident_units, 100);
    step((struct mesh_event){.kind = MESH_SIZE_MEASURED,
                             .loaded = {.ticket = former, .size_bytes = UINT64_C(500) * UNIT}});
    assert_int_equal(mesh_sums(mesh).resident_units, 100);
    measure("m1", 0); /* it is not known */
    assert_int_equal(mesh_sums(mesh).resident_units, 100);
}

TEST_MAIN(.setup = fresh, .teardown = drop)
