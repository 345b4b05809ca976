/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of a pipeline that is bound to a gRPC method: messages go through whole, and nobody here
 * looks into them. A request is one tensor, `message` UINT8 [bytes], copied once into the arena;
 * the answer is the one tensor of the last stage, of the same name and kind, lent from where it
 * lies.
 */
#pragma once

#include "coordinator/protocol/oip.h"

/* The tensors of such a pipeline, where its modelets do not declare any. */
extern const struct handshake_tensor raw_message_spec;

/* The first stage and the last one, by what they describe, take and give a message; what is not
 * known is fine. FAILED_PRECONDITION naming the tensor. */
enum status raw_message_check_model(const struct oip_model_info *model,
                                    struct error *error) WARN_UNUSED;

/* The message against what the first stage takes, which may be a fixed length. INVALID_ARGUMENT. */
enum status raw_message_check(const struct rpc_message *message, const struct oip_model_info *model,
                              struct error *error) WARN_UNUSED;

/* Into a fresh builder. */
enum status raw_message_copy(const struct rpc_message *message, struct payload_builder *builder,
                             struct error *error) WARN_UNUSED;

/* The answer: a lent piece, or none if it is empty. INTERNAL, saying what the last stage should
 * have given: believes no name and no type of it. */
enum status raw_message_reply(const struct payload_view *outputs, void (*release)(void *context),
                              void *context, struct rpc_piece *piece, size_t *piece_count,
                              struct error *error) WARN_UNUSED;
