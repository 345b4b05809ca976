/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The right to look at the dashboard. Beyond loopback the configuration demands a token or
 * certificates (config_check_tls.c); here the token is compared, and pages of other sites are kept
 * out as for REST (front/rest_guard.h).
 */
#pragma once

#include "base/error.h"
#include "coordinator/front/rest_guard.h"

enum { GATE_TOKEN_BYTES_MIN = 16, GATE_TOKEN_BYTES_MAX = 256 };

struct gate {
    struct rest_guard guard;
    char token[GATE_TOKEN_BYTES_MAX + 1]; /* "": none is asked for */
};

/* Reads the token. INVALID_ARGUMENT names the file and what is wrong with it. */
enum status gate_init(struct gate *gate, const char *token_file, const char *hosts,
                      struct error *error) WARN_UNUSED;

/* The headers that decide, each NULL if it is absent. */
struct gate_headers {
    enum http_place place;
    const char *host;
    const char *origin;
    const char *fetch_site; /* Sec-Fetch-Site */
    const char *authorization;
    const char *cookie;
};

/* The kind of a request: another site may lead a browser to a page, but not to data. */
enum gate_what { GATE_PAGE, GATE_DATA };

/* PERMISSION_DENIED: by host or origin. UNAUTHENTICATED: without the token. */
enum status gate_check(const struct gate *gate, const struct gate_headers *headers,
                       enum gate_what what, struct error *error) WARN_UNUSED;

/* Takes a time that does not depend on how much of the token is right. */
bool gate_is_token(const struct gate *gate, const char *given);

#define GATE_COOKIE "shoal_dashboard"
