/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job itself, without a service: digits are normalized, classified by XGBoost and labelled in
 * one process and one thread, N images per call of the library. Shoal's rate with the same model is
 * a share of this one.
 *
 *     xgboost_bench --model digits.ubj --rows FILE [--batch N,...] [--seconds S] [--cpu N]
 *                   [--answers FILE] [--json]
 *
 * `--rows`: images of 64 FP32 pixels, one after the other; they are taken in turn. `--answers` is
 * written: for each image the label (INT64) and ten probabilities (FP32), as the service has to
 * answer bit by bit. One line is printed for each batch size. Exit code 2: no figures.
 */
#include "samples.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>

#include <xgboost/c_api.h>

#define PIXEL_MAX 16.0f

enum {
    PIXELS = 64,
    CLASSES = 10,
    BATCH_MAX = 4096,
    BATCHES_MAX = 8,
    ROWS_MAX = 1 << 16,
    SAMPLES_MAX = 4 << 20,
    WARMUP_CALLS = 200,
    ARRAY_TEXT_MAX = 160,
};

struct answer {
    int64_t label;
    float probabilities[CLASSES];
};

struct options {
    const char *model;
    const char *rows;
    const char *answers;
    uint64_t batches[BATCHES_MAX];
    unsigned batch_count;
    double seconds;
    bool json;
};

static struct options options = {.batches = {1, 64}, .batch_count = 2, .seconds = 1};
static BoosterHandle booster;
static float *rows;
static size_t row_count;
static size_t row_next;
static float input[BATCH_MAX * PIXELS];
static struct answer answers[BATCH_MAX];

static void
require(int result, const char *doing)
{
    if (result != 0)
        BENCH_FAIL("%s: %s", doing, XGBGetLastError());
}

static void
model_open(void)
{
    require(XGBoosterCreate(NULL, 0, &booster), "making a model");
    require(XGBoosterSetParam(booster, "nthread", "1"), "one thread");
    require(XGBoosterLoadModel(booster, options.model), options.model);
    require(XGBoosterSetParam(booster, "nthread", "1"), "one thread");
}

static void
rows_read(void)
{
    FILE *file = fopen(options.rows, "rb");
    rows = malloc((size_t)ROWS_MAX * PIXELS * sizeof(rows[0]));
    if (file == NULL || rows == NULL)
        BENCH_FAIL("cannot open %s: %s", options.rows, strerror(errno));
    row_count = fread(rows, PIXELS * sizeof(rows[0]), ROWS_MAX, file);
    fclose(file);
    if (row_count == 0)
        BENCH_FAIL("%s: not one image of %d pixels", options.rows, PIXELS);
}

static const float *
predict(size_t count)
{
    static const char how[] =
        "{\"type\":0,\"training\":false,\"strict_shape\":true,\"missing\":NaN,\"cache_id\":0,"
        "\"iteration_begin\":0,\"iteration_end\":0}";
    char array[ARRAY_TEXT_MAX];
    snprintf(array, sizeof(array),
             "{\"data\":[%" PRIuPTR ",true],\"shape\":[%zu,%d],\"typestr\":\"<f4\",\"version\":3}",
             (uintptr_t)input, count, PIXELS);
    const bst_ulong *shape;
    bst_ulong rank;
    const float *outputs;
    require(XGBoosterPredictFromDense(booster, array, how, NULL, &shape, &rank, &outputs),
            "predicting");
    if (rank < 2 || shape[0] != count || shape[1] != CLASSES)
        BENCH_FAIL("%s does not tell %d classes apart", options.model, CLASSES);
    return outputs;
}

/* All three stages on the next `count` images. */
static void
classify(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const float *row = rows + row_next * PIXELS;
        for (size_t k = 0; k < PIXELS; k++)
            input[i * PIXELS + k] = row[k] / PIXEL_MAX;
        row_next = row_next + 1 == row_count ? 0 : row_next + 1;
    }
    const float *outputs = predict(count);
    for (size_t i = 0; i < count; i++) {
        struct answer *answer = &answers[i];
        memcpy(answer->probabilities, outputs + i * CLASSES, sizeof(answer->probabilities));
        answer->label = 0;
        for (int64_t class = 1; class < CLASSES; class ++)
            if (answer->probabilities[class] > answer->probabilities[answer->label])
                answer->label = class;
    }
}

