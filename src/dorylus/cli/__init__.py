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
    except MemoryError as error:
        print(f"error: there is not enough memory for this: {error}. Use a smaller graph or model.", file=sys.stderr)
        raise SystemExit(1) from error
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        print(
            f"error: {error.strerror or error}{where}. Make room, or choose another place, and run it again.",
            file=sys.stderr,
        )
        raise SystemExit(1) from error
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(130) from None
