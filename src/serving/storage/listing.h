/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the XML of S3: a page of ListObjectsV2 with `encoding-type=url`, and an error. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { LISTING_NAME_BYTES = 1025, LISTING_ETAG_BYTES = 128, LISTING_TOKEN_BYTES = 2048 };

struct listing_object {
    char *key; /* decoded */
    char *etag;
    uint64_t bytes;
};

struct listing {
    struct listing_object *objects;
    uint32_t count, room;
    uint32_t count_max;
    bool is_truncated;               /* of the last page */
    char token[LISTING_TOKEN_BYTES]; /* with which the next page is asked for */
};

/* Appends a page. DATA_LOSS: no such XML, for example an error page; RESOURCE_EXHAUSTED: more than
 * `count_max` objects. */
enum status listing_read(struct listing *listing, const char *xml, size_t bytes,
                         struct error *error) WARN_UNUSED;
void listing_fini(struct listing *listing);

/* Writes "Code: Message" of an error's XML; "": it is none. */
void listing_read_error(const char *xml, size_t bytes, char *text, size_t room);
