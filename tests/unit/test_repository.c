/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of models as callers get them, from a real registry on a real loop: however many models
 * there are, the loop turns between parts of a list, so that it goes on supervising. A list has
 * each model once, in order, and a model that is there all the time is in it. The number of calls
 * that wait is limited and counted. A node that stops refuses them, and those that load a model.
 */
#include "test_catalog_rig.h"

#include "coordinator/front/repository.h"
#include "wire/wire.h"

enum { MODELS = 3000, NAMES_MAX = MODELS + 8, WAITING_MAX = 2 };

/* A call of a front, and what it was answered. */
struct asked {
    struct rig *rig;
    struct repository *repository;
    struct triton_request request;
    void (*between)(struct asked *asked); /* after the first part; may be NULL */
    uint32_t turns;                       /* of the loop, until the answer */
    uint32_t answers;
    enum status status;
    char text[ERROR_TEXT_MAX];
    uint32_t retry_ms;
    uint32_t count;
    char names[NAMES_MAX][16];
};

static bool
metadata(const void *call, const char *key, size_t *position, struct wire_span *value)
{
    (void)call, (void)key, (void)position, (void)value;
    return false;
}

static void
end(struct asked *asked, enum status status)
{
    pthread_mutex_lock(&asked->rig->lock);
    asked->status = status;
    if (asked->answers++ > 0)
        abort(); /* twice */
    pthread_cond_broadcast(&asked->rig->changed);
    pthread_mutex_unlock(&asked->rig->lock);
}

/* Every row of a list has the model's name in its first field. */
static void
answer(void *call, const struct rpc_answer *answer)
{
    struct asked *asked = call;
    const struct rpc_piece *piece = &answer->pieces[0];
    const struct wire_span span = {piece->data, piece->bytes};
    const struct wire_message message = {&span, 1, span.bytes};
    struct wire_cursor rows = wire_begin(&message);
    struct wire_field row;
    while (wire_next(&rows, &row) == WIRE_FIELD && asked->count < NAMES_MAX) {
        struct wire_field name;
        if (wire_next(&row.data, &name) != WIRE_FIELD || name.data.left >= sizeof(asked->names[0]))
            abort();
        wire_read(&name.data, asked->names[asked->count++], (size_t)name.data.left);
    }
    if (piece->release != NULL)
        piece->release(piece->release_context);
    end(asked, answer->status);
}

static void
refuse(void *call, enum status status, const char *text, uint32_t retry_ms)
{
    struct asked *asked = call;
    snprintf(asked->text, sizeof(asked->text), "%s", text);
    asked->retry_ms = retry_ms;
    end(asked, status);
}

static const struct inbound_type type = {.metadata = metadata, .answer = answer, .refuse = refuse};

/* Others' work on the loop: as often as it runs, the loop has turned. */
static void
turn(void *context)
{
    struct asked *asked = context;
    if (asked->answers > 0)
        return;
    if (asked->turns++ == 0 && asked->between != NULL)
        asked->between(asked);
    loop_post(asked->rig->loop, turn, asked);
}

static void
take(void *context)
{
    struct asked *asked = context;
    const struct inbound inbound = {.type = &type, .call = asked};
    repository_take(asked->repository, &inbound, &asked->request);
    loop_post(asked->rig->loop, turn, asked);
}

static void
wait_answer(struct asked *asked)
{
    pthread_mutex_lock(&asked->rig->lock);
    wait_for(asked->rig, &asked->answers, 1);
    pthread_mutex_unlock(&asked->rig->lock);
}

/* ---- the rig ---- */

static struct repository *repository;
static struct model_directories *no_directories;

static void
list_models(struct pipeline *pipeline, struct lane *lane)
{
    (void)lane;
    for (uint32_t i = 0; i < MODELS; i++) {
        char id[16];
        struct error error = ERROR_NONE;
        snprintf(id, sizeof(id), "n%05u", (i * 7919) % MODELS); /* in any order */
        const struct model_spec spec = {.id = id, .path = "m1", .key = ""};
        if (models_list(pipeline->catalog, &spec, 0, &error) != STATUS_OK)
            abort();
    }
}

