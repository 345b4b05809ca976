/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node's control socket for its operator (ipc/control.h). Loop thread.
 */
#pragma once

#include <stdint.h>

#include "base/bytes.h"
#include "ipc/control.h"
#include "loop/loop.h"

struct control;
struct control_call; /* a request that waits for its answer */

struct control_handler {
    /* `request` is valid during the call. Answers by control_answer, now or later, once. */
    void (*on_request)(void *context, const struct control_request *request,
                       struct control_call *call);
    void *context;
};

/*
 * Listens beside the counters file, or takes a predecessor's socket there; callers wait until
 * control_accept. The caller holds that file's lock, so another socket there belongs to a dead node
 * and is replaced.
 */
enum status control_create(struct loop *loop, const char *counters_path,
                           const struct control_handler *handler, struct control **control,
                           struct error *error) WARN_UNUSED;
void control_accept(struct control *control);
/* Leaves new callers to the process that accepts from the same socket. Callers that are connected
 * and have asked get their answers. */
void control_part(struct control *control);
/* Answers pending calls UNAVAILABLE and removes the socket. NULL is ignored. */
void control_destroy(struct control *control);

/* `error` NULL: done, and `text` says what. The caller may be gone. */
void control_answer(struct control_call *call, const struct error *error, const char *text);
/* Reports the progress to the caller; its answer follows. */
void control_notify(struct control_call *call, const char *progress);
/* Done, but the caller has more to ask before the node ends: its connection is kept until it hangs
 * up. */
void control_answer_keep(struct control_call *call, const char *text);
/* Returns the number of connections that are kept. */
uint32_t control_kept(const struct control *control);
/* `list`: an object with `rows`, whose memory stays the caller's. */
void control_answer_list(struct control_call *call, const struct bytes *list);

/* Append such an answer; any thread. */
void control_write_list(struct bytes *answer, const struct bytes *list);
void control_write_error(struct bytes *answer, const struct error *error);
