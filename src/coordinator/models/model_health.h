/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models, as whoever asks grpc.health.v1.Health hears of them.
 */
#pragma once

#include "coordinator/protocol/services.h"

struct registry;

/* Each model by its id: SERVING when it is loaded. */
struct health_others model_health(struct registry *registry);
