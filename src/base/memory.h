/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process's heap. The linker chooses the allocator (jemalloc, the C library's, a sanitizer's).
 */
#pragma once

/* Returns free memory to the system, after a large temporary use: allocators keep it for seconds,
 * and jemalloc for as long as no thread allocates. Takes milliseconds for 100 MiB. */
void memory_give_back(void);

/* A malloc'ed copy; NULL of NULL. Ends the process without memory. */
char *memory_copy_text(const char *text);

/* Overwrites a text before it is freed. NULL is ignored. */
void memory_free_secret(char *text);
