/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"
#include "coordinator/front/rest_inquiry.h"

enum status
rest_ask_model(struct inquiry *inquiry, struct rest_call *call, enum oip_method method,
               int64_t deadline_ns)
{
    struct rest *rest = inquiry->rest;
    struct bytes named = {0};
    struct dispatch_answer reported;
    oip_json_put_named(&named, inquiry->route.model, inquiry->route.version);
    CHECK(!named.failed); /* it is shorter than the path */
    const struct wire_span span = {named.data, named.used};
    const struct wire_message message = {&span, named.used > 0, named.used};
    struct inbound inbound = rest_call_inbound(call, &message, deadline_ns);
    const struct dispatch_question question = {method, rest_is_ready(rest)};
    enum status status =
        dispatch_ask(&rest->dispatch, &inbound, &question, &reported, &inquiry->error);
    bytes_fini(&named);
    if (status != STATUS_OK)
        rest_call_refused(call);
    else if (reported.is_elsewhere)
        rest_call_taken(call, deadline_ns);
    else
        rest_call_answered(call, reported.response, reported.response_bytes);
    return status;
}
