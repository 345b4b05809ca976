/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The health of models for grpc.health.v1.Health.
 */
#pragma once

#include "coordinator/protocol/services.h"

struct model_registry;

/* Each model by its id: SERVING when it is loaded. */
struct health_others model_health(struct model_registry *registry);
