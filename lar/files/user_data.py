"""The folder in which lar keeps a user's data: results, measured peaks."""

from __future__ import annotations

import os
import sys


def data_folder() -> str:
    """Return lar's folder among the user's data, by the XDG specification; it may be missing."""
    data = os.environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(data):
        home = os.path.expanduser("~")
        mac = os.path.join(home, "Library", "Application Support")
        data = mac if sys.platform == "darwin" else os.path.join(home, ".local", "share")
    return os.path.join(data, "lar")
