/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks a file before XGBoost reads it: XGBoost's reader trusts the lengths in a file, and would
 * allocate ten gigabytes for one that claims them. Accepts the two formats that every release since
 * 1.6 writes, JSON and UBJSON, recognized by content, not by name; refuses the older binary format.
 * The meaning of a well-formed file is not checked: manipulated trees can still crash the process.
 * No state: any thread may call it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { BOOSTER_OBJECTIVE_BYTES = 64 };

enum booster_form { BOOSTER_NONE, BOOSTER_JSON, BOOSTER_UBJSON };

struct booster_file {
    enum booster_form form;
    bool has_vector_base_score; /* as XGBoost 3.1 and later write it; older libraries misread it */
    int version_major;          /* of the XGBoost that wrote the file; 0: not stated */
    int version_minor;
    char objective[BOOSTER_OBJECTIVE_BYTES]; /* "multi:softprob"; "": not stated, or longer */
};

/* Reads the bytes once. BOOSTER_NONE: malformed, `room` has the reason. */
struct booster_file booster_file_check(const void *bytes, size_t size, char *room,
                                       size_t room_bytes);
