/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Definitions of a worker's sandbox for coordinator, worker and `shoalctl`: the names by which a
 * stage loosens it, and its parts as counted and shown. src/worker/DESIGN-sandbox.md explains each.
 */
#pragma once

#include <stdint.h>

/* Bits of handshake_start.sandbox_allow; a stage's `sandbox_allow` lists them by name. */
enum sandbox_allow {
    SANDBOX_ALLOW_READING = 1u << 0,
    SANDBOX_ALLOW_FILES = 1u << 1,
    SANDBOX_ALLOW_NETWORK = 1u << 2,
    SANDBOX_ALLOW_PROCESSES = 1u << 3,
    SANDBOX_ALLOW_CODE = 1u << 4,
    SANDBOX_ALLOW_ALL = 1u << 5,
    SANDBOX_ALLOW_CORE = 1u << 6,
};

/* The names of the bits, in their order. */
#define SANDBOX_ALLOW_NAMES "reading|files|network|processes|code|all|core"

static inline const char *
sandbox_allow_name(uint32_t index)
{
    static const char *const names[] = {"reading", "files", "network", "processes",
                                        "code",    "all",   "core"};
    return index < sizeof(names) / sizeof(names[0]) ? names[index] : "?";
}

enum { SANDBOX_ALLOW_COUNT = 7, SANDBOX_ALLOW_EVERY = (1 << SANDBOX_ALLOW_COUNT) - 1 };

/* A worker's reaction to a part that the kernel lacks. */
enum sandbox_need { SANDBOX_BEST_EFFORT, SANDBOX_REQUIRED };

/* SANDBOX_PART_<id>, a bit each, in the order in which they are applied. */
#define SANDBOX_PARTS(PART)                                                                        \
    PART(NO_NEW_PRIVS, "no_new_privs")                                                             \
    PART(LIMITS, "limits")                                                                         \
    PART(LANDLOCK_FILES, "landlock_files")                                                         \
    PART(LANDLOCK_TCP, "landlock_tcp")                                                             \
    PART(LANDLOCK_SOCKETS, "landlock_sockets")                                                     \
    PART(LANDLOCK_SIGNALS, "landlock_signals")                                                     \
    PART(CAPABILITIES, "capabilities")                                                             \
    PART(CALLS_STARTING, "calls_starting")                                                         \
    PART(CALLS_SERVING, "calls_serving")

enum {
#define PART(id, name) SANDBOX_INDEX_##id,
    SANDBOX_PARTS(PART)
#undef PART
        SANDBOX_PART_COUNT,
};

enum sandbox_part {
#define PART(id, name) SANDBOX_PART_##id = 1u << SANDBOX_INDEX_##id,
    SANDBOX_PARTS(PART)
#undef PART
};

enum {
    SANDBOX_PARTS_LANDLOCK = SANDBOX_PART_LANDLOCK_FILES | SANDBOX_PART_LANDLOCK_TCP |
                             SANDBOX_PART_LANDLOCK_SOCKETS | SANDBOX_PART_LANDLOCK_SIGNALS,
};

/* Returns the parts for a worker whose stage has these `sandbox_allow` bits. */
static inline uint32_t
sandbox_parts(uint32_t allow)
{
    uint32_t parts = allow & SANDBOX_ALLOW_ALL ? 0 : (1u << SANDBOX_PART_COUNT) - 1;
    if (allow & SANDBOX_ALLOW_FILES)
        parts &= ~(uint32_t)SANDBOX_PART_LANDLOCK_FILES;
    if (allow & SANDBOX_ALLOW_NETWORK)
        parts &= ~(uint32_t)(SANDBOX_PART_LANDLOCK_TCP | SANDBOX_PART_LANDLOCK_SOCKETS);
    if (allow & SANDBOX_ALLOW_PROCESSES)
        parts &= ~(uint32_t)SANDBOX_PART_LANDLOCK_SIGNALS;
    return parts;
}

/* Returns a part's name by the index of its bit. */
static inline const char *
sandbox_part_name(uint32_t index)
{
    static const char *const names[] = {
#define PART(id, name) name,
        SANDBOX_PARTS(PART)
#undef PART
    };
    return index < SANDBOX_PART_COUNT ? names[index] : "?";
}
