/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node: one shoald, from reading its configuration to its end. Exit codes: 0 after a clean stop,
 * 2 when it refused to start (configuration, plug-in, address), 3 when it drained and a part did
 * not end, 130 or 143 after a second SIGINT or SIGTERM. A bug ends it by a signal.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct node_options {
    const char *config_path;
    const char *const *listen; /* replaces the configuration's list */
    uint32_t listen_count;
    const char *counters_path; /* NULL: the configuration's, or the default */
    const char *worker_program;
    const char *program;    /* the path of this process's own, at its start */
    char *const *arguments; /* NULL-terminated, the program first; one is config_path */
    bool pin;               /* false: ignore all `cpus` */
    bool greets;            /* tells on stderr where it serves, and of each model how to call it */
    bool loads_models;      /* node_check: those of folders, too */
    int log_level;          /* -1: the configuration's */
};

/* Reads and checks the configuration, prints every mistake to stderr. Returns the exit code. */
int node_check(const struct node_options *options);

/* Runs until a signal or a failure ends it. Returns the exit code. */
int node_run(const struct node_options *options);
