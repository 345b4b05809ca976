#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The sources obey every rule of tidy.py.

exec "$SHOAL_PYTHON" "$SHOAL_SOURCE_DIR/tests/tidy/tidy.py" "$SHOAL_SOURCE_DIR"
