/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suppresses meaningless lines that a library writes to standard error. Debian's ONNX Runtime and
 * its ONNX library register the same operators, so the second one reports each as already
 * registered: some 500 lines in every worker. Between `quiet_begin` and `quiet_end` output goes to
 * memory; afterwards the lines that do not begin with the given words are passed on. Only while the
 * process has one thread; without such memory nothing is suppressed.
 */
#pragma once

struct quiet {
    int kept;   /* the original standard error; -1: nothing is suppressed */
    int memory; /* receives the output */
};

struct quiet quiet_begin(void);
/* Suppresses empty lines as well. */
void quiet_end(struct quiet *quiet, const char *words);
