"""The command line: one file a command, each a thin face of the Python one.

``main`` is what the ``dorylus`` program runs: what the user can mend is told in one paragraph on stderr, without a
traceback, with exit code 2 (asked for what cannot be) or 1 (a run that failed).
"""

import sys
from collections.abc import Sequence

from dorylus.errors import DorylusError


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command that the arguments, or those of the process, ask for; ends by SystemExit."""
    from dorylus.cli.app import app

    try:
        app(args=arguments, prog_name="dorylus")
    except DorylusError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(130) from None
