/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/storage/pace.h"

#include "base/clock.h"

int64_t
pace_take(struct pace *pace, uint64_t bytes)
{
    if (pace->bytes_per_s == 0)
        return 0;
    int64_t took_ns = (int64_t)((double)bytes * NS_PER_S / (double)pace->bytes_per_s);
    pthread_mutex_lock(&pace->lock);
    int64_t now_ns = clock_now_ns();
    pace->free_ns = (pace->free_ns > now_ns ? pace->free_ns : now_ns) + took_ns;
    int64_t until_ns = pace->free_ns;
    pthread_mutex_unlock(&pace->lock);
    return until_ns;
}
