/* SPDX-License-Identifier: Apache-2.0 */
/*
 * API keys and what each may use. The file is read again within a second of a change; one that is
 * gone or wrong changes nothing. Everything on the thread of the event base.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"

struct api_key;
struct event_base;
struct key_ring;

/* Returns any status of key_file_read. */
enum status key_ring_create(struct event_base *base, const char *path, struct key_ring **ring,
                            struct error *error) WARN_UNUSED;
/* No key is in use. NULL is ignored. */
void key_ring_destroy(struct key_ring *ring);

/* The key of a field `Authorization: Bearer KEY`; NULL: none, or an unknown one. */
struct api_key *key_ring_find(struct key_ring *ring, const char *authorization);
/* Takes a request and returns 0, or the milliseconds after which it may be tried again. A key that
 * was taken stays valid until it is released, also if the file no longer has it. */
int64_t api_key_take(struct api_key *key);
void api_key_release(struct api_key *key, uint64_t tokens);
