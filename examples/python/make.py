# SPDX-License-Identifier: Apache-2.0
"""Trains a classifier of irises and pickles it: make.py FILE. Needs python3-sklearn."""

import sys

import joblib
from sklearn.datasets import load_iris
from sklearn.tree import DecisionTreeClassifier

joblib.dump(DecisionTreeClassifier(random_state=1).fit(*load_iris(return_X_y=True)), sys.argv[1])
