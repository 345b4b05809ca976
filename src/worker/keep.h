/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `shoal-worker --keep`: runs one program, a container of a ServingRuntime, and sees to it that
 * nothing of it outlives shoald. It adopts what the program leaves behind; when the program ends,
 * it kills the rest and ends the same way.
 *
 *   SIGTERM               goes to the program's process group
 *   SIGHUP, shoald's end  everything is killed at once
 *   its own death         the kernel kills the program; shoald kills the rest
 *
 * Limits are those of a cgroup v2 of its own where that is permitted, else a limit of the data of
 * each process; a line says which.
 */
#pragma once

enum {
    KEEP_PARENT = 2, /* shoald's pid */
    KEEP_MEMORY,     /* bytes; 0: no limit */
    KEEP_CPU,        /* thousandths of a CPU; 0: no limit */
    KEEP_FOLDER,     /* where the program starts; a scratch folder if that does not exist */
    KEEP_PROGRAM,    /* its path */
    KEEP_ARGUMENTS,  /* its argv[0] and what follows */
};

/* Returns the keeper's own exit code if it does not end by the program's signal. */
int keep(int argc, char **argv);
