/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judges a file that XGBoost is to read before XGBoost sees it: its reader believes the lengths in
 * a file, and one that claims ten gigabytes would get them. Taken are the two forms that every
 * release since 1.6 writes, JSON and UBJSON, told apart by content whatever the file's name is;
 * the older binary form is refused. What the numbers in a well-formed file mean is XGBoost's
 * matter: trees that were tampered with can still crash the process. No threads' matter.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum booster_form { BOOSTER_NONE, BOOSTER_JSON, BOOSTER_UBJSON };

struct booster_file {
    enum booster_form form;
    bool has_vector_base_score; /* as XGBoost 3.1 and later write it; older libraries misread it */
    int version_major;          /* of the XGBoost that wrote the file; 0: it does not say */
    int version_minor;
};

/* Passes over the bytes once. BOOSTER_NONE: `room` says what is wrong. */
struct booster_file booster_file_check(const void *bytes, size_t size, char *room,
                                       size_t room_bytes);
