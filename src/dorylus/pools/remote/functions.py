"""A pool of functions from an invoker and settings, with programs kept on disk for the next run."""

import time
from collections.abc import Callable
from dataclasses import replace
from math import inf

from dorylus.functions.export import Exports, signature
from dorylus.functions.program import Program
from dorylus.functions.program_cache import ProgramCache
from dorylus.pools.remote.functions_config import FunctionsConfig
from dorylus.pools.remote.functions_pool import FunctionsPool, Note
from dorylus.pools.remote.invocations import Invoked
from dorylus.pools.remote.programs import Programs
from dorylus.pools.services.invoker import Invoker
from dorylus.saga.dense import Call


def functions_pool(
    invoker: Invoker,
    config: FunctionsConfig | None = None,
    *,
    cache: ProgramCache | None = None,
    note: Note = lambda what, **details: None,
    invoked: Callable[[Invoked], None] = lambda invocation: None,
    at_once: Callable[[], float] = lambda: inf,
    begins: Callable[[], None] = lambda: None,
) -> FunctionsPool:
    """The pool; ``cache`` is where finished exports are kept, the user's cache folder unless given.

    ``at_once`` is how many invocations may be under way.
    """
    exports = Exports(ProgramCache() if cache is None else cache)
    rematerialize = (config or FunctionsConfig()).rematerialize

    def asked(call: Call) -> Call:
        return replace(call, keep=False) if rematerialize else call

    def export(call: Call) -> Program:
        start_s = time.perf_counter()
        program = exports.program(asked(call))
        note("program", body=call.body.label, mode=call.mode.value, seconds=time.perf_counter() - start_s)
        return program

    programs = Programs(lambda call: signature(asked(call)), export)
    return FunctionsPool(invoker, programs, config, note, invoked, at_once=at_once, begins=begins)
