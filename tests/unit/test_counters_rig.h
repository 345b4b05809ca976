/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the tests of the counters: a small node's scopes, a folder for the file, and creating
 * and opening it with what is expected of that.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../test.h"
#include "base/check.h"
#include "ipc/counters.h"

static const struct counters_spec scopes[] = {
    {SCOPE_NODE, 0, "node"}, {SCOPE_PIPELINE, 0, "digits"}, {SCOPE_STAGE, 1, "classify"},
    {SCOPE_WORKER, 2, "0"},  {SCOPE_WORKER, 2, "1"},        {SCOPE_STAGE, 1, "label"},
    {SCOPE_WORKER, 5, "0"},
};
enum { SCOPES = ARRAY_COUNT(scopes), NODE = 0, PIPELINE = 1, STAGE = 2, WORKER = 4 };

static char folder[64];
static char path[128]; /* in a folder of it that is not there yet */

static inline int
folder_make(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/shoal-counters-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/run/counters", folder);
    return 0;
}

static inline int
folder_remove(void **state)
{
    (void)state;
    char command[256];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
    return 0;
}

static inline struct counters
create(void)
{
    struct counters counters;
    struct error error = ERROR_NONE;
    if (counters_create(&counters, path, scopes, SCOPES, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return counters;
}

static inline struct counters
open_expecting(bool live)
{
    struct counters counters;
    struct error error = ERROR_NONE;
    bool is_live = !live;
    if (counters_open(&counters, path, &is_live, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    assert_int_equal(is_live, live);
    return counters;
}

static inline void
assert_open_fails(enum status status, const char *text)
{
    struct counters counters;
    struct error error = ERROR_NONE;
    bool live;
    assert_int_equal(counters_open(&counters, path, &live, &error), status);
    if (strstr(error.text, text) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", text, error.text);
    assert_null(counters.base);
    counters_close(&counters);
}

static inline void
assert_create_fails(enum status status, const char *text)
{
    struct counters counters;
    struct error error = ERROR_NONE;
    assert_int_equal(counters_create(&counters, path, scopes, SCOPES, &error), status);
    if (strstr(error.text, text) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", text, error.text);
    counters_close(&counters);
}
