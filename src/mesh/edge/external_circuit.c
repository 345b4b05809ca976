/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/edge/external_circuit.h"

#include <string.h>

#include "base/check.h"
#include "base/hash.h"

/* A collision takes two models for one: the circuit then opens later. */
uint64_t
external_circuit_model(const char *id)
{
    return hash_fnv1a(HASH_FNV1A_SEED, id, strlen(id));
}

/* Allowed transitions; a reset is a new circuit. */
static const uint32_t EDGES[] = {
    [CIRCUIT_CLOSED] = 1u << CIRCUIT_OPEN,
    [CIRCUIT_OPEN] = 1u << CIRCUIT_HALF_OPEN,
    [CIRCUIT_HALF_OPEN] = 1u << CIRCUIT_OPEN | 1u << CIRCUIT_CLOSED,
};

static void
circuit_set(struct external_circuit *circuit, enum external_circuit_state state)
{
    CHECK(EDGES[circuit->state] & 1u << state);
    circuit->state = state;
}

static void
circuit_open(struct external_circuit *circuit, int64_t now_ns)
{
    if (circuit->state == CIRCUIT_CLOSED) {
        circuit->openings++;
        if (now_ns - circuit->closed_ns >= EXTERNAL_CIRCUIT_CALM_NS)
            circuit->trials = 0;
    }
    circuit_set(circuit, CIRCUIT_OPEN);
    circuit->answers = circuit->timeouts = 0;
}

bool
external_circuit_unavailable(struct external_circuit *circuit, uint64_t model, int64_t begun_ns,
                             int64_t now_ns)
{
    if (circuit->state == CIRCUIT_OPEN)
        return false;
    if (circuit->state == CIRCUIT_HALF_OPEN) {
        if (begun_ns < circuit->trial_ns)
            return false;
        circuit_open(circuit, now_ns);
        return true;
    }
    if (circuit->answers++ == 0) {
        circuit->first_ns = now_ns;
        circuit->model = model;
        circuit->is_of_several = false;
    }
    circuit->is_of_several |= model != circuit->model;
    int64_t for_ns = circuit->is_of_several ? EXTERNAL_CIRCUIT_NS : EXTERNAL_CIRCUIT_ONE_MODEL_NS;
    if (circuit->answers < EXTERNAL_CIRCUIT_ANSWERS || now_ns - circuit->first_ns < for_ns)
        return false;
    circuit_open(circuit, now_ns);
    return true;
}

bool
external_circuit_timed_out(struct external_circuit *circuit, uint64_t model, int64_t now_ns)
{
    if (circuit->state != CIRCUIT_CLOSED)
        return false;
    if (circuit->timeouts++ == 0) {
        circuit->timed_out_ns = now_ns;
        circuit->slow_model = model;
        circuit->timed_out_several = false;
    }
    circuit->timed_out_several |= model != circuit->slow_model;
    return circuit->timed_out_several && circuit->timeouts >= EXTERNAL_CIRCUIT_TIMEOUTS &&
           now_ns - circuit->timed_out_ns >= EXTERNAL_CIRCUIT_TIMEOUTS_NS;
}

bool
external_circuit_asked(struct external_circuit *circuit, enum external_circuit_sign sign,
                       int64_t now_ns)
{
    bool had_answers = circuit->timeouts == 0; /* of calls during the question */
    circuit->timeouts = 0;
    if (sign == CIRCUIT_SIGN_OF_LIFE || had_answers || circuit->state != CIRCUIT_CLOSED)
        return false;
    circuit_open(circuit, now_ns);
    return true;
}

bool
external_circuit_answered(struct external_circuit *circuit, int64_t now_ns)
{
    circuit->answers = circuit->timeouts = 0;
    if (circuit->state != CIRCUIT_HALF_OPEN)
        return false;
    circuit_set(circuit, CIRCUIT_CLOSED);
    circuit->closed_ns = now_ns;
    return true;
}

void
external_circuit_loaded(struct external_circuit *circuit)
{
    circuit->answers = circuit->timeouts = 0;
}

int64_t
external_circuit_wait_ns(const struct external_circuit *circuit, int64_t first_ns)
{
    int64_t wait_ns = first_ns;
    for (uint32_t i = 0; i < circuit->trials && wait_ns < EXTERNAL_CIRCUIT_WAIT_NS_MAX; i++)
        wait_ns *= 2;
    return wait_ns < EXTERNAL_CIRCUIT_WAIT_NS_MAX ? wait_ns : EXTERNAL_CIRCUIT_WAIT_NS_MAX;
}

bool
external_circuit_ready(struct external_circuit *circuit, int64_t now_ns)
{
    if (circuit->state != CIRCUIT_OPEN)
        return false;
    circuit_set(circuit, CIRCUIT_HALF_OPEN);
    circuit->trial_ns = now_ns;
    circuit->trials++;
    return true;
}

void
external_circuit_reset(struct external_circuit *circuit)
{
    *circuit = (struct external_circuit){.openings = circuit->openings};
}
