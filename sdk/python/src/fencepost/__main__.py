"""The command `fencepost`: this process becomes the program, so signals, exit status and terminal are the program's own."""

import os
import sys

from fencepost._binary import own_path
from fencepost._errors import NotFound


def main() -> None:
    try:
        path = own_path()
    except NotFound as error:
        print(error, file=sys.stderr)
        sys.exit(125)
    try:
        os.execv(path, [path, *sys.argv[1:]])
    except OSError as error:
        print(f"fencepost: {path} cannot be executed: {error.strerror}", file=sys.stderr)
        sys.exit(125)


if __name__ == "__main__":
    main()
