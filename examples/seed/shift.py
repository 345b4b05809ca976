# SPDX-License-Identifier: Apache-2.0
"""The second stage: x + 3. A function is enough where nothing is kept."""

import shoal


@shoal.batched
def run(x: shoal.FP64[-1]) -> {"y": shoal.FP64[-1]}:
    return {"y": x + 3}
