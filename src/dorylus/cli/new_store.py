"""Where a command may write a store: known before any work."""

from pathlib import Path

from dorylus.errors import ConfigError


def check_new_store(store: Path, *, overwrite: bool) -> None:
    """Refuses a place in a folder that is not there, and a store that is not to be replaced."""
    from dorylus.graph.store import is_store

    check_parent(store, "store")
    if is_store(store) and not overwrite:
        raise ConfigError(
            f"the store {store} exists already: give --overwrite to replace it, or choose another folder."
        )


def check_parent(target: Path, noun: str) -> None:
    """Refuses a place in a folder that is not there: more likely a slip than a wish."""
    if not target.absolute().parent.is_dir():
        raise ConfigError(
            f"the {noun} {target} cannot be written: the folder {target.parent} does not exist. Make it, or choose "
            "another."
        )
