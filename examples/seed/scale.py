# SPDX-License-Identifier: Apache-2.0
"""The first stage: x * 2."""

import shoal


class Model:
    def __init__(self, factor="2"):
        self.factor = float(factor)

    @shoal.batched
    def run(self, x: shoal.FP64[-1]) -> {"x": shoal.FP64[-1]}:
        return {"x": x * self.factor}
