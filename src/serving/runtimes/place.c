/* SPDX-License-Identifier: Apache-2.0 */
/* Kubernetes' rules for the choice of nodes, by this node's labels and taints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/check.h"
#include "serving/manifest/check.h"
#include "serving/runtimes/plan.h"

enum { LABEL_BYTES = 512, UNWANTED = 1000 };

/* ---- labels ---- */

/* Returns the architecture in Kubernetes' words. */
static const char *
architecture(const struct utsname *host)
{
    static const char *const names[][2] = {{"x86_64", "amd64"}, {"aarch64", "arm64"}};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (strcmp(host->machine, names[i][0]) == 0)
            return names[i][1];
    return host->machine;
}

/* The value of a key in "KEY=VALUE,…". */
static bool
find_in(const char *list, const char *key, char value[LABEL_BYTES])
{
    size_t bytes = strlen(key);
    for (const char *at = list; at != NULL && *at != '\0'; at += *at == ',') {
        size_t length = strcspn(at, ",");
        if (length > bytes && strncmp(at, key, bytes) == 0 && at[bytes] == '=') {
            snprintf(value, LABEL_BYTES, "%.*s", (int)(length - bytes - 1), at + bytes + 1);
            return true;
        }
        at += length;
    }
    return false;
}

static bool
label(const struct runtime_host *host, const char *key, char value[LABEL_BYTES])
{
    struct utsname machine;
    CHECK(uname(&machine) == 0);
    const char *const own[][2] = {{"kubernetes.io/arch", architecture(&machine)},
                                  {"kubernetes.io/os", "linux"},
                                  {"kubernetes.io/hostname", host->instance}};
    if (find_in(host->labels, key, value))
        return true;
    for (size_t i = 0; i < ARRAY_COUNT(own); i++)
        if (strcmp(own[i][0], key) == 0) {
            snprintf(value, LABEL_BYTES, "%s", own[i][1]);
            return true;
        }
    return false;
}

/* ---- expressions ---- */

static bool
has_value(const struct tree_node *values, const char *value)
{
    for (const struct tree_node *one = values != NULL ? values->first : NULL; one != NULL;
         one = one->next)
        if (strcmp(one->text, value) == 0)
            return true;
    return false;
}

static bool
is_beyond(const struct tree_node *values, const char *value, const char *operator)
{
    if (values == NULL || values->first == NULL)
        return false;
    long long limit = strtoll(values->first->text, NULL, 10);
    long long is = strtoll(value, NULL, 10);
    return strcmp(operator, "Gt") == 0 ? is > limit : is < limit;
}

static bool
matches(const struct tree_node *expression, bool there, const char *value)
{
    const char *operator= manifest_text(expression, "operator");
    const struct tree_node *values = manifest_find(expression, "values");
    if (strcmp(operator, "In") == 0)
        return there && has_value(values, value);
    if (strcmp(operator, "NotIn") == 0)
        return !there || !has_value(values, value);
    if (strcmp(operator, "Exists") == 0)
        return there;
    if (strcmp(operator, "DoesNotExist") == 0)
        return !there;
    return there && is_beyond(values, value, operator);
}

/* A term without expressions matches no node. */
static bool
term_matches(const struct tree_node *term, const struct runtime_host *host)
{
    const struct tree_node *labels = manifest_find(term, "matchExpressions");
    const struct tree_node *fields = manifest_find(term, "matchFields");
    char value[LABEL_BYTES] = "";
    bool any = false;
    for (const struct tree_node *one = labels != NULL ? labels->first : NULL; one != NULL;
         one = one->next) {
        bool there = label(host, manifest_text(one, "key"), value);
        any = true;
        if (!matches(one, there, value))
            return false;
    }
    for (const struct tree_node *one = fields != NULL ? fields->first : NULL; one != NULL;
         one = one->next) {
        any = true;
        if (strcmp(manifest_text(one, "key"), "metadata.name") != 0 ||
            !matches(one, true, host->instance))
            return false;
    }
    return any;
}

/* ---- the three kinds of rules ---- */

