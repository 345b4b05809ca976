/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains the model of the digits example on four fifths of the images and tests it on the held-out
 * fifth: `digits-train digits.csv digits.ubj`. One thread and a fixed seed, so that every build
 * makes the same model. A model below the required accuracy is not written.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <xgboost/c_api.h>

#include "digits.h"

enum { ROUNDS = 60, MATRIX_TEXT_MAX = 256 };
#define PIXEL_MAX 16.0f /* as in normalize.c: the model sees that stage's output */
#define ACCURACY_MIN 0.95

static const char *const parameters[][2] = {
    {"objective", "multi:softprob"},
    {"num_class", "10"},
    {"tree_method", "hist"},
    {"max_depth", "4"},
    {"eta", "0.3"},
    {"subsample", "0.7"},
    {"colsample_bytree", "0.5"},
    {"seed", "2"},
    {"nthread", "1"},
    {"verbosity", "1"},
};

static bool
succeeded(int result, const char *doing)
{
    if (result != 0)
        fprintf(stderr, "digits-train: %s: %s\n", doing, XGBGetLastError());
    return result == 0;
}

static bool
matrix_create(const struct digits *digits, DMatrixHandle *matrix)
{
    char data[MATRIX_TEXT_MAX];
    snprintf(data, sizeof data,
             "{\"data\":[%" PRIuPTR ",true],\"shape\":[%zu,%d],\"typestr\":\"<f4\",\"version\":3}",
             (uintptr_t)digits->pixels, digits->count, DIGITS_PIXELS);
    if (!succeeded(XGDMatrixCreateFromDense(data, "{\"missing\":NaN,\"nthread\":1}", matrix),
                   "reading the pixels"))
        return false;
    return succeeded(XGDMatrixSetFloatInfo(*matrix, "label", digits->labels, digits->count),
                     "reading the labels");
}

static bool
train(DMatrixHandle matrix, BoosterHandle *booster)
{
    if (!succeeded(XGBoosterCreate(&matrix, 1, booster), "making a model"))
        return false;
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++) {
        if (!succeeded(XGBoosterSetParam(*booster, parameters[i][0], parameters[i][1]),
                       parameters[i][0]))
            return false;
    }
    for (int round = 0; round < ROUNDS; round++) {
        if (!succeeded(XGBoosterUpdateOneIter(*booster, round, matrix), "training"))
            return false;
    }
    return true;
}

/* Returns the fraction of images whose most probable class is correct. */
static bool
accuracy_measure(BoosterHandle booster, DMatrixHandle matrix, const struct digits *digits,
                 double *accuracy)
{
    const bst_ulong *shape;
    const float *probabilities;
    bst_ulong dimensions;
    if (!succeeded(
            XGBoosterPredictFromDMatrix(booster, matrix,
                                        "{\"type\":0,\"training\":false,\"strict_shape\":true,"
                                        "\"iteration_begin\":0,\"iteration_end\":0}",
                                        &shape, &dimensions, &probabilities),
            "trying the model"))
        return false;
    size_t right = 0;
    for (size_t row = 0; row < digits->count; row++) {
        const float *of_row = probabilities + row * DIGITS_CLASSES;
        size_t best = 0;
        for (size_t class = 1; class < DIGITS_CLASSES; class ++) {
            if (of_row[class] > of_row[best])
                best = class;
        }
        right += digits->labels[row] == (float)best;
    }
    *accuracy = (double)right / (double)digits->count;
    printf("trained on four fifths, %zu of %zu held-out digits right: %.2f %%\n", right,
           digits->count, *accuracy * 100);
    return true;
}

static bool
train_and_save(const struct digits *seen, const struct digits *unseen, const char *model)
{
    DMatrixHandle matrices[2] = {NULL, NULL};
    BoosterHandle booster = NULL;
    double accuracy = 0;
    bool saved = false;
    if (!matrix_create(seen, &matrices[0]) || !matrix_create(unseen, &matrices[1]) ||
        !train(matrices[0], &booster) || !accuracy_measure(booster, matrices[1], unseen, &accuracy))
        goto out;
    if (accuracy < ACCURACY_MIN) {
        fprintf(stderr, "digits-train: less than %.0f %%\n", ACCURACY_MIN * 100);
        goto out;
    }
    saved = succeeded(XGBoosterSaveModel(booster, model), "writing the model");
out:
    if (booster != NULL)
        XGBoosterFree(booster);
    for (size_t i = 0; i < 2; i++) {
        if (matrices[i] != NULL)
            XGDMatrixFree(matrices[i]);
    }
    return saved;
}

int
main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: digits-train DATA.csv MODEL.ubj\n");
        return 2;
    }
    struct digits all = {0};
    struct digits seen = {0};
    struct digits unseen = {0};
    bool done = false;
    if (digits_read(argv[1], &all)) {
        for (size_t i = 0; i < all.count * DIGITS_PIXELS; i++)
            all.pixels[i] /= PIXEL_MAX;
        done = digits_select(&all, false, &seen) && digits_select(&all, true, &unseen) &&
               train_and_save(&seen, &unseen, argv[2]);
    }
    digits_free(&unseen);
    digits_free(&seen);
    digits_free(&all);
    return done ? 0 : 1;
}
