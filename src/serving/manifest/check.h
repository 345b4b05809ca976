/* SPDX-License-Identifier: Apache-2.0 */
/* Documents against the schema, and finding values in them. */
#pragma once

#include "base/bytes.h"
#include "serving/manifest/schema.h"
#include "yaml/tree.h"

/* Checks a document against its kind's fields, reports each mistake with its field, and appends the
 * canonical form, which is useless after a mistake. */
void manifest_check(const struct tree_node *document, const struct schema *schema,
                    struct tree_report *report, struct bytes *json);

/* The value of a key; NULL: absent, null, or `map` is no map. */
const struct tree_node *manifest_find(const struct tree_node *map, const char *key);
/* The same for a text; NULL: absent. */
const char *manifest_text(const struct tree_node *map, const char *key);

/* A map's entries in the order of their keys, in an array to be freed. */
const struct tree_node **manifest_sorted(const struct tree_node *map);
