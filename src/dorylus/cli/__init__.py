"""The command line: commands of one subject in one file, each a thin face of the Python one.

``main`` is what the ``dorylus`` program runs: it prints an error as one paragraph on stderr, without a traceback, and
ends with exit code 2 (the command cannot be carried out as given) or 1 (it failed).
"""

import errno
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dorylus.errors import ConfigError, DorylusError, Terminated, spelled


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command that the arguments, or those of the process, name; ends by SystemExit."""
    from dorylus.training import terminable

    try:
        _check_words(sys.argv[1:] if arguments is None else arguments)
        with terminable(), _plain_warnings():
            from dorylus.cli.app import app

            app(args=arguments, prog_name="dorylus")
    except (ImportError, SyntaxError):
        from dorylus.extras import broken_package

        broken = broken_package()
        if broken is None:
            raise
        print(f"error: {broken[0]}. To mend it, {broken[1]}", file=sys.stderr)
        raise SystemExit(1) from None
    except DorylusError as error:
        from dorylus.cli.flags import spell_flag

        print(f"error: {spelled(error.message, spell_flag)}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error
    except MemoryError as error:
        print(f"error: there is not enough memory for this: {error}. Use a smaller graph or model.", file=sys.stderr)
        raise SystemExit(1) from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            name = str(error.filename)[:60]
            print(
                f"error: {name!r}... is too long: a path has at most 4,095 bytes, and a name in it 255. Choose a "
                "shorter one.",
                file=sys.stderr,
            )
            raise SystemExit(2) from error
        where = f" ({error.filename})" if error.filename else ""
        print(
            f"error: {error.strerror or error}{where}. Make room, or choose another place, and run it again.",
            file=sys.stderr,
        )
        raise SystemExit(1) from error
    except (KeyboardInterrupt, Terminated) as end:
        from dorylus.cli.console import ended

        raise SystemExit(ended(end).exit_code) from None


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Shows our own warnings as a line, without the place in the code that other warnings name."""
    show_others = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if category.__module__.partition(".")[0] == __name__.partition(".")[0]:
            print(f"warning: {message}", file=sys.stderr)
        else:
            show_others(message, category, *place, **more)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _check_words(words: Sequence[str]) -> None:
    """Refuses arguments that are no text: their first use as a path, or in a file, would end in a traceback."""
    for word in words:
        if "\0" in word or word != word.encode(errors="replace").decode():
            raise ConfigError(f"{word[:60]!r} is no UTF-8 text, or has a NUL byte: give words and paths in UTF-8.")
