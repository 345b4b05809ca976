/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of a pipeline that is bound to a gRPC method; they pass whole and are not decoded. A
 * request is one tensor, `message` UINT8 [bytes], copied once into the arena; the answer is the
 * last stage's only tensor, of the same name and kind, lent from the arena.
 */
#pragma once

#include "coordinator/protocol/oip.h"

/* The tensors of such a pipeline whose modelets declare none. */
extern const struct handshake_tensor raw_message_spec;

/* Checks that the first stage takes and the last one gives a message, as far as they declare
 * tensors. FAILED_PRECONDITION names the tensor. */
enum status raw_message_check_model(const struct oip_model_info *model,
                                    struct error *error) WARN_UNUSED;

/* Checks the message against the first stage's input, which may have a fixed length.
 * INVALID_ARGUMENT. */
enum status raw_message_check(const struct wire_message *message,
                              const struct oip_model_info *model, struct error *error) WARN_UNUSED;

/* Copies the message into a fresh builder. */
enum status raw_message_copy(const struct wire_message *message, struct payload_builder *builder,
                             struct error *error) WARN_UNUSED;

/* The answer: a lent piece, or none if it is empty. Trusts no name or type from the last stage.
 * INTERNAL names the expected output. */
enum status raw_message_reply(const struct payload_view *outputs, void (*release)(void *context),
                              void *context, struct rpc_piece *piece, size_t *piece_count,
                              struct error *error) WARN_UNUSED;
