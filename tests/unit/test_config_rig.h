/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the tests of the configuration: parse a text, with the machine's CPUs and modelets
 * left aside unless a test is about them, and compare what was reported, lines included.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../test.h"
#include "base/check.h"
#include "coordinator/config/config.h"

#define STAGES "  stages: [{name: s, modelet: ./m.so}]\n"
/* The least that is a configuration. */
#define PIPELINES "pipelines:\n- name: p\n" STAGES

#define RIG_PATH "/etc/shoal/shoal.yaml"

static const struct config_options rig_anywhere = {CONFIG_NO_PIN, CONFIG_MODELETS_UNSEEN};

static inline enum status
rig_parse(const char *text, size_t size, struct config *config, struct config_errors *errors)
{
    struct error error = ERROR_NONE;
    /* exactly as long as it is, so that AddressSanitizer sees a read past the end */
    char *copy = malloc(size > 0 ? size : 1);
    assert_non_null(copy);
    memcpy(copy, text, size);
    struct config_text file = {.path = RIG_PATH, .text = copy, .bytes = size};
    enum status status = config_parse(&file, &rig_anywhere, config, errors, &error);
    free(copy);
    assert_int_equal(status == STATUS_OK, errors->count == 0);
    assert_true(status == STATUS_OK || status == STATUS_INVALID_ARGUMENT);
    return status;
}

static inline void
rig_print(const struct config_errors *errors)
{
    for (uint32_t i = 0; i < errors->count; i++)
        print_error("  %s\n", errors->lines[i]);
}

/* A text without mistakes; the caller frees. */
static inline struct config
rig_good(const char *text)
{
    struct config config;
    struct config_errors errors;
    if (rig_parse(text, strlen(text), &config, &errors) != STATUS_OK) {
        rig_print(&errors);
        fail_msg("refused:\n%s", text);
    }
    config_errors_free(&errors);
    return config;
}

/* A text with one mistake, in that line, whose text has that part. */
static inline void
rig_bad_bytes(const char *text, size_t size, int line, const char *part)
{
    struct config config;
    struct config_errors errors;
    char start[64];
    snprintf(start, sizeof(start), RIG_PATH ":%d: ", line);
    rig_parse(text, size, &config, &errors);
    if (errors.count != 1 || strncmp(errors.lines[0], start, strlen(start)) != 0 ||
        strstr(errors.lines[0], part) == NULL) {
        rig_print(&errors);
        fail_msg("wanted line %d with \"%s\":\n%.2000s", line, part, text);
    }
    config_errors_free(&errors);
    config_free(&config);
}

static inline void
rig_bad(const char *text, int line, const char *part)
{
    rig_bad_bytes(text, strlen(text), line, part);
}
