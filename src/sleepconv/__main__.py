"""``python -m sleepconv`` is ``sleepconv``; torchrun starts it that way."""

import sys

from sleepconv.cli import program

sys.exit(program())
