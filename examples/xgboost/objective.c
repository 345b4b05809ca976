/* SPDX-License-Identifier: Apache-2.0 */
#include "objective.h"

#include <stddef.h>
#include <string.h>

/* XGBoost's multi:softmax predicts the class alone, as a float. The trees are the same as those of
 * multi:softprob, whose prediction has the probabilities, too. */
static const struct objective objectives[] = {
    {"binary:logistic", "probabilities", OBJECTIVE_THRESHOLD, 0.5F, NULL},
    {"binary:logitraw", "prediction", OBJECTIVE_THRESHOLD, 0, NULL},
    {"binary:hinge", "prediction", OBJECTIVE_THRESHOLD, 0.5F, NULL},
    {"multi:softprob", "probabilities", OBJECTIVE_LARGEST, 0, NULL},
    {"multi:softmax", "probabilities", OBJECTIVE_LARGEST, 0, "multi:softprob"},
};

static const struct objective other = {"", "prediction", OBJECTIVE_NONE, 0, NULL};

const struct objective *
objective_of(const char *name)
{
    for (size_t i = 0; i < sizeof objectives / sizeof *objectives; i++)
        if (strcmp(objectives[i].name, name) == 0)
            return &objectives[i];
    return &other;
}

int64_t
objective_label_count(const struct objective *objective, int64_t outputs)
{
    return objective->classes == OBJECTIVE_THRESHOLD ? outputs : 1;
}

static int64_t
largest(const float *row, int64_t outputs)
{
    int64_t best = 0;
    for (int64_t i = 1; i < outputs; i++)
        if (row[i] > row[best])
            best = i;
    return best;
}

void
objective_label(const struct objective *objective, const float *predicted, int64_t rows,
                int64_t outputs, int64_t *labels)
{
    if (objective->classes == OBJECTIVE_LARGEST)
        for (int64_t row = 0; row < rows; row++)
            labels[row] = largest(predicted + row * outputs, outputs);
    else
        for (int64_t i = 0; i < rows * outputs; i++)
            labels[i] = predicted[i] > objective->threshold;
}
