/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first look at a JSON inference request: one walk over the text, which knows strings and
 * brackets and nothing else, cuts the elements out (the arrays `data` of the inputs) and copies
 * what is left into one piece, small and limited, for a library to parse. The elements are read
 * where they lie, by oip_json_data: a parser's tree of them would take twenty times their text, and
 * know no UINT64.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <shoal/modelet.h>

#include "base/bytes.h"
#include "base/error.h"

enum {
    SKIM_BYTES_MAX = 128 * 1024, /* of JSON without elements and without needless blanks */
    SKIM_DEPTH_MAX = 16,         /* arrays and objects in each other, elements apart */
};

/* Some JSON within a larger text. */
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

/* INVALID_ARGUMENT: beyond a limit, or cut short. What is malformed otherwise is the parser's to
 * say. */
enum status oip_json_skim(struct oip_json_skim *skim, const char *text, size_t bytes,
                          struct error *error) WARN_UNUSED;

void oip_json_skim_fini(struct oip_json_skim *skim);
