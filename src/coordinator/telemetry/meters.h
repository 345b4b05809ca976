/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of a mesh's models by method and code, as KServe ModelMesh's metrics have them: durations
 * and sizes. A call is recorded twice: by the node that the caller called (METER_REQUEST:
 * modelmesh_api_request_…, modelmesh_request_size_…, modelmesh_response_size_…), and by the node
 * whose runtime served it (METER_SERVED: modelmesh_invoke_model_…). Buckets are ModelMesh's, and
 * exact.
 *
 * Any thread: a record is one addition to each of a few words, without a lock. Memory is taken when
 * a method has a code for the first time.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/json.h"

struct meters;

enum meter { METER_REQUEST, METER_SERVED, METER_COUNT };

/* Further methods are "other": callers may invent methods. */
enum { METERS_METHODS_MAX = 64, METERS_METHOD_BYTES_MAX = 256 };

enum meters_names {
    METERS_SHORT, /* "ModelInfer" */
    METERS_FULL,  /* "inference.GRPCInferenceService/ModelInfer" */
};

struct meters *meters_create(enum meters_names names);
/* Call when no thread records any more. NULL is ignored. */
void meters_destroy(struct meters *meters);

/* The number of a method, "/package.Service/Method". Takes a lock: ask once, or only for calls that
 * go to another process. `meters` may be NULL. */
uint32_t meters_method(struct meters *meters, const char *path);

struct meters_call {
    uint32_t method;
    enum status status;
    int64_t took_ns;
    uint64_t request_bytes;
    uint64_t response_bytes;
};

/* `meters` NULL: does nothing. */
void meters_record(struct meters *meters, enum meter meter, const struct meters_call *call);

void meters_print(const struct meters *meters, FILE *out);
/* Writes an array with an object for each method and code: `method`, `code`, and for calls whose
 * callers are here and for calls served here the number and the time of all, `calls` and `ns`,
 * `served` and `served_ns`. `meters` NULL: an empty one. */
void meters_json(const struct meters *meters, struct json *json);
