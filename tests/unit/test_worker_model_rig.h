/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A coordinator by hand that loads and unloads models: orders to one worker of test_worker_rig.h,
 * and its answers, for the modelet `cache` (tests/modelets/model cache.h) or any other. Each order
 * has one answer, which is validated as the coordinator does it.
 */
#pragma once

#include "test_worker_rig.h"

#include <sys/stat.h>

#include "../modelets/shelf.h"

/* An order to load the model `number`, called "m<number>", at `path` (NULL: the root). */
static inline struct handshake_model
rig_order(const struct rig *rig, enum handshake_model_event event, uint32_t number,
          const char *path, const char *key)
{
    struct handshake_model order = {
        .header = {HANDSHAKE_VERSION, HANDSHAKE_MODEL, sizeof(order), 0},
        .event = event,
        .number = number,
        .life = 1,
    };
    snprintf(order.id, sizeof(order.id), "m%u", number);
    snprintf(order.path, sizeof(order.path), "%s", path != NULL ? path : rig->directory);
    snprintf(order.key, sizeof(order.key), "%s", key);
    return order;
}

static inline void
rig_notify(struct rig *rig, uint32_t index, const struct handshake_model *order)
{
    struct error error = ERROR_NONE;
    struct shm_worker *entry = region_worker(&rig->region, 0, index);
    if (handshake_send(rig->workers[0][index].models, order, sizeof(*order), &error) != STATUS_OK)
        fail_msg("order: %s", error.text);
    atomic_fetch_add(&entry->models_reported, 1);
    doorbell_ring(&entry->bell);
}

static inline const struct handshake_model_said *
rig_receive_said(struct rig *rig, uint32_t index)
{
    static struct handshake_model_said said;
    struct error error = ERROR_NONE;
    if (handshake_receive(rig->workers[0][index].models, &said, sizeof(said), &error) !=
            STATUS_OK ||
        handshake_model_said_validate(&said, &error) != STATUS_OK)
        fail_msg("no word of a model: %s", error.text);
    return &said;
}

static inline const struct handshake_model_said *
rig_order_and_receive(struct rig *rig, uint32_t index, const struct handshake_model *order)
{
    rig_notify(rig, index, order);
    const struct handshake_model_said *said = rig_receive_said(rig, index);
    assert_int_equal(said->number, order->number);
    assert_int_equal(said->life, order->life);
    return said;
}

static inline const struct handshake_model_said *
rig_load(struct rig *rig, uint32_t number, const char *path, const char *key)
{
    const struct handshake_model order = rig_order(rig, MODEL_LOAD, number, path, key);
    const struct handshake_model_said *said = rig_order_and_receive(rig, 0, &order);
    if (said->event != MODEL_LOADED)
        fail_msg("m%u: %s", number, said->text);
    return said;
}

static inline void
rig_load_fails(struct rig *rig, uint32_t number, const char *path, const char *key,
               enum status status, const char *words)
{
    const struct handshake_model order = rig_order(rig, MODEL_LOAD, number, path, key);
    const struct handshake_model_said *said = rig_order_and_receive(rig, 0, &order);
    assert_int_equal(said->event, MODEL_FAILED);
    assert_int_equal(said->status, status);
    if (strstr(said->text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", said->text, words);
}

static inline const struct handshake_model_said *
rig_unload(struct rig *rig, uint32_t number)
{
    const struct handshake_model order = rig_order(rig, MODEL_UNLOAD, number, NULL, "");
    const struct handshake_model_said *said = rig_order_and_receive(rig, 0, &order);
    assert_int_equal(said->event, MODEL_UNLOADED);
    return said;
}

static inline struct rig_request
rig_ask(enum probe_command command, int64_t argument, uint32_t number)
{
    return (struct rig_request){
        .command = command, .argument = argument, .tag = number, .model = model_word(number, 1)};
}

/* It is run with this model. */
static inline struct rig_outcome
rig_runs(struct rig *rig, uint32_t number)
{
    struct rig_outcome outcome = rig_call(rig, rig_ask(PROBE_ECHO, 0, number));
    if (outcome.status != STATUS_OK)
        fail_msg("m%u: %d: %s", number, (int)outcome.status, outcome.text);
    assert_int_equal(outcome.words[PROBE_MODEL], number);
    return outcome;
}

/* It comes back as it went. */
static inline void
rig_runs_not(struct rig *rig, uint32_t number)
{
    struct rig_outcome outcome = rig_call(rig, rig_ask(PROBE_ECHO, 0, number));
    assert_int_equal(outcome.status, SLOT_NOT_HELD);
    assert_int_equal(outcome.failed_place, 0);
}

static inline struct rig *
rig_start_models(struct rig_stage stage)
{
    static char root[64];
    struct rig *rig = rig_open(&stage, 1);
    snprintf(root, sizeof(root), "%s", rig->directory);
    rig->stages[0].models_root = root;
    static union rig_reply reply;
    for (uint32_t k = 0; k < rig_worker_count(rig, 0); k++) {
        rig_spawn(rig, 0, k, &reply);
        if (reply.header.type != HANDSHAKE_READY)
            fail_msg("worker refused: %s", reply.failed.text);
    }
    return rig;
}

/* A file in the rig's folder; rig_forget removes it. */
static inline const char *
rig_file(const struct rig *rig, const char *name)
{
    static char paths[4][128];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", rig->directory, name);
    return path;
}

static inline const char *
rig_write_file(const struct rig *rig, const char *name, const void *bytes, size_t size)
{
    const char *path = rig_file(rig, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), (ssize_t)size);
    close(fd);
    return path;
}
