"""The program `isthmus` that comes with the package."""
import os
import sys
from typing import NoReturn

_HERE = os.path.dirname(os.path.abspath(__file__))


def main() -> NoReturn:
    """Becomes the program; the weights that ship are the package's unless $ISTHMUS_WEIGHTS_DIR names others."""
    program = os.path.join(_HERE, "_native", "isthmus")
    os.environ.setdefault("ISTHMUS_WEIGHTS_DIR", os.path.join(_HERE, "weights"))
    os.execv(program, ["isthmus", *sys.argv[1:]])


if __name__ == "__main__":
    main()
