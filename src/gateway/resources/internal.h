/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by resources.c and routes.c. */
#pragma once

#include "gateway/resources/resources.h"
#include "serving/manifest/check.h"

/* `priority` of a spec; 0 without one. */
int32_t resource_priority(const struct tree_node *spec);
/* Sets the conditions of all, and makes the routes. INVALID_ARGUMENT: there are too many. */
enum status resources_resolve(struct resource_set *set, struct error *error) WARN_UNUSED;
