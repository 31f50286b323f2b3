"""``python train.py`` is ``ssdg train``, for a checkout. ``python train.py --help`` shows every setting."""

import sys

from semilearn_ext.__main__ import console

if __name__ == "__main__":
    sys.exit(console(["train", *sys.argv[1:]]))
