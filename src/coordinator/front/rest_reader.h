/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that reads large bodies of REST ("shoald:json"), so that megabytes of JSON do not keep
 * the HTTP thread from others' requests. Work is done in order. Two bodies at most are in memory as
 * decompressed and as tensors: one that was read and is not taken yet, and the next, which is being
 * read. All others wait as they came, in a queue with limits.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct rest_reader;

struct rest_reader_limits {
    uint32_t waiting_max;
    uint64_t waiting_bytes_max; /* one body may be larger */
};

struct rest_job {
    void (*work)(void *context);
    void *context;
    uint64_t body_bytes; /* as it came */
};

struct rest_reader *rest_reader_create(const struct rest_reader_limits *limits);
/* Has the work run on the thread. False: as much waits as may. */
bool rest_reader_push(struct rest_reader *reader, const struct rest_job *job);
/* Another thread has taken what one job's work has read, and has freed its memory. */
void rest_reader_taken(struct rest_reader *reader);
/* Call when all work is taken. Ends the thread. NULL is ignored. */
void rest_reader_destroy(struct rest_reader *reader);
