/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a program as on a machine that lacks something: `lacking CALL[,CALL...] ERRNO PROGRAM
 * [ARGUMENT ...]`. The calls, by name, fail with that number for the program and all that it
 * starts; everything else is as it is.
 */
#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int
refuse_calls(char *names, unsigned number)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (filter == NULL)
        return -ENOMEM;
    int failed = 0;
    char *rest = NULL;
    for (char *name = strtok_r(names, ",", &rest); name != NULL && failed == 0;
         name = strtok_r(NULL, ",", &rest))
        failed =
            seccomp_rule_add(filter, SCMP_ACT_ERRNO(number), seccomp_syscall_resolve_name(name), 0);
    if (failed == 0)
        failed = seccomp_load(filter);
    seccomp_release(filter);
    return failed;
}

int
main(int argc, char **argv)
{
    if (argc < 4) {
        fputs("usage: lacking CALL[,CALL...] ERRNO PROGRAM [ARGUMENT ...]\n", stderr);
        return 2;
    }
    int failed = refuse_calls(argv[1], (unsigned)atoi(argv[2]));
    if (failed != 0) {
        fprintf(stderr, "lacking: %s: %s\n", argv[1], strerror(-failed));
        return 2;
    }
    execv(argv[3], &argv[3]);
    fprintf(stderr, "lacking: %s: %s\n", argv[3], strerror(errno));
    return 2;
}
