"""`python -m ferry` runs the program `ferry` that was installed with this package."""

import os
import sys
import sysconfig


def _program() -> str:
    schemes = [None, f"{os.name}_user"]
    folders = [
        sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")
        for scheme in schemes
    ]
    for folder in folders:
        path = os.path.join(folder, "ferry")
        if os.access(path, os.X_OK):
            return path
    sys.exit(f"ferry: error: the program is in none of {', '.join(folders)}; call it by its path")


if __name__ == "__main__":
    program = _program()
    os.execv(program, [program, *sys.argv[1:]])
