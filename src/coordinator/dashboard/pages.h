/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dashboard's files, compiled in from page/, and the headers of its answers. HTTP thread.
 */
#pragma once

#include <stdbool.h>

#include "base/bytes.h"
#include "http/server.h"

/* Answers with the file of that path; false: there is none. */
bool pages_answer(struct http_request *request, const char *path);
/* Returns whether the login page needs it, so that it is no secret. */
bool pages_is_public(const char *path);
/* The login page; `code` 401 after a wrong token. */
void pages_answer_login(struct http_request *request, int code);
/* Leads a browser elsewhere. `cookie` NULL: none is set. */
void pages_answer_redirect(struct http_request *request, const char *to, const char *cookie);
/* Takes the bytes. */
void pages_answer_json(struct http_request *request, int code, struct bytes *json);
/* An object with the error, as the operator protocol has it. */
void pages_answer_error(struct http_request *request, int code, const struct error *error);
/* Begins an endless answer of server-sent events. */
void pages_begin_events(struct http_request *request,
                        void (*on_writable)(struct http_request *request));
