/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory under an array that user code gets: a Python object that every view of the array keeps
 * alive, so its reference count tells whether anything is left of it.
 *
 * Either its own memory, into which a tensor was copied, or a second, read-only mapping of the
 * tensor's pages in the arena. The arena's pages belong to another request after the run:
 * memory_end_run replaces those of a mapping to which there are references left by a copy, at the
 * same address.
 */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

struct memory;

/* Once, before the others. False: a Python exception is set. */
bool memory_prepare(void);

/* Own memory, of which the caller fills `bytes`. It reuses `*cached`, if nobody else refers to it,
 * and else puts a new one there; the caller's reference is a second one. NULL: an exception is
 * set. */
struct memory *memory_own(struct memory **cached, size_t bytes, void **data);

/* A view of shared memory, valid until memory_end_run. NULL, without an exception: too small to be
 * worth it, or memory that cannot be mapped again, as that of a harness; copy it. */
struct memory *memory_view(const void *data, size_t bytes);

/* Gives the caller's reference back. Views that user code has kept stay as they are until it drops
 * them. */
void memory_end_run(struct memory *memory);
