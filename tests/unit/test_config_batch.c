/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stage's kind and bound of waiting where its configuration does not give both.
 */
#include "test_config_rig.h"

#define STAGE "pipelines:\n- name: p\n  stages:\n  - name: s\n    modelet: ./m.so\n"

/* Adaptive waiting is bounded by 2 ms unless the configuration says otherwise; a fixed wait is what
 * it says, and a stage without batches waits for nobody. */
TEST_CASE(test_default_batch_waits)
{
    static const struct {
        const char *keys;
        int64_t wait_ns;
        const char *wait;
    } cases[] = {
        {"    batch_size: 8\n", 2000000, "adaptive"},
        {"    batch_size: 8\n    batch_wait: adaptive\n", 2000000, "adaptive"},
        {"    batch_size: 8\n    batch_wait_ms: 0\n", 0, "adaptive"},
        {"    batch_size: 8\n    batch_wait_ms: 7\n", 7000000, "adaptive"},
        {"    batch_size: 8\n    batch_wait: fixed\n", 0, "fixed"},
        {"    batch_size: 8\n    batch_wait: fixed\n    batch_wait_ms: 2\n", 2000000, "fixed"},
        {"    batch_wait: adaptive\n", 0, "adaptive"},
        {"", 0, "adaptive"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        char text[512];
        snprintf(text, sizeof(text), "%s%s", STAGE, cases[i].keys);
        struct config config = rig_good(text);
        const struct config_stage *stage = &config.pipelines[0].stages[0];
        assert_int_equal(stage->batch_wait_ns, cases[i].wait_ns);
        assert_string_equal(stage->batch_wait, cases[i].wait);
        config_free(&config);
    }
}

TEST_MAIN()
