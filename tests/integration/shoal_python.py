# SPDX-License-Identifier: Apache-2.0
"""The Python client (clients/python) for tests, from the sources, and its errors as results."""

import sys

from shoal_fixture import SOURCE

sys.path.insert(0, str(SOURCE / "clients" / "python"))
import shoal  # noqa: E402: the package, not examples/local/shoal.py


def error_of(function, *arguments, **keys):
    """The error that a call raises."""
    try:
        answer = function(*arguments, **keys)
    except shoal.ShoalError as error:
        return error
    raise AssertionError(f"it succeeded: {str(answer)[:500]}")