static void
select_node(const struct tree_node *spec, const struct runtime_host *host, struct bytes *problems)
{
    const struct tree_node *selector = manifest_find(spec, "nodeSelector");
    char value[LABEL_BYTES];
    for (const struct tree_node *one = selector != NULL ? selector->first : NULL; one != NULL;
         one = one->next) {
        bool there = label(host, one->key, value);
        if (!there)
            runtime_problem(problems,
                            "nodeSelector: this node has no label %.100s (mesh: "
                            "node_labels)",
                            one->key);
        else if (strcmp(one->text, value) != 0)
            runtime_problem(problems,
                            "nodeSelector: %.100s must be \"%.100s\", and this node's is "
                            "\"%.100s\"",
                            one->key, one->text, value);
    }
}

static void
judge_affinity(const struct tree_node *spec, const struct runtime_host *host,
               struct bytes *problems, int64_t *preference)
{
    const struct tree_node *affinity =
        manifest_find(manifest_find(spec, "affinity"), "nodeAffinity");
    const struct tree_node *terms =
        manifest_find(manifest_find(affinity, "requiredDuringSchedulingIgnoredDuringExecution"),
                      "nodeSelectorTerms");
    const struct tree_node *preferred =
        manifest_find(affinity, "preferredDuringSchedulingIgnoredDuringExecution");
    bool fits = terms == NULL;
    for (const struct tree_node *one = terms != NULL ? terms->first : NULL; one != NULL;
         one = one->next)
        fits = fits || term_matches(one, host);
    if (!fits)
        runtime_problem(problems, "affinity: this node's labels match none of the "
                                  "nodeSelectorTerms");
    for (const struct tree_node *one = preferred != NULL ? preferred->first : NULL; one != NULL;
         one = one->next)
        if (term_matches(manifest_find(one, "preference"), host))
            *preference += strtoll(manifest_text(one, "weight"), NULL, 10);
}

struct taint {
    char key[LABEL_BYTES];
    char value[LABEL_BYTES];
    char effect[32];
};

static bool
is_same(const char *wanted, const char *is)
{
    return wanted == NULL || strcmp(wanted, is) == 0;
}

static bool
tolerates(const struct tree_node *toleration, const struct taint *taint)
{
    const char *operator= manifest_text(toleration, "operator");
    const char *value = manifest_text(toleration, "value");
    bool exists = operator!= NULL && strcmp(operator, "Exists") == 0;
    const char *key = manifest_text(toleration, "key");
    return is_same(manifest_text(toleration, "effect"), taint->effect) &&
           is_same(key, taint->key) && (exists || key != NULL) &&
           (exists || strcmp(value != NULL ? value : "", taint->value) == 0);
}

/* "KEY=VALUE:EFFECT" or "KEY:EFFECT", which the configuration has checked. */
static void
read_taint(const char *text, size_t bytes, struct taint *taint)
{
    const char *colon = memrchr(text, ':', bytes);
    CHECK(colon != NULL);
    size_t length = (size_t)(colon - text);
    const char *equals = memchr(text, '=', length);
    size_t key = equals != NULL ? (size_t)(equals - text) : length;
    snprintf(taint->key, sizeof(taint->key), "%.*s", (int)key, text);
    snprintf(taint->value, sizeof(taint->value), "%.*s",
             equals != NULL ? (int)(length - key - 1) : 0, text + key + 1);
    snprintf(taint->effect, sizeof(taint->effect), "%.*s", (int)(bytes - length - 1), colon + 1);
}

static void
judge_taints(const struct tree_node *spec, const struct runtime_host *host, struct bytes *problems,
             int64_t *preference)
{
    const struct tree_node *list = manifest_find(spec, "tolerations");
    for (const char *at = host->taints; at != NULL && *at != '\0'; at += *at == ',') {
        size_t bytes = strcspn(at, ",");
        struct taint taint;
        bool tolerated = false;
        read_taint(at, bytes, &taint);
        for (const struct tree_node *one = list != NULL ? list->first : NULL; one != NULL;
             one = one->next)
            tolerated = tolerated || tolerates(one, &taint);
        if (!tolerated && strcmp(taint.effect, "PreferNoSchedule") == 0)
            *preference -= UNWANTED;
        else if (!tolerated)
            runtime_problem(problems, "tolerations: none is for this node's taint %.*s", (int)bytes,
                            at);
        at += bytes;
    }
}

void
runtime_place(const struct tree_node *spec, const struct runtime_host *host, struct bytes *problems,
              int64_t *preference)
{
    select_node(spec, host, problems);
    judge_affinity(spec, host, problems, preference);
    judge_taints(spec, host, problems, preference);
}
