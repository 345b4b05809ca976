/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes lines that mean nothing out of what a library writes to standard error. Debian's ONNX
 * Runtime and its ONNX library register the same operators, so the second says of each that it is
 * there already: some 500 lines in every worker. Between `quiet_begin` and `quiet_end` what is
 * written goes to memory; afterwards the lines that don't begin with the given words are passed on.
 * For the time when the process has one thread; where there is no such memory nothing is held back.
 */
#pragma once

struct quiet {
    int kept;   /* standard error as it was; -1: nothing is held back */
    int memory; /* what is written goes here */
};

struct quiet quiet_begin(void);
/* Empty lines are left out as well. */
void quiet_end(struct quiet *quiet, const char *words);
