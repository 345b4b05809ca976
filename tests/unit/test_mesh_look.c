/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pages of models and vmodels for people. Each page looks at no more names than its limit, all
 * pages together show each name once, and a prefix selects. A model is shown with the copies that
 * count and with this node's own state. A model without a copy comes with the text that a call of
 * it gets now, which a real call confirms.
 */
#include "mesh_rig.h"

enum { SHOWN_MAX = 20 };

struct shown {
    char ids[SHOWN_MAX][TEXT];
    uint32_t count;
    struct mesh_status status; /* of the last; without its places */
    enum mesh_state here;
    enum mesh_vmodel_state vmodel;
    char path[TEXT];
    char refusal[sizeof(answer_text)];
};

static struct shown shown;

static void
see_model(void *context, const struct mesh_sight *sight)
{
    assert_ptr_equal(context, &shown);
    set_text(shown.ids[shown.count++], sight->model.id);
    shown.status = sight->status;
    shown.here = sight->here;
    set_text(shown.path, sight->model.path);
    snprintf(shown.refusal, sizeof(shown.refusal), "%s",
             sight->status.error == NULL ? "" : sight->status.error);
}

static void
see_vmodel(void *context, const char *id, const struct mesh_vmodel_status *status)
{
    assert_ptr_equal(context, &shown);
    set_text(shown.ids[shown.count++], id);
    shown.vmodel = status->state;
}

static bool
was_shown(const char *id)
{
    uint32_t times = 0;
    for (uint32_t i = 0; i < shown.count; i++)
        times += strcmp(shown.ids[i], id) == 0;
    assert_true(times <= 1);
    return times == 1;
}

static void
forget(void)
{
    shown = (struct shown){.count = 0};
}

