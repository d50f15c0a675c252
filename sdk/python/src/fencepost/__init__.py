"""The command `fencepost` and the way to it.

>>> import fencepost, subprocess
>>> subprocess.run([fencepost.binary_path(), "run", "report", "--", "./report.sh"])
"""

from fencepost._binary import NotFound, binary_path
from fencepost._version import __version__

__all__ = ["NotFound", "__version__", "binary_path"]
