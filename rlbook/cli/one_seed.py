"""The process of one of several seeds: the `rlbook` command, ended together with the process that
started it."""

import sys

from rlbook.cli.main import main
from rlbook.interaction.processes import end_with_parent

if __name__ == "__main__":
    end_with_parent()
    sys.exit(main())
