/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meaning of an objective's prediction: the name under which it is served, and the class that
 * follows from it. The names are those that ONNX converters give a classifier's outputs, so that a
 * client need not know which format a model has. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum objective_classes {
    OBJECTIVE_NONE,      /* a regression, a ranking, or an objective of the caller's own */
    OBJECTIVE_THRESHOLD, /* each output is a yes or no of its own: more than `threshold` */
    OBJECTIVE_LARGEST    /* one class of all: that of the largest output */
};

struct objective {
    const char *name;
    const char *output;
    enum objective_classes classes;
    float threshold;
    const char *predicted_as; /* the objective to predict with; NULL: its own */
};

/* Every name has an answer. */
const struct objective *objective_of(const char *name);

/* How many labels a row with that many outputs has. */
int64_t objective_label_count(const struct objective *objective, int64_t outputs);
/* Writes the labels of `rows` rows of predictions. */
void objective_label(const struct objective *objective, const float *predicted, int64_t rows,
                     int64_t outputs, int64_t *labels);
