# SPDX-License-Identifier: Apache-2.0
"""Which iris is it? One call predicts the flowers of all requests of a batch."""

import joblib
import shoal

NAMES = ["setosa", "versicolor", "virginica"]


class Model:
    def load(self, id, path):
        return joblib.load(path)

    @shoal.batched
    def run(self, model, x: shoal.FP32[-1, 4]) -> {"label": shoal.BYTES[-1]}:
        return {"label": [NAMES[number] for number in model.predict(x)]}
