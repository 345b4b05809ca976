/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests of Triton's generate extension: {"text_input": "…", "parameters": {…}}. A member
 * that has the name of an input is that input: a value, or an array nested as its shape or less
 * deep, for shapes that begin with ones. Other members, and those of `parameters`, are parameters.
 */
#include "coordinator/protocol/oip_json_request.h"
#include "coordinator/protocol/oip_json_walk.h"

enum members_level { MEMBERS_OF_BODY, MEMBERS_OF_PARAMETERS };

struct members {
    struct json_reading *reading;
    bool seen[SHOAL_TENSORS_MAX]; /* inputs */
};

static enum status
no_object(const struct members *members)
{
    return REFUSE(members->reading, "the body is not valid JSON: it must be an object");
}

static uint32_t
depth_of(const struct json_run *value)
{
    struct json_run here = *value;
    uint32_t depth = 0;
    while (here.bytes > 0 && here.text[0] == '[' && depth <= SHOAL_RANK_MAX) {
        struct json_run first;
        (void)json_walk_count(&here, &first);
        here = first;
        depth++;
    }
    return depth;
}

static enum status
check_input(const struct members *members, const struct handshake_tensor *spec, uint32_t depth)
{
    const char *model = members->reading->ask->members_of->name;
    if (spec->datatype == SHOAL_DATATYPE_ANY || spec->rank == 0)
        return error_set(members->reading->error, STATUS_UNIMPLEMENTED,
                         "model \"%s\": input \"%s\" takes %s, which a member does not give: call "
                         "it by /v2/models/NAME/infer",
                         model, spec->name, spec->rank == 0 ? "no dimensions" : "any type");
    if (spec->rank != SHOAL_RANK_ANY && depth > spec->rank)
        return REFUSE(members->reading,
                      "tensor \"%s\": the value is nested deeper than the %u dimensions of the "
                      "model's input",
                      spec->name, spec->rank);
    return STATUS_OK;
}

static enum status
add_input(struct members *members, uint32_t index, const struct json_run *value)
{
    struct json_reading *reading = members->reading;
    const struct handshake_tensor *spec = &reading->ask->members_of->inputs[index];
    uint32_t depth = depth_of(value);
    uint32_t rank = spec->rank != SHOAL_RANK_ANY ? spec->rank : depth > 0 ? depth : 1;
    struct bytes text = {0};
    if (members->seen[index])
        return REFUSE(reading, "input \"%s\" twice", spec->name);
    members->seen[index] = true;
    enum status status = check_input(members, spec, depth);
    if (status != STATUS_OK)
        return status;
    for (uint32_t i = depth; i < rank; i++)
        bytes_put_char(&text, '[');
    bytes_put(&text, value->text, value->bytes);
    for (uint32_t i = depth; i < rank; i++)
        bytes_put_char(&text, ']');
    const struct json_run run = {text.data, text.used};
    if (text.failed)
        status =
            error_set(reading->error, STATUS_RESOURCE_EXHAUSTED, "no memory to decode the request");
    else
        status = oip_json_add_rows(reading, spec, &run);
    bytes_fini(&text);
    return status;
}

static enum status read_object(struct members *members, struct json_walk *walk,
                               enum members_level level);

static enum status
read_parameters(struct members *members, const struct json_run *value)
{
    struct json_walk walk = {.at = value->text, .end = value->text + value->bytes};
    if (value->text[0] != '{')
        return REFUSE(members->reading, "\"parameters\" must be an object");
    return read_object(members, &walk, MEMBERS_OF_PARAMETERS);
}

static enum status
read_member(struct members *members, enum members_level level, const struct json_run *key,
            const struct json_run *value)
{
    const struct oip_model_info *model = members->reading->ask->members_of;
    if (level == MEMBERS_OF_BODY && json_run_reads(key->text, key->bytes, "id"))
        return oip_json_read_id(members->reading, value);
    if (level == MEMBERS_OF_BODY && json_run_reads(key->text, key->bytes, "parameters"))
        return read_parameters(members, value);
    for (uint32_t i = 0; i < model->input_count; i++)
        if (json_run_reads(key->text, key->bytes, model->inputs[i].name))
            return add_input(members, i, value);
    return oip_json_read_parameter(members->reading, key, value);
}

/* The walk is at a '{'. */
static enum status
read_object(struct members *members, struct json_walk *walk, enum members_level level)
{
    walk->at++;
    if (json_walk_next(walk) == '}') {
        walk->at++;
        return STATUS_OK;
    }
    do {
        struct json_run key;
        struct json_run value;
        if (!json_walk_member(walk, &key, &value))
            return no_object(members);
        enum status status = read_member(members, level, &key, &value);
        if (status != STATUS_OK)
            return status;
    } while (json_walk_goes_on(walk, '}'));
    return walk->is_broken ? no_object(members) : STATUS_OK;
}

enum status
oip_json_read_members(struct json_reading *reading)
{
    const struct oip_json_ask *ask = reading->ask;
    struct members members = {.reading = reading};
    struct json_walk walk = {.at = ask->body, .end = ask->body + ask->json_bytes};
    if (ask->members_of->input_count == 0)
        return error_set(reading->error, STATUS_UNIMPLEMENTED,
                         "model \"%s\" does not declare its inputs, which generate needs: call it "
                         "by /v2/models/NAME/infer",
                         ask->members_of->name);
    if (reading->binary_bytes > 0)
        return REFUSE(reading, "%zu bytes after the JSON belong to no input",
                      reading->binary_bytes);
    if (json_walk_next(&walk) != '{')
        return REFUSE(reading, "the body must be a JSON object");
    enum status status = read_object(&members, &walk, MEMBERS_OF_BODY);
    (void)json_walk_next(&walk);
    return status == STATUS_OK && walk.at != walk.end ? no_object(&members) : status;
}
