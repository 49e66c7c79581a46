"""`shardwise`, and `python -m shardwise`: the command line, which imports nothing from the folder it is started in."""

import sys

from shardwise.interpreter import leave_working_folder


def main() -> int:
    leave_working_folder()
    from shardwise.show.cli import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())
