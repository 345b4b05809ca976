/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Certificates in files, read again within a second of a change, together: a certificate that is
 * replaced a moment before its key does not fit, and the old pair stays in use (http/server.h).
 */
#pragma once

#include "base/error.h"
#include "http/server.h"

struct pem_files;

/* Keeps the paths; an empty one: none. INVALID_ARGUMENT with the path and the reason. */
enum status pem_files_create(const char *certificate, const char *key, const char *ca,
                             struct pem_files **files, struct error *error) WARN_UNUSED;
/* NULL is ignored. */
void pem_files_destroy(struct pem_files *files);
/* The callback of http_tls_source. */
uint64_t pem_files_fetch(void *files, uint64_t have,
                         void (*take)(void *taker, const struct http_pems *pems), void *taker);
