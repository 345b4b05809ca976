/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The headers of a request as metadata of a call: names in lower case, without HTTP's own headers
 * and without "…-bin", which only gRPC decodes. "Grpc-Metadata-NAME", as clients of gRPC gateways
 * write it, is NAME.
 */
#pragma once

#include "http/server.h"
#include "rpc/rpc.h"

enum { REST_KEY_BYTES_MAX = 127 }; /* headers with longer names are skipped */

/* Finds the next value under a lower-case key; as `metadata` of entry/inbound.h. */
bool rest_headers_find(const struct http_request *request, const char *key, size_t *position,
                       struct wire_span *value);
/* Iterates over all entries; `key` is room for the entry's key. */
bool rest_headers_walk(const struct http_request *request, size_t *position,
                       char key[REST_KEY_BYTES_MAX + 1], struct rpc_metadata *entry);
