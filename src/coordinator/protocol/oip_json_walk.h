/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays and objects of JSON, walked in place, value by value. A walk knows strings and brackets
 * only: the reader of a value judges it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/protocol/oip_json_skim.h"

struct json_walk {
    const char *at;
    const char *end;
    bool is_broken; /* a comma or bracket was missing */
};

/* The next character that is not blank, 0 at the end. */
char json_walk_next(struct json_walk *walk);
bool json_walk_skip_value(struct json_walk *walk);
/* Past a comma: the next value; false: `close`, or neither. */
bool json_walk_goes_on(struct json_walk *walk, char close);
/* Reads a member of an object: its key, with the quotes, and its value. */
bool json_walk_member(struct json_walk *walk, struct json_run *key, struct json_run *value);

/* The values of the array at `run`; `first` gets the first one, of 0 bytes if there is none. */
uint64_t json_walk_count(const struct json_run *run, struct json_run *first);
