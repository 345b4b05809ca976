/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The held-out digits as questions whose right answers are known to the last bit: each is asked
 * once while nothing disturbs the service, and every later answer must be the same bytes. Each call
 * carries an id of its own, which the service has to give back, so that an answer that belongs to
 * another caller is seen even if both asked for the same digit.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EXAM_ID_BYTES = 16 };

struct question {
    uint8_t *request;
    size_t request_bytes;
    size_t request_id_at;
    uint8_t *answer; /* NULL until it is learnt */
    size_t answer_bytes;
    size_t answer_id_at;
    int64_t digit; /* what a human says it is */
};

struct exam {
    struct question *questions;
    size_t count;
    size_t right; /* learnt answers that agree with the human */
};

/* Reads the images and makes the requests; on failure says why on standard error. */
bool exam_open(struct exam *exam, const char *data_path);
void exam_close(struct exam *exam);

/* The request with this id: `request_bytes` bytes. */
void exam_ask(const struct question *question, uint64_t id, uint8_t *request);
/* Takes the answer of the quiet run as the right one. False, with a text on standard error: it is
 * no answer to this request. */
bool exam_learn(struct exam *exam, struct question *question, uint64_t id, const uint8_t *answer,
                size_t bytes);
/* True if it is the learnt answer, bit by bit, with this id. */
bool exam_check(const struct question *question, uint64_t id, const uint8_t *answer, size_t bytes);
