"""``dorylus predict``: what a trained model says of every vertex, as a file."""

from pathlib import Path
from typing import Annotated

import typer

from dorylus.errors import ConfigError, unknown_name
from dorylus.training.run_folder import RunFolder

KINDS = ("logits", "classes", "embeddings")


def predict(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of a run.", show_default=False)],
    what: Annotated[str, typer.Option(help="What to predict.", metavar="|".join(KINDS))] = "classes",
    layer: Annotated[int, typer.Option(help="Layer of the embeddings; -1 is the last hidden one.", metavar="N")] = -1,
    output: Annotated[
        Path | None, typer.Option(help="A .npy or .parquet file. [RUN_DIR/WHAT.npy]", metavar="FILE")
    ] = None,
) -> None:
    """Write logits, classes or embeddings of every vertex, in the graph's own order."""
    if what not in KINDS:
        raise ConfigError(f"--what {what}: " + unknown_name("prediction", what, KINDS))
    RunFolder.open(run_dir)
    target = output or run_dir / f"{what}.npy"

    from dorylus.training.prediction_file import check_target, write

    check_target(target)

    from dorylus.training import predict_from

    array = predict_from(run_dir, what, layer)
    write(array, target, what)
    typer.echo(f"{what} of {len(array):,} vertices in {target}")
