/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/protocol/oip_json_walk.h"

#include <string.h>

char
json_walk_next(struct json_walk *walk)
{
    while (walk->at < walk->end && strchr(" \t\r\n", *walk->at) != NULL && *walk->at != '\0')
        walk->at++;
    return walk->at < walk->end ? *walk->at : '\0';
}

bool
json_walk_skip_value(struct json_walk *walk)
{
    char first = json_walk_next(walk);
    const char *at = walk->at;
    if (first == '[' || first == '{' || first == '"') {
        at = json_run_end(at, walk->end);
    } else {
        while (at < walk->end && strchr(",]} \t\r\n", *at) == NULL)
            at++;
        at = at > walk->at ? at : NULL;
    }
    walk->at = at != NULL ? at : walk->end;
    return at != NULL;
}

bool
json_walk_goes_on(struct json_walk *walk, char close)
{
    char character = json_walk_next(walk);
    if (character == ',' || character == close)
        walk->at++;
    else
        walk->is_broken = true;
    return character == ',';
}

bool
json_walk_member(struct json_walk *walk, struct json_run *key, struct json_run *value)
{
    key->text = json_walk_next(walk) == '"' ? walk->at : NULL;
    if (key->text == NULL || !json_walk_skip_value(walk))
        return false;
    key->bytes = (size_t)(walk->at - key->text);
    if (json_walk_next(walk) != ':')
        return false;
    walk->at++;
    (void)json_walk_next(walk);
    value->text = walk->at;
    if (!json_walk_skip_value(walk))
        return false;
    value->bytes = (size_t)(walk->at - value->text);
    return true;
}

uint64_t
json_walk_count(const struct json_run *run, struct json_run *first)
{
    struct json_walk walk = {.at = run->text + 1, .end = run->text + run->bytes};
    uint64_t count = 0;
    *first = (struct json_run){run->text, 0};
    if (json_walk_next(&walk) == ']')
        return 0;
    do {
        (void)json_walk_next(&walk);
        const char *start = walk.at;
        if (!json_walk_skip_value(&walk))
            break;
        if (count == 0)
            *first = (struct json_run){start, (size_t)(walk.at - start)};
        count++;
    } while (json_walk_goes_on(&walk, ']'));
    return count;
}
