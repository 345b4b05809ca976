/* SPDX-License-Identifier: Apache-2.0 */
#include "http/http2_limits.h"

#include <nghttp2/nghttp2.h>

#include "base/check.h"

enum {
    RESETS_BURST = 10000, /* per connection, then per second: clients that give up are common */
    RESETS_PER_S = 1000,
    QUEUE_FRAMES = 16384,
    HEAD_BYTES = 2 << 20, /* of what we send; nghttp2's own limit would drop the head unsaid */
};

nghttp2_option *
http2_option_create(void)
{
    nghttp2_option *option;
    CHECK(nghttp2_option_new(&option) == 0);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_max_send_header_block_length(option, HEAD_BYTES);
    nghttp2_option_set_stream_reset_rate_limit(option, RESETS_BURST, RESETS_PER_S);
    return option;
}

bool
http2_is_flooded(nghttp2_session *session)
{
    return nghttp2_session_get_outbound_queue_size(session) > QUEUE_FRAMES;
}
