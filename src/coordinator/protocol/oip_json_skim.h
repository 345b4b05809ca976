/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first look at a JSON inference request: one walk over the text, which knows only strings and
 * brackets, cuts out the elements (the arrays `data` of the inputs, or v1's `instances`) and copies
 * the rest into one limited piece for a library to parse. oip_json_data reads the elements in
 * place: a parser's tree of them would take twenty times their text, and knows no UINT64.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shoal/modelet.h>

#include "base/bytes.h"
#include "base/error.h"

enum {
    SKIM_BYTES_MAX = 128 * 1024, /* of JSON without elements and without needless blanks */
    SKIM_DEPTH_MAX = 16,         /* of nested arrays and objects, elements apart */
};

/* A piece of JSON within a larger text. */
struct json_run {
    const char *text;
    size_t bytes;
};

/* A part cut out of `small` reads `[i]` there, and is runs[i], from '[' to ']'. */
struct oip_json_skim {
    struct bytes small;
    uint32_t run_count;
    struct json_run runs[SHOAL_TENSORS_MAX];
};

enum skim_form { SKIM_INPUTS, SKIM_INSTANCES };

/* INVALID_ARGUMENT: over a limit, or truncated. The parser reports other mistakes. */
enum status oip_json_skim(struct oip_json_skim *skim, enum skim_form form,
                          const struct json_run *text, struct error *error) WARN_UNUSED;

void oip_json_skim_fini(struct oip_json_skim *skim);

/* The position after the array, object or string that begins at `at`; NULL: it does not end. */
const char *json_run_end(const char *at, const char *end);
/* Returns whether the string between these quotes reads `word`. */
bool json_run_reads(const char *text, size_t bytes, const char *word);
