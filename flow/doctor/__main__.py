"""The module that ``python -m flow.doctor`` runs."""

import sys

from flow.cli.command_line import exit_if_hidden

if __name__ == "__main__":
    exit_if_hidden()
    # The command imports the package, so the check has to come before this import.
    from flow.cli.doctor.command import main

    sys.exit(main())
