/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks that the node could listen where its configuration says: binds TCP addresses for a moment,
 * without listening, and looks at unix sockets. An address in use is no mistake: a running node,
 * which is about to be reloaded or restarted, has it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/config/config.h"

struct addresses_found {
    uint32_t free;
    uint32_t in_use;
};

/* `failure`: 0, or the errno of binding it. INVALID_ARGUMENT: this is no address. */
enum status check_tcp_address(const char *address, int *failure, struct error *error) WARN_UNUSED;

/* `listen` stands for the configuration's. Calls `say` with each mistake; returns their number. */
uint32_t check_addresses(const struct config *config, const char *const *listen,
                         uint32_t listen_count, struct addresses_found *found,
                         void (*say)(const char *mistake));

/* Returns whether somebody listens at that TCP address. */
bool check_address_is_used(const char *address);
