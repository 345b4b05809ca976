/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The circuit breaker of an external runtime: it opens when the managing process lives but every
 * call ends UNAVAILABLE, because the model server behind it is dead. The rules are in
 * DESIGN-external.md. Pure; the owner locks.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

enum {
    EXTERNAL_CIRCUIT_ANSWERS = 5,
    EXTERNAL_CIRCUIT_TIMEOUTS = 20, /* of calls, until the model server is asked whether it lives */
};

#define EXTERNAL_CIRCUIT_NS (2 * NS_PER_S)            /* for answers about several models */
#define EXTERNAL_CIRCUIT_ONE_MODEL_NS (30 * NS_PER_S) /* for answers about one model */
#define EXTERNAL_CIRCUIT_TIMEOUTS_NS (30 * NS_PER_S)  /* for calls without any answer */
#define EXTERNAL_CIRCUIT_WAIT_NS_MAX (30 * NS_PER_S)  /* between two trials */
#define EXTERNAL_CIRCUIT_CALM_NS (60 * NS_PER_S) /* after that, waits begin at the first again */

enum external_circuit_state { CIRCUIT_CLOSED, CIRCUIT_OPEN, CIRCUIT_HALF_OPEN };

/* Initialized with zeros: closed. */
struct external_circuit {
    enum external_circuit_state state;
    uint32_t answers; /* UNAVAILABLE, in a row */
    int64_t first_ns; /* when the first of them came */
    uint64_t model;   /* of the first, as external_circuit_model computes it */
    bool is_of_several;
    uint32_t timeouts;      /* since the last answer */
    int64_t timed_out_ns;   /* when the first of them came */
    uint64_t slow_model;    /* of the first */
    bool timed_out_several; /* they concern several models */
    uint32_t trials;        /* since the runtime was last well */
    int64_t trial_ns;       /* when the last trial began */
    int64_t closed_ns;      /* when the last trial succeeded */
    uint64_t openings;      /* from closed */
};

uint64_t external_circuit_model(const char *id);

/* An UNAVAILABLE to something that began at `begun_ns`. Returns true if it opens the circuit. */
bool external_circuit_unavailable(struct external_circuit *circuit, uint64_t model,
                                  int64_t begun_ns, int64_t now_ns);
/* A call passed its deadline without an answer. Returns true if the model server must be asked
 * whether it lives: slow calls alone may be overload. */
bool external_circuit_timed_out(struct external_circuit *circuit, uint64_t model, int64_t now_ns);
/* The result of that question. Returns true if it opens the circuit. */
enum external_circuit_sign { CIRCUIT_SIGN_OF_LIFE, CIRCUIT_SILENCE };
bool external_circuit_asked(struct external_circuit *circuit, enum external_circuit_sign sign,
                            int64_t now_ns);
/* Notes any other answer to a call. Returns true if it ends a trial: the circuit is closed. */
bool external_circuit_answered(struct external_circuit *circuit, int64_t now_ns);
/* A load succeeded. That ends no trial: a management process may report it without its server. */
void external_circuit_loaded(struct external_circuit *circuit);
/* Returns how long an open circuit waits for its next trial: `first_ns`, doubled for each
 * failure. */
int64_t external_circuit_wait_ns(const struct external_circuit *circuit, int64_t first_ns);
/* The runtime is ready. Returns true if the circuit was open: this begins a trial. */
bool external_circuit_ready(struct external_circuit *circuit, int64_t now_ns);
/* The runtime has ended: the next one starts with a clean record. */
void external_circuit_reset(struct external_circuit *circuit);
