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

/* Returns whether the text is one of "a|b". */
bool manifest_is_word(const char *words, const char *text);
/* The kind of a document, among those from `first` on. False: reported. */
bool manifest_find_kind(const struct tree_node *document, enum manifest_kind first,
                        enum manifest_kind *kind, struct tree_report *report);
/* Rules for a document of the gateway that its table cannot state. */
void manifest_gateway_check(enum manifest_kind kind, const struct tree_node *document,
                            struct tree_report *report);

/* The value of a key; NULL: absent, null, or `map` is no map. */
const struct tree_node *manifest_find(const struct tree_node *map, const char *key);
/* Like manifest_find(), for a text; NULL: absent. */
const char *manifest_text(const struct tree_node *map, const char *key);

/* A map's entries in the order of their keys, in an array to be freed. */
const struct tree_node **manifest_sorted(const struct tree_node *map);
