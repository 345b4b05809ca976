/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a runtime that answers UNAVAILABLE is taken for away: how many answers, over which time,
 * about how many models; when one that does not answer is asked, and what follows; what resets
 * that; and how trials end and wait for each other.
 */

#include "../test.h"
#include "mesh/edge/external_circuit.h"

#define START_NS (1000 * NS_PER_S)

static struct external_circuit circuit;
static int64_t now_ns;

static int
setup(void **state)
{
    (void)state;
    circuit = (struct external_circuit){0};
    now_ns = START_NS;
    return 0;
}

static bool
refuse(const char *model, int64_t after_ns)
{
    now_ns += after_ns;
    return external_circuit_unavailable(&circuit, external_circuit_model(model), now_ns, now_ns);
}

/* Returns how many seconds of failures, five a second, open the circuit; 0: a minute does not. */
static int64_t
seconds_to_open(const char *const models[2])
{
    for (int i = 0; i <= 300; i++)
        if (refuse(models[i % 2], NS_PER_S / 5))
            return (now_ns - START_NS) / NS_PER_S;
    return 0;
}

TEST_CASE(test_several_models)
{
    assert_int_equal(seconds_to_open((const char *const[]){"m", "n"}), 2);
    assert_int_equal(circuit.openings, 1);
    assert_false(refuse("m", NS_PER_S)); /* it is open */
}

TEST_CASE(test_one_model)
{
    assert_int_equal(seconds_to_open((const char *const[]){"m", "m"}), 30);
}

TEST_CASE(test_one_answer_is_not_enough)
{
    assert_false(refuse("m", 0));
    assert_false(refuse("n", 3600 * NS_PER_S));
    assert_false(refuse("m", 3600 * NS_PER_S));
    assert_false(refuse("n", 3600 * NS_PER_S));
    assert_true(refuse("m", 3600 * NS_PER_S));
}

TEST_CASE(test_many_at_once_are_not_enough)
{
    for (int i = 0; i < 1000; i++)
        assert_false(refuse(i % 2 == 0 ? "m" : "n", NS_PER_S / 1000));
}

TEST_CASE(test_any_other_answer_begins_anew)
{
    for (int i = 0; i < 10000; i++) {
        assert_false(refuse(i % 2 == 0 ? "m" : "n", NS_PER_S / 5));
        if (i % 5 == 4)
            assert_false(external_circuit_answered(&circuit, now_ns));
        if (i % 5 == 2)
            external_circuit_loaded(&circuit);
    }
}

static void
open_circuit(void)
{
    while (!refuse("m", NS_PER_S) && !refuse("n", NS_PER_S))
        ;
}

TEST_CASE(test_a_trial)
{
    assert_false(external_circuit_ready(&circuit, now_ns));
    open_circuit();
    int64_t before_ns = now_ns++;
    assert_true(external_circuit_ready(&circuit, now_ns));
    /* what began before the trial, and what the management process says, decide nothing */
    assert_false(external_circuit_unavailable(&circuit, 1, before_ns, now_ns));
    external_circuit_loaded(&circuit);
    assert_int_equal(circuit.state, CIRCUIT_HALF_OPEN);
    assert_true(refuse("m", 0));
    assert_int_equal(circuit.openings, 1); /* still the same */
    assert_true(external_circuit_ready(&circuit, now_ns));
    assert_true(external_circuit_answered(&circuit, now_ns));
    assert_int_equal(circuit.state, CIRCUIT_CLOSED);
    assert_false(refuse("m", 0));
}

TEST_CASE(test_waits_grow)
{
    open_circuit();
    for (int64_t wait = 2; wait < 100; wait *= 2) {
        assert_int_equal(external_circuit_wait_ns(&circuit, 2 * NS_PER_S),
                         (wait < 30 ? wait : 30) * NS_PER_S);
        assert_true(external_circuit_ready(&circuit, now_ns));
        assert_true(refuse("m", 0));
    }
    assert_true(external_circuit_ready(&circuit, now_ns));
    assert_true(external_circuit_answered(&circuit, now_ns));
    open_circuit(); /* soon after: it goes on where it was */
    assert_int_equal(external_circuit_wait_ns(&circuit, 2 * NS_PER_S), 30 * NS_PER_S);
    assert_true(external_circuit_ready(&circuit, now_ns));
    assert_true(external_circuit_answered(&circuit, now_ns));
    now_ns += EXTERNAL_CIRCUIT_CALM_NS;
    open_circuit();
    assert_int_equal(external_circuit_wait_ns(&circuit, 2 * NS_PER_S), 2 * NS_PER_S);
    assert_int_equal(circuit.openings, 3);
}

TEST_CASE(test_the_next_process)
{
    open_circuit();
    assert_true(external_circuit_ready(&circuit, now_ns));
    external_circuit_reset(&circuit);
    assert_false(refuse("m", 0));
    assert_int_equal(circuit.openings, 1);
}

static bool
time_out(const char *model, int64_t after_ns)
{
    now_ns += after_ns;
    return external_circuit_timed_out(&circuit, external_circuit_model(model), now_ns);
}

/* Returns how many seconds of time-outs, two a second, make it a suspect; 0: two minutes do not. */
static int64_t
seconds_to_suspect(const char *const models[2])
{
    int64_t began_ns = now_ns;
    for (int i = 0; i <= 240; i++)
        if (time_out(models[i % 2], NS_PER_S / 2))
            return (now_ns - began_ns) / NS_PER_S;
    return 0;
}

TEST_CASE(test_time_outs_make_a_suspect)
{
    assert_int_equal(seconds_to_suspect((const char *const[]){"m", "m"}), 0);
    assert_true(time_out("n", 0));
    assert_false(external_circuit_asked(&circuit, CIRCUIT_SIGN_OF_LIFE, now_ns));
    assert_int_equal(circuit.state, CIRCUIT_CLOSED);
    assert_int_equal(seconds_to_suspect((const char *const[]){"m", "n"}), 30);
    assert_true(external_circuit_asked(&circuit, CIRCUIT_SILENCE, now_ns));
    assert_int_equal(circuit.state, CIRCUIT_OPEN);
    assert_int_equal(circuit.openings, 1);
    assert_false(time_out("m", 3600 * NS_PER_S));
}

TEST_CASE(test_few_time_outs_are_nothing)
{
    for (int i = 1; i < EXTERNAL_CIRCUIT_TIMEOUTS; i++)
        assert_false(time_out(i % 2 == 0 ? "m" : "n", 60 * NS_PER_S));
    assert_true(time_out("m", 0));
}

TEST_CASE(test_an_answer_clears_a_suspect)
{
    for (int i = 0; i < 1000; i++) {
        assert_false(time_out(i % 2 == 0 ? "m" : "n", NS_PER_S));
        if (i % 29 == 28 && i % 2 == 0)
            assert_false(external_circuit_answered(&circuit, now_ns));
        else if (i % 29 == 28)
            external_circuit_loaded(&circuit);
    }
    assert_true(seconds_to_suspect((const char *const[]){"m", "n"}) > 0);
    assert_false(external_circuit_answered(&circuit, now_ns)); /* while it is asked */
    assert_false(external_circuit_asked(&circuit, CIRCUIT_SILENCE, now_ns));
    assert_int_equal(circuit.state, CIRCUIT_CLOSED);
}

TEST_MAIN(.setup = setup)