static int
set_up_models(void **state)
{
    int result = set_up(state);
    struct rig *rig = *state;
    repository = repository_create(&(struct repository_options){
        .loop = rig->loop,
        .pipelines = rig->assembly.pipelines,
        .pipeline_count = rig->assembly.pipeline_count,
        .registry = rig->assembly.registry,
        .rule = REPOSITORY_OPEN,
        .directories = &no_directories,
        .waiting_max = WAITING_MAX,
        .counters = &rig->assembly.counters,
    });
    on_loop(rig, list_models);
    return result;
}

static void
stop_repository(struct pipeline *pipeline, struct lane *lane)
{
    (void)pipeline, (void)lane;
    repository_stop(repository);
}

static int
tear_down_models(void **state)
{
    struct rig *rig = *state;
    on_loop(rig, stop_repository);
    on_loop(rig, stop_repository); /* what was posted before has run */
    repository_destroy(repository);
    return catalog_tear_down(state);
}

static struct asked *
asked_create(struct rig *rig, enum triton_method method)
{
    struct asked *asked = calloc(1, sizeof(*asked));
    assert_non_null(asked);
    asked->rig = rig;
    asked->repository = repository;
    asked->request.method = method;
    return asked;
}

static void
run(struct asked *asked)
{
    loop_post(asked->rig->loop, take, asked);
    wait_answer(asked);
}

static void
assert_sorted(const struct asked *asked, uint32_t wanted)
{
    assert_int_equal(asked->status, STATUS_OK);
    assert_int_equal(asked->count, wanted);
    for (uint32_t i = 1; i < asked->count; i++)
        assert_true(strcmp(asked->names[i - 1], asked->names[i]) < 0);
}

/* Joins the loop's last look at the call before its memory goes. */
static void
nothing(struct pipeline *pipeline, struct lane *lane)
{
    (void)pipeline, (void)lane;
}

static void
asked_destroy(struct asked *asked)
{
    on_loop(asked->rig, nothing);
    free(asked);
}

/* ---- tests ---- */

TEST_CASE(test_the_loop_turns_between_parts)
{
    static const enum triton_method methods[] = {TRITON_INDEX, TRITON_STATISTICS};
    for (size_t i = 0; i < ARRAY_COUNT(methods); i++) {
        struct asked *asked = asked_create(*state, methods[i]);
        run(asked);
        assert_sorted(asked, MODELS);
        assert_string_equal(asked->names[0], "n00000");
        assert_true(asked->turns >= MODELS / MODELS_A_TURN);
        asked_destroy(asked);
    }
}

static void
come_and_go(struct asked *asked)
{
    struct catalog *catalog = the_pipeline(asked->rig)->catalog;
    const struct model_spec passed = {.id = "n00000a", .path = "m1", .key = ""};
    const struct model_spec coming = {.id = "n02999a", .path = "m1", .key = ""};
    struct error error = ERROR_NONE;
    if (!models_unlist(catalog, "n00001") || !models_unlist(catalog, "n02000") ||
        models_list(catalog, &passed, 0, &error) != STATUS_OK ||
        models_list(catalog, &coming, 0, &error) != STATUS_OK)
        abort();
}

TEST_CASE(test_models_come_and_go_meanwhile)
{
    struct asked *asked = asked_create(*state, TRITON_INDEX);
    asked->between = come_and_go;
    run(asked);
    assert_sorted(asked, MODELS);
    assert_string_equal(asked->names[1], "n00001");    /* it was there when it was written */
    assert_string_equal(asked->names[2], "n00002");    /* not n00000a */
    assert_string_equal(asked->names[2000], "n02001"); /* n02000 was gone */
    assert_string_equal(asked->names[MODELS - 1], "n02999a");
    asked_destroy(asked);
}

