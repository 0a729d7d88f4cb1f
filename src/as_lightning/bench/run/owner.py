"""Files that hold code (pickles) are read by their owner alone."""

import os
from pathlib import Path


def own_file(path: Path) -> Path:
    """Return the path of a file of this user; a PermissionError refuses one of somebody else.

    Windows does not say whose a file is: there each file is read.
    """
    if hasattr(os, "getuid") and path.stat().st_uid != os.getuid():
        raise PermissionError(
            f"{path} belongs to another user; reading it can run code: copy it if you trust them"
        )
    return path
