/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process's heap, as far as the program minds it. Which allocator it is (jemalloc, the C
 * library's, a sanitizer's) is the linker's business.
 */
#pragma once

/* Returns what is free to the system, after something that took much: allocators keep it for
 * seconds, and jemalloc for as long as nobody allocates. Takes milliseconds for 100 MiB. */
void memory_give_back(void);
