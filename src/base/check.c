/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

noreturn void
check_failed(const char *file, int line, const char *function, const char *condition)
{
    fprintf(stderr, "shoal: pid=%d %s:%d: %s: CHECK failed: %s\n", (int)getpid(), file, line,
            function, condition);
    fflush(stderr);
    abort();
}
