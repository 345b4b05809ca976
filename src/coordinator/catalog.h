/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a pipeline has of its models beside models.h. Loop thread.
 */
#pragma once

struct catalog;
struct pipeline;
struct registry;

struct catalog *catalog_create(struct registry *registry, struct pipeline *pipeline);
/* When the pipeline has stopped: whoever waits has been told. NULL is left alone. */
void catalog_destroy(struct catalog *catalog);
