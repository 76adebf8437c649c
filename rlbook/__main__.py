"""`python -m rlbook` is the `rlbook` command."""

import sys

from rlbook.cli.main import main

sys.exit(main())
