/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "serving/reconcile/reconcile.h"

/* Returns whether a word is in a list with commas. */
static bool
has_word(const char *list, const char *word)
{
    size_t bytes = strlen(word);
    for (const char *at = list; *at != '\0'; at += *at == ',') {
        size_t length = strcspn(at, ",");
        if (length == bytes && memcmp(at, word, bytes) == 0)
            return true;
        at += length;
    }
    return false;
}

static bool
same(const char *one, const char *other)
{
    return one != NULL && other != NULL && strcmp(one, other) == 0;
}

static bool
takes_protocol(const struct serving_runtime *runtime, const char *protocol)
{
    for (uint32_t i = 0; i < runtime->protocol_count; i++)
        if (same(runtime->protocols[i], protocol))
            return true;
    return false;
}

static bool
selects(const struct serving_runtime *runtime, const struct serving_wanted *wanted)
{
    if (runtime->disabled || !runtime->multi_model ||
        (wanted->protocol != NULL && !takes_protocol(runtime, wanted->protocol)))
        return false;
    for (uint32_t i = 0; i < runtime->format_count; i++) {
        const struct serving_format *format = &runtime->formats[i];
        if (format->auto_select && same(format->name, wanted->format) &&
            (wanted->version == NULL || same(format->version, wanted->version)))
            return true;
    }
    return false;
}

/* Decides by labels, as a runtime of ModelMesh Serving gives them to its node. */
static bool
is_labelled(const struct serving_node *node, const struct serving_wanted *wanted)
{
    char label[512];
    if (wanted->runtime != NULL) {
        snprintf(label, sizeof(label), "rt:%s", wanted->runtime);
        return has_word(node->labels, label);
    }
    snprintf(label, sizeof(label), "mt:%s%s%s", wanted->format, wanted->version != NULL ? ":" : "",
             wanted->version != NULL ? wanted->version : "");
    if (!has_word(node->labels, label))
        return false;
    snprintf(label, sizeof(label), "pv:%s", wanted->protocol != NULL ? wanted->protocol : "");
    return wanted->protocol == NULL || has_word(node->labels, label);
}

/* Decides by its pools, which are this node's pipelines: they have no versions and all protocols. A
 * pool for all types counts only while there are no ServingRuntimes to choose from. */
static bool
is_pooled(const struct serving_node *node, const struct serving_wanted *wanted, bool has_runtimes)
{
    if (wanted->runtime != NULL)
        return false;
    if (node->pool_count == 0)
        return !has_runtimes;
    for (uint32_t i = 0; i < node->pool_count; i++)
        if (has_word(node->pool_types[i], wanted->format) ||
            (!has_runtimes && strcmp(node->pool_types[i], "*") == 0))
            return true;
    return false;
}

/* Decides by the labels of nodes: WAITS if it rests wherever it is. */
static enum serving_support
support_of_nodes(const struct serving_wanted *wanted, const struct serving_offers *offers)
{
    enum serving_support support = SERVING_NO_RUNTIME;
    for (uint32_t i = 0; i < offers->node_count; i++) {
        const struct serving_node *node = &offers->nodes[i];
        if (!is_labelled(node, wanted))
            continue;
        if (!has_word(node->labels, SERVING_LABEL_RESTS))
            return SERVING_SUPPORTED;
        support = SERVING_WAITS;
    }
    return support;
}

static bool
has_pool(const struct serving_wanted *wanted, const struct serving_offers *offers)
{
    for (uint32_t i = 0; i < offers->node_count; i++)
        if (is_pooled(&offers->nodes[i], wanted, offers->runtime_count > 0))
            return true;
    return false;
}

enum serving_support
serving_support(const struct serving_wanted *wanted, const struct serving_offers *offers)
{
    enum serving_support by_nodes = support_of_nodes(wanted, offers);
    if (by_nodes != SERVING_NO_RUNTIME)
        return by_nodes;
    for (uint32_t i = 0; i < offers->runtime_count; i++) {
        const struct serving_runtime *runtime = &offers->runtimes[i];
        if (wanted->runtime == NULL && selects(runtime, wanted))
            return SERVING_WAITS;
        if (same(runtime->name, wanted->runtime))
            return runtime->disabled || !runtime->multi_model ? SERVING_RUNTIME_DISABLED
                                                              : SERVING_WAITS;
    }
    if (has_pool(wanted, offers))
        return SERVING_SUPPORTED;
    return wanted->runtime != NULL ? SERVING_RUNTIME_UNKNOWN : SERVING_NO_RUNTIME;
}
