/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that reads large bodies of REST ("shoald:json"), so that megabytes of JSON do not keep
 * the HTTP thread from others' requests. Its queue has a limit; work is done in order.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct rest_reader;

struct rest_reader *rest_reader_create(uint32_t waiting_max);
/* Has `work` run on the thread. False: as many wait as may. */
bool rest_reader_push(struct rest_reader *reader, void (*work)(void *context), void *context);
/* Does what still waits, and ends the thread. NULL is left alone. */
void rest_reader_destroy(struct rest_reader *reader);
