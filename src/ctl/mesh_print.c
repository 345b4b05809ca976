/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/mesh_print.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "ctl/figure.h"

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
    json_open(json, '{');
    json_field_string(json, "id", id);
    json_field_string(json, "status", model_word((int)info->status, room));
    json_field_open(json, "errors", '[');
    for (size_t i = 0; i < info->n_errors; i++)
        json_put_string(json, info->errors[i]);
    json_close(json, ']');
    json_field_open(json, "copies", '[');
    for (size_t i = 0; i < info->n_modelcopyinfos; i++) {
        const Mmesh__ModelStatusInfo__ModelCopyInfo *copy = info->modelcopyinfos[i];
        json_open(json, '{');
        json_field_string(json, "node", copy->location);
        json_field_string(json, "status", model_word((int)copy->copystatus, room));
        json_field_uint(json, "since_ms", copy->time);
        json_close(json, '}');
    }
    json_close(json, ']');
    json_close(json, '}');
}

static void
vmodel_json(struct json *json, const char *id, const Mmesh__VModelStatusInfo *info)
{
    char room[WORD_ROOM];
    json_open(json, '{');
    json_field_string(json, "id", id);
    json_field_string(json, "status", vmodel_word((int)info->status, room));
    json_field_string(json, "owner", info->owner);
    json_field_string(json, "active", info->activemodelid);
    json_field_string(json, "target", info->targetmodelid);
    if (info->activemodelstatus != NULL) {
        json_name(json, "active_model");
        model_json(json, info->activemodelid, info->activemodelstatus);
    }
    if (info->targetmodelstatus != NULL) {
        json_name(json, "target_model");
        model_json(json, info->targetmodelid, info->targetmodelstatus);
    }
    json_close(json, '}');
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
mesh_print_model(const char *id, const Mmesh__ModelStatusInfo *info, enum ctl_output output)
{
    struct bytes line = {0};
    struct json json = json_begin(&line, JSON_STYLE_SPACED);
    if (output == CTL_TEXT) {
        model_text(id, info, "");
        return;
    }
    model_json(&json, id, info);
    ctl_print_line(&line, stdout);
}

void
mesh_print_vmodel(const char *id, const Mmesh__VModelStatusInfo *info, enum ctl_output output)
{
    struct bytes line = {0};
    struct json json = json_begin(&line, JSON_STYLE_SPACED);
    char room[WORD_ROOM];
    if (output == CTL_JSON) {
        vmodel_json(&json, id, info);
        ctl_print_line(&line, stdout);
        return;
    }
    printf("%s: %s", id, vmodel_word((int)info->status, room));
    if (info->activemodelid[0] != '\0')
        printf(", answered by %s", info->activemodelid);
    if (info->targetmodelid[0] != '\0' && strcmp(info->targetmodelid, info->activemodelid) != 0)
        printf(", switching to %s", info->targetmodelid);
    if (info->owner[0] != '\0')
        printf(", owned by %s", info->owner);
    putchar('\n');
    if (info->activemodelstatus != NULL)
        model_text(info->activemodelid, info->activemodelstatus, "  ");
    if (info->targetmodelstatus != NULL)
        model_text(info->targetmodelid, info->targetmodelstatus, "  ");
}
