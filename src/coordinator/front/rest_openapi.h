/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The OpenAPI document at /v2/openapi.json: every row of the routing table (rest_route.h), and of
 * loaded models the paths by which they are called, with the tensors that they declare.
 *
 * A service may have thousands of models, and the HTTP thread has other calls to answer. So a
 * document describes at most OPENAPI_MODELS_MAX models, the first by name, or those after `after`
 * in the query, and begins none after OPENAPI_BYTES_MAX. Its member `x-next-model` is where to go
 * on. HTTP thread.
 */
#pragma once

#include "base/bytes.h"
#include "coordinator/models/target.h"
#include "wire/wire.h"

enum { OPENAPI_MODELS_MAX = 100, OPENAPI_BYTES_MAX = 512 * 1024 };

/* `index`: a RepositoryIndexResponse of ready models, of which at most `limit` are described. */
void rest_openapi_write(const struct target_scope *scope, const struct wire_message *index,
                        uint32_t limit, struct bytes *out);
