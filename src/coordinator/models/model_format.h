/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The formats of models that this node can recognize by the first bytes of a file, and the modelet
 * that serves each. A model whose key names no type has its format's name as its type, so that
 * pipelines of one root can divide models by format (`types: [xgboost]`). Pure.
 */
#pragma once

#include <stddef.h>

enum { FORMAT_BYTES = 64, FORMAT_COUNT = 3 };

struct model_format {
    const char *name;    /* "xgboost" */
    const char *modelet; /* "libxgboost_modelet.so" */
    const char *endings; /* of its files, for people: ".json, .ubj" */
    const char *params;  /* of the stage that `shoald serve` makes: "labels: on"; NULL: none */
};

extern const struct model_format model_formats[FORMAT_COUNT];

/* The format of a file that begins so; NULL: none of these. FORMAT_BYTES are enough. */
const struct model_format *model_format_of(const void *bytes, size_t size);

/* Says whether the name of a file marks it as a model. `.json` alone says nothing. */
enum model_format_name { FORMAT_NAME_NONE, FORMAT_NAME_MODEL };
enum model_format_name model_format_name(const char *name);