static void
answers_write(void)
{
    FILE *file = fopen(options.answers, "wb");
    if (file == NULL)
        BENCH_FAIL("cannot open %s: %s", options.answers, strerror(errno));
    for (size_t i = 0; i < row_count; i++) {
        classify(1);
        fwrite(&answers[0].label, sizeof(answers[0].label), 1, file);
        fwrite(answers[0].probabilities, sizeof(answers[0].probabilities), 1, file);
    }
    if (fclose(file) != 0)
        BENCH_FAIL("cannot write %s: %s", options.answers, strerror(errno));
}

static void
measure(size_t batch)
{
    static struct samples samples;
    samples_init(&samples, SAMPLES_MAX);
    for (int i = 0; i < WARMUP_CALLS; i++)
        classify(batch);
    uint64_t cpu_ns = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t begin_ns = bench_now_ns();
    uint64_t end_ns = begin_ns + (uint64_t)(options.seconds * 1e9);
    uint64_t now_ns = begin_ns;
    while (now_ns < end_ns && !samples_full(&samples)) {
        uint64_t called_ns = now_ns;
        classify(batch);
        now_ns = bench_now_ns();
        samples_add(&samples, now_ns - called_ns);
    }
    double images = (double)(samples.count * batch);
    double cpu_us = (double)(bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns) / 1e3;
    samples_sort(&samples);
    printf(options.json ? "{\"bench\": \"xgboost\", \"batch\": %zu, \"requests_per_s\": %.1f, "
                          "\"p50_us\": %.2f, \"p99_us\": %.2f, \"cpu_us_per_request\": %.2f}\n"
                        : "batch %zu  requests_per_s %.1f  p50_us %.2f  p99_us %.2f  "
                          "cpu_us_per_request %.2f\n",
           batch, images / ((double)(now_ns - begin_ns) / 1e9), samples_percentile_us(&samples, 50),
           samples_percentile_us(&samples, 99), cpu_us / images);
    samples_fini(&samples);
}

static const char usage[] =
    "Usage: xgboost_bench --model FILE --rows FILE [--batch N,...] [--seconds S] [--cpu N]\n"
    "                     [--answers FILE] [--json] [--help]\n";

static const struct option OPTIONS[] = {
    {"model", required_argument, NULL, 'm'},
    {"rows", required_argument, NULL, 'r'},
    {"answers", required_argument, NULL, 'a'},
    {"batch", required_argument, NULL, 'b'},
    {"seconds", required_argument, NULL, 's'},
    {"cpu", required_argument, NULL, 'c'},
    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static void
parse_batches(char *list)
{
    options.batch_count = 0;
    for (char *rest, *word = strtok_r(list, ",", &rest); word != NULL;
         word = strtok_r(NULL, ",", &rest)) {
        if (options.batch_count == BATCHES_MAX)
            BENCH_FAIL("--batch: more than %d numbers", BATCHES_MAX);
        options.batches[options.batch_count++] = bench_number("batch", word, 1, BATCH_MAX);
    }
}

static void
parse(int argc, char **argv)
{
    int option;
    while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
        switch (option) {
        case 'm': options.model = optarg; break;
        case 'r': options.rows = optarg; break;
        case 'a': options.answers = optarg; break;
        case 'b': parse_batches(optarg); break;
        case 's': options.seconds = strtod(optarg, NULL); break;
        case 'c': bench_pin((int)bench_number("cpu", optarg, 0, CPU_SETSIZE - 1)); break;
        case 'j': options.json = true; break;
        case 'h': fputs(usage, stdout); exit(0);
        default: BENCH_FAIL("%s", usage);
        }
    }
    if (optind != argc || options.model == NULL || options.rows == NULL ||
        !(options.seconds > 0 && isfinite(options.seconds)))
        BENCH_FAIL("%s", usage);
}

int
main(int argc, char **argv)
{
    parse(argc, argv);
    rows_read();
    model_open();
    if (options.answers != NULL)
        answers_write();
    for (unsigned i = 0; i < options.batch_count; i++)
        measure(options.batches[i]);
    require(XGBoosterFree(booster), "giving the model back");
    free(rows);
    return 0;
}
