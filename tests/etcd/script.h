/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server on the test's event base that says what the test tells it to, byte by byte: what no etcd
 * would say, and how nobody can make one say it. It takes requests and counts them; the test
 * answers on the newest connection that has one open.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

struct script;

struct script *script_start(void);
void script_stop(struct script *script);
const char *script_url(const struct script *script);
/* Requests that have come as a whole, so far. */
size_t script_requests(const struct script *script);
/* The last one's path. */
const char *script_path(const struct script *script);

/* Bytes as they are. */
void script_say(struct script *script, const char *bytes, size_t count);
void script_hang_up(struct script *script);
/* A whole answer. */
void script_answer(struct script *script, int http_status, const char *body);
/* The same on all connections that have a request open. */
void script_answer_all(struct script *script, int http_status, const char *body);
/* The head of a stream, and a chunk of one. */
void script_stream(struct script *script);
void script_chunk(struct script *script, const char *text);
/* The last chunk, of no bytes. */
void script_stream_end(struct script *script);

/* A header's fields, at this revision. */
#define SCRIPT_HEADER(revision)                                                                    \
    "\"header\":{\"cluster_id\":\"1\",\"member_id\":\"2\",\"revision\":\"" revision                \
    "\",\"raft_term\":\"3\"}"