TEST_CASE(test_a_page_and_a_name_cost_their_rows)
{
    struct asked *page = asked_create(*state, TRITON_INDEX);
    snprintf(page->request.after, sizeof(page->request.after), "n01499");
    page->request.limit = 5;
    run(page);
    assert_sorted(page, 5);
    assert_string_equal(page->names[0], "n01500");
    assert_true(page->turns <= 2);
    asked_destroy(page);
    struct asked *one = asked_create(*state, TRITON_STATISTICS);
    snprintf(one->request.name, sizeof(one->request.name), "n02500");
    run(one);
    assert_sorted(one, 1);
    assert_true(one->turns <= 2);
    asked_destroy(one);
    struct asked *none = asked_create(*state, TRITON_STATISTICS);
    snprintf(none->request.name, sizeof(none->request.name), "n0250");
    run(none);
    assert_int_equal(none->status, STATUS_NOT_FOUND);
    asked_destroy(none);
}

/* In one turn, so that none is answered before the last has come. */
static void
take_one_too_many(void *context)
{
    struct asked *const *asked = context;
    for (size_t i = 0; i <= WAITING_MAX; i++)
        take(asked[i]);
}

TEST_CASE(test_as_many_wait_as_may)
{
    struct rig *rig = *state;
    _Atomic uint64_t *counters = counters_values(&rig->assembly.counters, 0);
    struct asked *asked[WAITING_MAX + 1];
    for (size_t i = 0; i < ARRAY_COUNT(asked); i++)
        asked[i] = asked_create(rig, TRITON_INDEX);
    loop_post(rig->loop, take_one_too_many, asked);
    for (size_t i = 0; i < ARRAY_COUNT(asked); i++)
        wait_answer(asked[i]);
    assert_sorted(asked[0], MODELS);
    assert_sorted(asked[1], MODELS);
    assert_int_equal(asked[WAITING_MAX]->status, STATUS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(asked[WAITING_MAX]->text, "repository_waiting"));
    assert_true(asked[WAITING_MAX]->retry_ms > 0);
    assert_int_equal(counter_get(counters, NODE_REPOSITORY_REFUSED), 1);
    for (size_t i = 0; i < ARRAY_COUNT(asked); i++)
        asked_destroy(asked[i]);
}

static void
stop_between(struct asked *asked)
{
    repository_stop(asked->repository);
}

TEST_CASE(test_the_node_stops_in_the_middle)
{
    struct asked *asked = asked_create(*state, TRITON_INDEX);
    asked->between = stop_between;
    run(asked);
    assert_int_equal(asked->status, STATUS_UNAVAILABLE);
    struct asked *later = asked_create(*state, TRITON_INDEX);
    run(later);
    assert_int_equal(later->status, STATUS_UNAVAILABLE);
    asked_destroy(asked);
    asked_destroy(later);
}

static const char *gate_key;

static void
list_gated(struct pipeline *pipeline, struct lane *lane)
{
    struct error error = ERROR_NONE;
    const struct model_spec spec = {.id = "gated", .path = "m1", .key = gate_key};
    (void)lane;
    if (models_list(pipeline->catalog, &spec, 0, &error) != STATUS_OK)
        abort();
}

/* Its caller is refused at once; the load ends later. */
TEST_CASE(test_the_node_stops_during_a_load)
{
    struct rig *rig = *state;
    struct asked *asked = asked_create(rig, TRITON_LOAD);
    gate_key = gated(rig, "");
    on_loop(rig, list_gated);
    snprintf(asked->request.name, sizeof(asked->request.name), "gated");
    loop_post(rig->loop, take, asked);
    wait_state(rig, "gated", MODEL_IS_LOADING);
    on_loop(rig, stop_repository);
    assert_int_equal(asked->answers, 1);
    assert_int_equal(asked->status, STATUS_UNAVAILABLE);
    rig_file(rig, "gate");
    wait_state(rig, "gated", MODEL_IS_LOADED);
    asked_destroy(asked);
}

TEST_MAIN(.setup = set_up_models, .teardown = tear_down_models)
