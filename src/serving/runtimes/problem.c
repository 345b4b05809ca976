/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>

#include "serving/runtimes/plan.h"

enum { PROBLEMS_BYTES_MAX = 8192 }; /* they become a record; more are left out */

void
runtime_problem(struct bytes *problems, const char *format, ...)
{
    char text[1024];
    va_list args;
    if (problems->used > PROBLEMS_BYTES_MAX)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (problems->used > 0)
        bytes_put_text(problems, "; ");
    bytes_put_text(problems, text);
}
