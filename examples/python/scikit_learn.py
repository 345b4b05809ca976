# SPDX-License-Identifier: Apache-2.0
"""Serves pickled models of scikit-learn, as joblib.dump or pickle.dump write them. `shoald serve
model.pkl` runs this modelet; copy it to change what a model answers.

A classifier answers `label`, and `probabilities` if it has them; any other model `prediction`."""

import logging

import numpy
import shoal

TYPES = {"b1": shoal.BOOL, "i4": shoal.INT32, "i8": shoal.INT64, "f4": shoal.FP32, "f8": shoal.FP64}


def answer(model, features):
    predicted = model.predict(features)
    if not hasattr(model, "classes_"):
        return {"prediction": predicted}
    answers = {"label": predicted}
    if hasattr(model, "predict_proba"):
        probabilities = model.predict_proba(features)
        if isinstance(probabilities, numpy.ndarray):  # a list, if there are several labels
            answers["probabilities"] = probabilities
    return answers


def type_of(array):
    name = f"{array.dtype.kind}{array.dtype.itemsize}"
    kind = shoal.BYTES if array.dtype.kind in "OSU" else TYPES[name]
    return kind[(-1, *array.shape[1:])]


class Model:
    def load(self, id, path):
        import joblib  # a pipeline may start without it
        logging.getLogger(id).warning(
            "%s is a pickle: loading it runs the code that it names, here in the sandbox. Serve "
            "only files from people you trust", path)
        model = joblib.load(path)
        if not hasattr(model, "predict") or not hasattr(model, "n_features_in_"):
            raise TypeError(f"a {type(model).__name__}, not a fitted model with `predict` and a "
                            "number of features: write a modelet for it")
        return model

    def describe(self, model):
        row = numpy.zeros((1, model.n_features_in_))
        return ({"features": shoal.FP64[-1, model.n_features_in_]},
                {name: type_of(array) for name, array in answer(model, row).items()})

    @shoal.batched
    def run(self, model, features: shoal.FP64[-1, -1]):
        return answer(model, features)
