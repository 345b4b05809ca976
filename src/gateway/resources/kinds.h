/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of each kind of resource, as data. */
#pragma once

#include "gateway/resources/resources.h"
#include "serving/manifest/schema.h"

/* `api` lists the versions that are the same here: "a|b". */
extern const struct schema resource_kinds[RESOURCE_KINDS];
