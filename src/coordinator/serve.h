/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `shoald serve PATH...`: makes a configuration for models that are named on the command line.
 *
 * A PATH is a model or a folder of models, here or, as an URI, elsewhere: then it is fetched first.
 * A file is a model of its name without the ending; a folder with a file `model.*`, with a key, or
 * with numbered versions is a model of its name. Each of them is a pipeline of its own; that of
 * numbered versions is the root of this one model, so that a new version is found. Any other folder
 * is the root of models that come and go (models/model_directory.h), with a pipeline for each
 * format whose modelet is installed.
 */
#pragma once

#include <stdint.h>

#include "base/bytes.h"
#include "base/error.h"

enum { SERVE_PATH_BYTES = 32, SERVE_ADDRESS_BYTES = 300 };

struct serve_options {
    const char *const *paths;
    uint32_t path_count;
    const char *server_name; /* NULL: the configuration's default */
    const char *host;        /* as in a URL: IPv6 in brackets */
    uint16_t grpc_port;
    uint16_t http_port, metrics_port, dashboard_port; /* 0: not served */
    uint32_t workers;                                 /* of each pipeline; 0: chosen */
    uint32_t memory_mib;                              /* for models of the folder; 0: chosen */
    uint32_t cache_gib;                               /* for what URIs name; 0: none */
};

/* Appends the configuration, as YAML. INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION: the error
 * names the path and the remedy. */
enum status serve_write_config(const struct serve_options *options, struct bytes *yaml,
                               struct error *error) WARN_UNUSED;

/* Puts the configuration where config_load finds it, for as long as the process lives: `path` is
 * its name. */
enum status serve_keep_config(const struct bytes *yaml, char path[SERVE_PATH_BYTES],
                              struct error *error) WARN_UNUSED;
