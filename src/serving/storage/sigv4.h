/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signature Version 4 of AWS for requests without a body. Own code, because libcurl 7.88 does not
 * sort or encode the query, and 8.8 signs `=` in it wrongly: here the bytes that are signed are the
 * bytes that are sent. Pure.
 */
#pragma once

#include <stddef.h>

#include "base/bytes.h"

#define SIGV4_EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

enum { SIGV4_DATE_BYTES = 17, SIGV4_TEXT_BYTES = 1024 };

struct sigv4_request {
    const char *method;
    const char *host;  /* as in the header `Host` */
    const char *path;  /* as sent: absolute and encoded */
    const char *query; /* as sent: encoded, sorted, each name with a `=`; "": none */
    const char *date;  /* as in `x-amz-date`: 20130524T000000Z */
    const char *region;
    const char *key_id;
    const char *secret;
    const char *token; /* NULL: none */
};

/* Writes the value of `Authorization`, which signs `host`, `x-amz-content-sha256` (of nothing),
 * `x-amz-date` and, with a token, `x-amz-security-token`. */
void sigv4_sign(const struct sigv4_request *request, char authorization[SIGV4_TEXT_BYTES]);

/* Appends text percent-encoded as AWS wants it: all but letters, digits and `-._~`, and `/` where
 * it separates names. */
enum sigv4_slash { SIGV4_ENCODE_SLASH, SIGV4_KEEP_SLASH };
void sigv4_encode(struct bytes *out, const char *text, enum sigv4_slash slash);
