/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names for addresses of code, found in a signal handler. The dynamic linker says without a lock
 * which file an address belongs to; its symbols are read from the file itself, of which all
 * functions can be found that were not stripped, static ones too. Files are mapped in advance,
 * because a sandboxed worker cannot open any while it serves; others are tried when needed.
 */
#pragma once

#include <stdint.h>

struct crash_symbol {
    const char *file;     /* NULL: the address is not code of any file */
    uintptr_t offset;     /* in the file, as addr2line takes it */
    const char *function; /* NULL: not known */
    uintptr_t function_offset;
};

/* Maps this program, and the files of all libraries that are loaded now and not mapped yet. */
void crash_symbols_keep(void);

/* Reads nothing but the linker's tables: `function` is not known. */
void crash_symbol_locate(uintptr_t address, struct crash_symbol *symbol);

/* Adds the function. May fault if the modelet has corrupted the linker's data, or if the file was
 * cut short. */
void crash_symbol_name(uintptr_t address, struct crash_symbol *symbol);
