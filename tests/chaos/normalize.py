# SPDX-License-Identifier: Apache-2.0
"""The digits' first stage in Python: what examples/digits/normalize.c answers, bit by bit."""

import numpy
import shoal


@shoal.batched
def run(image: shoal.ANY[-1, 64]) -> {"image": shoal.FP32[-1, 64]}:
    return {"image": image.astype("f4") / numpy.float32(16)}
