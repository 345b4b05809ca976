/* SPDX-License-Identifier: Apache-2.0 */
/* Reads an operator's request (ipc/control.h), which may be any bytes. Pure. */
#pragma once

#include "ipc/control.h"

/*
 * The texts of `request` replace the packet's bytes. INVALID_ARGUMENT: it is too long, not JSON
 * (not UTF-8, a duplicate name, nested too deep), not an object, of another version, or a member is
 * not what it should be. UNIMPLEMENTED: unknown verb.
 */
enum status control_request_read(char packet[CONTROL_REQUEST_BYTES], size_t bytes,
                                 struct control_request *request, struct error *error) WARN_UNUSED;
