"""A process for dense tasks with the sabotaged handler in it: ``python -m functions_bench.sabotaged_worker``."""

from dorylus.functions import worker
from functions_bench.inside import SabotagedHandler

if __name__ == "__main__":
    worker.Handler = SabotagedHandler  # type: ignore
    worker.main()
