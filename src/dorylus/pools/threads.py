"""The pool every machine has: dense tasks run on the graph server's own threads.

The engine runs one task per thread and as many threads as there are cores. A second set of threads would compete for
the same cores, so a call runs at once, in the thread that submits it.
"""

from collections.abc import Callable, Collection

from dorylus.saga import Call, Reply, dense


class ThreadsPool:
    """Runs each call in the thread that submits it."""

    def submit(self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None]) -> None:
        """Run the call now."""
        try:
            reply = dense.run(call)
        except Exception as error:  # an error of a user's body goes to the run, not to this thread
            failed(error)
        else:
            done(reply)

    def cancel(self, calls: Collection[Call]) -> None:
        """Nothing waits: a call is answered before ``submit`` returns."""

    def close(self) -> None:
        """Nothing to stop: the threads are the engine's."""