TEST_CASE(test_pages_of_models)
{
    assert_int_equal(outcome(REGISTER("ma", "t")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(REGISTER("mb", "t")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(REGISTER("n", "t")), MESH_OUTCOME_OK);
    uint32_t all = mesh_population(mesh).models;
    assert_true(all >= 5);
    for (uint32_t page = 1; page <= all + 1; page++) {
        uint32_t at = 0;
        uint32_t turns = 0;
        forget();
        do {
            uint32_t before = shown.count;
            at = mesh_see_models(mesh, at, page, "", see_model, &shown);
            assert_true(shown.count - before <= page);
            turns++;
        } while (at != 0);
        assert_int_equal(shown.count, all);
        assert_true(turns <= all / page + 1);
        assert_true(was_shown("ma") && was_shown("mb") && was_shown("n"));
    }
    forget();
    assert_int_equal(mesh_see_models(mesh, 0, 100, "m", see_model, &shown), 0);
    assert_int_equal(shown.count, 2);
    assert_int_not_equal(mesh_see_models(mesh, 0, 1, "nobody", see_model, &shown), 0);
    assert_int_equal(shown.count, 2); /* one name was looked at, and not shown */
    assert_int_equal(mesh_see_models(mesh, UINT32_MAX, 100, "", see_model, &shown), 0);
}

TEST_CASE(test_status_counts_living_copies)
{
    instance("x", 100);
    add_place("a", "x", MESH_PLACE_LOADED);
    add_place("a", "dead", MESH_PLACE_LOADED);
    forget();
    assert_true(mesh_see_model(mesh, "a", see_model, &shown));
    assert_int_equal(shown.status.state, MESH_MODEL_LOADED);
    assert_int_equal(shown.status.place_count, 1);
    assert_int_equal(shown.here, MESH_STATE_NONE);
    assert_false(mesh_see_model(mesh, "nobody", see_model, &shown));
    assert_int_equal(mesh_see_copies(mesh, 0, 100, see_model, &shown), 0);
    assert_int_equal(shown.count, 1); /* this node has none */
}

TEST_CASE(test_copies_of_this_node)
{
    prompt = true;
    const struct mesh_order ensures = {.kind = MESH_ENSURE_LOADED, .model = "a"};
    assert_int_equal(outcome(ensures), MESH_OUTCOME_OK);
    forget();
    assert_int_equal(mesh_see_copies(mesh, 0, 100, see_model, &shown), 0);
    assert_int_equal(shown.count, 1);
    assert_true(was_shown("a"));
    assert_int_equal(shown.here, MESH_STATE_LOADED);
    prompt = false; /* its unload is never answered: the record goes first */
    assert_int_equal(outcome((struct mesh_order){.kind = MESH_UNREGISTER, .model = "a"}),
                     MESH_OUTCOME_OK);
    forget();
    assert_int_equal(mesh_see_copies(mesh, 0, 100, see_model, &shown), 0);
    assert_true(was_shown("a"));
    assert_string_equal(shown.path, "");
    assert_int_equal(shown.here, MESH_STATE_UNLOADING);
    assert_false(mesh_see_model(mesh, "a", see_model, &shown));
}

/* The reason in the model's view; "": a node would load it. */
static const char *
refusal_of(const char *id)
{
    forget();
    assert_true(mesh_explain_model(mesh, id, see_model, &shown));
    return shown.refusal;
}

/* A call of the model fails at once, with the text of the view. */
static void
check_call_confirms(const char *id, const char *text)
{
    assert_memory_equal(refusal_of(id), text, strlen(text));
    char told[sizeof(shown.refusal)];
    snprintf(told, sizeof(told), "%s", shown.refusal);
    begin();
    call_as(0, id, MESH_HOP_ENTRY);
    assert_int_equal(
        seen("answer 0 failed") + seen("answer 0 load-failed") + seen("answer 0 unavailable"), 1);
    assert_string_equal(answer_text, told);
}

TEST_CASE(test_refusal_for_labels)
{
    static const char *const label[] = {"x"};
    const struct mesh_type_rule rule = {.type = "t", .required = label, .required_count = 1};
    assert_string_equal(refusal_of("a"), "");
    step((struct mesh_event){.kind = MESH_TYPES, .types = {.rules = &rule, .rule_count = 1}});
    check_call_confirms("a", "There are no running instances that meet the label requirements of "
                             "type t: [x]");
    instance_with((struct mesh_instance){
        .id = "x",
        .labels = "x",
        .figures = {.capacity_units = 1000, .free_units = 1000, .oldest_ms = WALL}});
    assert_string_equal(refusal_of("a"), "");
}

TEST_CASE(test_refusal_for_size)
{
    runtime(10); /* a model counts as 100 until it is loaded */
    check_call_confirms("a", "Nowhere available to load: the model is larger than any node");
}

TEST_CASE(test_refusal_for_failures)
{
    add_place("a", "self", MESH_PLACE_FAILED);
    check_call_confirms("a", "broken"); /* all nodes have failed to load it */
    instance("other", 900);
    assert_string_equal(refusal_of("a"), "");
    add_place("a", "gone", MESH_PLACE_FAILED);
    add_place("a", "gone too", MESH_PLACE_FAILED);
    check_call_confirms("a", "broken"); /* three failures are enough (R5) */
}

TEST_CASE(test_refusal_for_a_drain)
{
    step((struct mesh_event){.kind = MESH_DRAIN});
    check_call_confirms("a", "Nowhere available to load: the nodes that may load the model are "
                             "draining");
}

/* A call would wait for room; this is the text with which it ends. */
TEST_CASE(test_refusal_for_room)
{
    runtime(250);
    prompt = false; /* nothing that is being loaded goes */
    call_as(1, "a", MESH_HOP_ENTRY);
    call_as(2, "b", MESH_HOP_ENTRY);
    assert_string_equal(refusal_of("a"), ""); /* it is being loaded */
    begin();
    call_as(3, "c", MESH_HOP_ENTRY);
    assert_seen("answer 3", 0);
    assert_memory_equal(refusal_of("c"), "Cache churn", 11);
    char told[sizeof(shown.refusal)];
    snprintf(told, sizeof(told), "%s", shown.refusal);
    for (int second = 0; second < 60 && seen("answer 3 full") == 0; second++)
        tick(1000);
    assert_string_equal(answer_text, told);
}

TEST_CASE(test_no_refusal_for_lists_and_copies)
{
    runtime(10);
    add_place("b", "x", MESH_PLACE_LOADED);
    instance("x", 100);
    assert_string_equal(refusal_of("b"), ""); /* it has a copy */
    forget();
    assert_true(mesh_see_model(mesh, "a", see_model, &shown));
    assert_string_equal(shown.refusal, "");
    assert_false(mesh_explain_model(mesh, "nobody", see_model, &shown));
}

TEST_CASE(test_pages_of_vmodels)
{
    assert_int_equal(outcome(SET("va", "a")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(SET("w", "b")), MESH_OUTCOME_OK);
    forget();
    uint32_t next = mesh_see_vmodels(mesh, 0, 1, "", see_vmodel, &shown);
    assert_int_equal(shown.count, 1);
    assert_int_not_equal(next, 0);
    assert_int_equal(mesh_see_vmodels(mesh, next, 100, "", see_vmodel, &shown), 0);
    assert_true(was_shown("va") && was_shown("w"));
    forget();
    assert_int_equal(mesh_see_vmodels(mesh, 0, 100, "v", see_vmodel, &shown), 0);
    assert_int_equal(shown.count, 1);
    assert_true(was_shown("va"));
    assert_int_equal(shown.vmodel, MESH_VMODEL_DEFINED);
}

TEST_MAIN(.setup = fresh_with_models, .teardown = drop)
