"""``python train.py`` is ``ssdg train`` for a clone that is not installed; ``--help`` lists all settings."""

import sys

from semilearn_ext.__main__ import console

if __name__ == "__main__":
    sys.exit(console(["train", *sys.argv[1:]]))
