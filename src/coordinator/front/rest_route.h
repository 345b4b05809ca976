/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The paths of the Open Inference Protocol and of KServe's v1, what may be done with each, and how
 * the statuses of gRPC are expressed in HTTP. Pure.
 */
#pragma once

#include <stddef.h>

#include "base/error.h"
#include "coordinator/protocol/triton.h"
#include "http/server.h"

enum rest_what {
    REST_NOWHERE,
    REST_SERVER,
    REST_LIVE,
    REST_READY,
    REST_MODEL,
    REST_MODEL_READY,
    REST_INFER,
    REST_PREDICT,         /* v1's inference */
    REST_GENERATE,        /* Triton's */
    REST_GENERATE_STREAM, /* answered by events */
    REST_MODELS,          /* the list of models; from here on Triton's methods answer */
    REST_OPENAPI,
    REST_TRITON,
};

/* A path with what it leads to. "{model}", "{version}" and "{region}" stand for any word, or its
 * beginning. */
struct rest_row {
    const char *path;
    enum rest_what what;
    enum triton_method method; /* from REST_MODELS on */

    /* for the OpenAPI document (rest_openapi.c): its sentence, and the names of schemas there */
    const char *summary;
    const char *request; /* NULL: no body */
    const char *response;
};
/* All paths, in the order in which they are tried. */
extern const struct rest_row rest_rows[];
extern const size_t rest_row_count;

enum { REST_PATH_BYTES_MAX = 1023 };

struct rest_route {
    enum rest_what what;
    const struct rest_row *row; /* NULL: REST_NOWHERE */
    const char *model;          /* "" without one, as the version */
    const char *version;
    const char *region;                 /* of shared memory */
    char path[REST_PATH_BYTES_MAX + 1]; /* what they point into */
};

/* The path as it was sent: its words are decoded here, after it was cut, so that the id of a model
 * may have a slash in it (%2F). One that is too long leads nowhere. One slash at its end does not
 * matter. */
void rest_route(struct rest_route *route, const char *path);

/* "GET, HEAD" or "POST" for the header Allow; NULL: the method is right. */
const char *rest_route_allows(const struct rest_row *row, enum http_method method);

/* 200 to 599. */
int rest_code(enum status status);
