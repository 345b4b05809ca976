/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The etcd of mesh_rig.h: records of models and vmodels, and transactions that compare revisions
 * and the session. Nothing here tells the core anything.
 */
#pragma once

#include <stdio.h>
#include <string.h>

#include "../test.h"
#include "mesh/core/mesh_core.h"

enum { TEXT = 24, MODELS = 150, VMODELS = 20, PLACES = 8 };

struct rig_place {
    char instance[TEXT];
    char reason[TEXT];
    int64_t since_ms;
    enum mesh_place_kind kind;
};

struct rig_model {
    char id[TEXT], type[TEXT], path[TEXT], key[TEXT];
    uint64_t create_revision, revision; /* 0: there is none */
    int64_t used_ms;
    uint32_t references;
    bool auto_delete;
    struct mesh_bounds bounds;
    struct rig_place places[PLACES];
    uint32_t place_count;
};

struct rig_vmodel {
    char id[TEXT], owner[TEXT], active[TEXT], target[TEXT];
    uint64_t create_revision, revision; /* 0: there is none */
    bool failed;
};

static uint64_t revision;
static uint64_t session; /* that transactions have to name */
static struct rig_model models[MODELS];
static struct rig_vmodel vmodels[VMODELS];

static inline void
set_text(char *to, const char *text)
{
    size_t length = text == NULL ? 0 : strlen(text);
    if (length >= TEXT) /* of a reason the beginning is enough */
        length = TEXT - 1;
    if (length > 0)
        memcpy(to, text, length);
    to[length] = 0;
}

static inline struct rig_model *
model_at(const char *id)
{
    struct rig_model *spare = NULL;
    for (int i = 0; i < MODELS; i++) {
        if (strcmp(models[i].id, id) == 0)
            return &models[i];
        if (spare == NULL && models[i].id[0] == '\0')
            spare = &models[i];
    }
    assert_non_null(spare);
    set_text(spare->id, id);
    return spare;
}

static inline struct rig_vmodel *
vmodel_at(const char *id)
{
    struct rig_vmodel *spare = NULL;
    for (int i = 0; i < VMODELS; i++) {
        if (strcmp(vmodels[i].id, id) == 0)
            return &vmodels[i];
        if (spare == NULL && vmodels[i].id[0] == '\0')
            spare = &vmodels[i];
    }
    assert_non_null(spare);
    set_text(spare->id, id);
    return spare;
}

static inline void
apply_model(const struct mesh_write *write)
{
    const struct mesh_model *given = &write->model;
    struct rig_model *model = model_at(given->id);
    uint64_t created = model->revision == 0 ? revision : model->create_revision;
    *model = (struct rig_model){.references = given->references};
    set_text(model->id, given->id);
    if (write->verb == MESH_VERB_DELETE) {
        model->references = 0;
        return;
    }
    set_text(model->type, given->type);
    set_text(model->path, given->path);
    set_text(model->key, given->key);
    model->create_revision = created;
    model->revision = revision;
    model->used_ms = given->used_ms;
    model->auto_delete = given->auto_delete;
    model->bounds = given->bounds;
    model->place_count = given->place_count;
    assert_true(given->place_count <= PLACES);
    for (uint32_t i = 0; i < given->place_count; i++) {
        set_text(model->places[i].instance, given->places[i].instance);
        set_text(model->places[i].reason, given->places[i].reason);
        model->places[i].since_ms = given->places[i].since_ms;
        model->places[i].kind = given->places[i].kind;
    }
}

static inline void
apply_vmodel(const struct mesh_write *write)
{
    const struct mesh_vmodel *given = &write->vmodel;
    struct rig_vmodel *vmodel = vmodel_at(given->id);
    uint64_t created = vmodel->revision == 0 ? revision : vmodel->create_revision;
    *vmodel = (struct rig_vmodel){.failed = given->failed};
    set_text(vmodel->id, given->id);
    if (write->verb == MESH_VERB_DELETE)
        return;
    set_text(vmodel->owner, given->owner);
    set_text(vmodel->active, given->active);
    set_text(vmodel->target, given->target);
    vmodel->create_revision = created;
    vmodel->revision = revision;
}

/* 0: there is no such record. */
static inline uint64_t
revision_of(const struct mesh_write *write)
{
    if (write->record == MESH_RECORD_VMODEL)
        return vmodel_at(write->vmodel.id)->revision;
    for (int i = 0; i < MODELS; i++)
        if (strcmp(models[i].id, write->model.id) == 0)
            return models[i].revision;
    return 0;
}

static inline const char *
id_of(const struct mesh_write *write)
{
    return write->record == MESH_RECORD_MODEL ? write->model.id : write->vmodel.id;
}

static inline bool
compares_hold(const struct mesh_txn *txn)
{
    bool hold = txn->session == session;
    for (uint32_t i = 0; i < txn->write_count; i++) {
        const struct mesh_write *write = &txn->writes[i];
        hold = hold && revision_of(write) == write->compare;
        for (uint32_t other = 0; other < i; other++) /* etcd takes each key once */
            assert_true(txn->writes[other].record != write->record ||
                        strcmp(id_of(&txn->writes[other]), id_of(write)) != 0);
    }
    return hold;
}

static inline void
apply(const struct mesh_txn *txn)
{
    revision++;
    for (uint32_t i = 0; i < txn->write_count; i++) {
        const struct mesh_write *write = &txn->writes[i];
        if (write->verb == MESH_VERB_COMPARE)
            continue;
        if (write->record == MESH_RECORD_MODEL)
            apply_model(write);
        else
            apply_vmodel(write);
    }
}

/* I14 */
static inline void
check_references(void)
{
    for (int m = 0; m < MODELS; m++) {
        uint32_t references = 0;
        for (int v = 0; v < VMODELS && models[m].id[0] != '\0'; v++)
            references +=
                vmodels[v].revision != 0 && (strcmp(vmodels[v].active, models[m].id) == 0 ||
                                             strcmp(vmodels[v].target, models[m].id) == 0);
        assert_int_equal(models[m].references, references);
        assert_true(models[m].revision != 0 || references == 0);
    }
}
