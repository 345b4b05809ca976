/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/mesh_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "ctl/figure.h"
#include "ctl/json.h"

enum { WORD_ROOM = 32 };

static const char *
word_of(int number, const char *const *words, int count, char room[WORD_ROOM])
{
    if (number >= 0 && number < count && words[number] != NULL)
        return words[number];
    snprintf(room, WORD_ROOM, "status %d", number);
    return room;
}

static const char *
model_word(int status, char room[WORD_ROOM])
{
    static const char *const words[] = {"NOT_FOUND", "NOT_LOADED",     "LOADING",
                                        "LOADED",    "LOADING_FAILED", "UNKNOWN"};
    return word_of(status, words, ARRAY_COUNT(words), room);
}

static const char *
vmodel_word(int status, char room[WORD_ROOM])
{
    static const char *const words[] = {"NOT_FOUND",         "DEFINED", "TRANSITIONING",
                                        "TRANSITION_FAILED", NULL,      "UNKNOWN"};
    return word_of(status, words, ARRAY_COUNT(words), room);
}

bool
mesh_model_is_good(const Mmesh__ModelStatusInfo *info)
{
    return info->status != MMESH__MODEL_STATUS_INFO__MODEL_STATUS__NOT_FOUND &&
           info->status != MMESH__MODEL_STATUS_INFO__MODEL_STATUS__LOADING_FAILED;
}

bool
mesh_vmodel_is_good(const Mmesh__VModelStatusInfo *info)
{
    return info->status != MMESH__VMODEL_STATUS_INFO__VMODEL_STATUS__NOT_FOUND &&
           info->status != MMESH__VMODEL_STATUS_INFO__VMODEL_STATUS__TRANSITION_FAILED;
}

/* ---- JSON ---- */

static void
model_json(struct json *json, const char *id, const Mmesh__ModelStatusInfo *info)
{
    char room[WORD_ROOM];
    json_object_begin(json);
    json_field_string(json, "id", id);
    json_field_string(json, "status", model_word((int)info->status, room));
    json_key(json, "errors");
    json_array_begin(json);
    for (size_t i = 0; i < info->n_errors; i++)
        json_text(json, info->errors[i], strlen(info->errors[i]));
    json_array_end(json);
    json_key(json, "copies");
    json_array_begin(json);
    for (size_t i = 0; i < info->n_modelcopyinfos; i++) {
        const Mmesh__ModelStatusInfo__ModelCopyInfo *copy = info->modelcopyinfos[i];
        json_object_begin(json);
        json_field_string(json, "node", copy->location);
        json_field_string(json, "status", model_word((int)copy->copystatus, room));
        json_field_uint(json, "since_ms", copy->time);
        json_object_end(json);
    }
    json_array_end(json);
    json_object_end(json);
}

static void
vmodel_json(struct json *json, const char *id, const Mmesh__VModelStatusInfo *info)
{
    char room[WORD_ROOM];
    json_object_begin(json);
    json_field_string(json, "id", id);
    json_field_string(json, "status", vmodel_word((int)info->status, room));
    json_field_string(json, "owner", info->owner);
    json_field_string(json, "active", info->activemodelid);
    json_field_string(json, "target", info->targetmodelid);
    if (info->activemodelstatus != NULL) {
        json_key(json, "active_model");
        model_json(json, info->activemodelid, info->activemodelstatus);
    }
    if (info->targetmodelstatus != NULL) {
        json_key(json, "target_model");
        model_json(json, info->targetmodelid, info->targetmodelstatus);
    }
    json_object_end(json);
}

/* ---- text ---- */

static void
model_text(const char *id, const Mmesh__ModelStatusInfo *info, const char *indent)
{
    char room[WORD_ROOM], time[FIGURE_ROOM];
    printf("%s%s: %s\n", indent, id, model_word((int)info->status, room));
    for (size_t i = 0; i < info->n_modelcopyinfos; i++) {
        const Mmesh__ModelStatusInfo__ModelCopyInfo *copy = info->modelcopyinfos[i];
        bool sane = copy->time <= (uint64_t)(INT64_MAX / NS_PER_MS);
        figure_time(time, sane ? (int64_t)copy->time * NS_PER_MS : 0);
        printf("%s  at %s: %s since %s\n", indent, copy->location,
               model_word((int)copy->copystatus, room), time);
    }
    for (size_t i = 0; i < info->n_errors; i++)
        printf("%s  error: %s\n", indent, info->errors[i]);
}

void
mesh_print_model(const char *id, const Mmesh__ModelStatusInfo *info, bool as_json)
{
    struct json json;
    if (!as_json) {
        model_text(id, info, "");
        return;
    }
    json_init(&json, stdout);
    model_json(&json, id, info);
    putchar('\n');
}

void
mesh_print_vmodel(const char *id, const Mmesh__VModelStatusInfo *info, bool as_json)
{
    char room[WORD_ROOM];
    if (as_json) {
        struct json json;
        json_init(&json, stdout);
        vmodel_json(&json, id, info);
        putchar('\n');
        return;
    }
    printf("%s: %s", id, vmodel_word((int)info->status, room));
    if (info->activemodelid[0] != '\0')
        printf(", answered by %s", info->activemodelid);
    if (info->targetmodelid[0] != '\0' && strcmp(info->targetmodelid, info->activemodelid) != 0)
        printf(", goes over to %s", info->targetmodelid);
    if (info->owner[0] != '\0')
        printf(", owned by %s", info->owner);
    putchar('\n');
    if (info->activemodelstatus != NULL)
        model_text(info->activemodelid, info->activemodelstatus, "  ");
    if (info->targetmodelstatus != NULL)
        model_text(info->targetmodelid, info->targetmodelstatus, "  ");
}
