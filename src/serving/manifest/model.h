/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model that an InferenceService or a Predictor stands for. Id, type, path and key are byte for
 * byte those of ModelMesh Serving's controller, so that a mesh may change between the two:
 *
 *   1. Both kinds are one predictor's spec: an InferenceService's storage becomes `storage.path`,
 *      `schemaPath`, `parameters`, `key`, with what its URI says among the parameters.
 *   2. The id ends in the first five bytes of the SHA-1 of the spec as Go writes it in JSON.
 *   3. The key has the storage's key and parameters, the format, and the schema's path. The path is
 *      the storage's; a Predictor without a storage has none.
 */
#pragma once

#include "serving/manifest/manifest.h"
#include "yaml/tree.h"

/* The document has been checked without a mistake. Sets `model` and `wanted`, unless it is of
 * another kind. Further mistakes are reported. */
void manifest_model_find(const struct tree_node *document, struct tree_report *report,
                         struct manifest *manifest);

/* Returns whether an annotation bounds a model's copies or states its size. */
bool manifest_is_bound(const char *annotation);

/* The adapter of a ServingRuntime or ClusterServingRuntime; likewise. Variables that no adapter has
 * are reported. */
void manifest_adapter_find(const struct tree_node *document, struct tree_report *report,
                           struct manifest *manifest);

/* Checks the configuration of ModelMesh Serving, if the document is its ConfigMap, and sets `url`.
 */
void manifest_config_find(const struct tree_node *document, struct tree_report *report,
                          struct manifest *manifest);

/* The runtime of one; likewise. */
void manifest_runtime_find(const struct tree_node *document, struct manifest *manifest);
