/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_claims.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"

#define CLAIM "runs:"

enum { PAGE = 64, REPLICAS_USUAL = 2 };

const char *
mesh_claims_label(enum manifest_kind kind, const char *runtime)
{
    static char label[MANIFEST_NAME_BYTES_MAX + 32];
    snprintf(label, sizeof(label), CLAIM "%s%s",
             kind == MANIFEST_CLUSTER_SERVING_RUNTIME ? "cluster/" : "", runtime);
    return label;
}

/* ---- counting ---- */

struct claim_count {
    struct serving_leader *leader;
    const char *instance;
    enum manifest_kind kind;
    const char *runtime;
    const char *label;
    int64_t start_ms; /* this node's; INT64_MAX: it has no record yet */
    struct mesh_claims *claims;
};

static bool
has_label(const char *labels, const char *label)
{
    size_t bytes = strlen(label);
    for (const char *at = labels; *at != '\0'; at += *at == ',') {
        size_t length = strcspn(at, ",");
        if (length == bytes && memcmp(at, label, bytes) == 0)
            return true;
        at += length;
    }
    return false;
}

/* It can run this runtime, and runs none or one that rests and would make way. */
static bool
is_free(const struct claim_count *count, const struct mesh_instance *instance)
{
    bool claims = strncmp(instance->labels, CLAIM, strlen(CLAIM)) == 0 ||
                  strstr(instance->labels, "," CLAIM) != NULL;
    return !instance->draining && (!claims || has_label(instance->labels, SERVING_LABEL_RESTS)) &&
           serving_can_run(count->leader, instance->id, count->kind, count->runtime);
}

/* Called under the runner's lock, as the next one. */
static void
find_own(void *context, const struct mesh_instance *instance)
{
    struct claim_count *count = context;
    if (strcmp(instance->id, count->instance) == 0)
        count->start_ms = instance->start_ms;
}

static void
count_one(void *context, const struct mesh_instance *instance)
{
    struct claim_count *count = context;
    int order = strcmp(instance->id, count->instance);
    if (order == 0)
        return;
    if (!has_label(instance->labels, count->label)) {
        count->claims->free += is_free(count, instance);
        return;
    }
    count->claims->others++;
    count->claims->before += instance->start_ms < count->start_ms ||
                             (instance->start_ms == count->start_ms && order < 0);
}

static void
visit(struct mesh_runner *runner, struct claim_count *count,
      void (*look)(void *context, const struct mesh_instance *instance))
{
    uint64_t from = 0;
    do {
        from = runner_visit_instances(runner, from, PAGE, look, count);
    } while (from != 0);
}

void
mesh_claims_count(struct mesh_runner *runner, struct serving_leader *leader, const char *instance,
                  enum manifest_kind kind, const char *runtime, struct mesh_claims *claims)
{
    struct claim_count count = {
        .leader = leader,
        .instance = instance,
        .kind = kind,
        .runtime = runtime,
        .label = mesh_claims_label(kind, runtime),
        .start_ms = INT64_MAX,
        .claims = claims,
    };
    claims->others = claims->before = claims->free = 0;
    visit(runner, &count, find_own);
    visit(runner, &count, count_one);
}

/* ---- replicas ---- */

uint64_t
mesh_claims_usual(struct serving_leader *leader)
{
    uint64_t replicas = serving_pods_per_runtime(leader);
    return replicas != 0 ? replicas : REPLICAS_USUAL;
}

/* ---- labels ---- */

static int
by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static size_t
split(char *list, char **labels)
{
    size_t count = 0;
    char *rest = NULL;
    for (char *one = strtok_r(list, ",", &rest); one != NULL; one = strtok_r(NULL, ",", &rest))
        labels[count++] = one;
    return count;
}

char *
mesh_claims_labels(const char *own, const char *claim, const char *of_runtime)
{
    char *list = NULL;
    struct bytes sorted = {0};
    CHECK(asprintf(&list, "%s,%s,%s", own, claim != NULL ? claim : "", of_runtime) >= 0);
    char **labels = calloc(strlen(list) / 2 + 2, sizeof(char *));
    CHECK(labels != NULL);
    size_t count = split(list, labels);
    qsort(labels, count, sizeof(char *), by_text);
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && strcmp(labels[i], labels[i - 1]) == 0)
            continue;
        bytes_put_text(&sorted, i > 0 ? "," : "");
        bytes_put_text(&sorted, labels[i]);
    }
    bytes_put_char(&sorted, '\0');
    CHECK(!sorted.failed);
    free(labels);
    free(list);
    return bytes_take(&sorted, &(size_t){0});
}
