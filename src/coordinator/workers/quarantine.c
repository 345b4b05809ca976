/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/workers/quarantine.h"

#include "base/check.h"

void
quarantine_init(struct quarantine *quarantine, uint32_t deaths_max, int64_t length_ns)
{
    CHECK(length_ns >= 0);
    *quarantine = (struct quarantine){.deaths_max = deaths_max, .length_ns = length_ns};
}

bool
quarantine_on_death(struct quarantine *quarantine, enum death_blame blame, int64_t now_ns)
{
    if (blame == DEATH_BLAMELESS || quarantine->state == QUARANTINE_ON)
        return false;
    if (blame == DEATH_FRUITFUL) {
        quarantine_lift(quarantine, TRIAL_FRUITFUL);
        return false;
    }
    if (quarantine->deaths < UINT32_MAX)
        quarantine->deaths++;
    if (quarantine->state != QUARANTINE_TRIAL &&
        (quarantine->deaths_max == 0 || quarantine->deaths < quarantine->deaths_max))
        return false;
    quarantine->state = QUARANTINE_ON;
    quarantine->until_ns = now_ns + quarantine->length_ns;
    return true;
}

bool
quarantine_try(struct quarantine *quarantine, int64_t now_ns)
{
    if (quarantine->state != QUARANTINE_ON || now_ns < quarantine->until_ns)
        return false;
    quarantine->state = QUARANTINE_TRIAL;
    return true;
}

void
quarantine_lift(struct quarantine *quarantine, enum trial_result result)
{
    quarantine->state = QUARANTINE_NONE;
    quarantine->deaths = result == TRIAL_FRUITFUL ? 0 : quarantine->deaths_max / 2;
}
