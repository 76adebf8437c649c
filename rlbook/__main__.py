"""`python -m rlbook` is the `rlbook` command."""

import sys

from rlbook.cli import main

sys.exit(main())
