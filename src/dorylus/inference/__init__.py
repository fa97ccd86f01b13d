"""Predictions of a trained program for every vertex, as arrays or files."""

from typing import TYPE_CHECKING

from dorylus.lazy import lazy_names

if TYPE_CHECKING:
    from dorylus.inference.prediction_file import ReportRows, Written, check_target
    from dorylus.inference.predictions import predict, predict_from, predict_table

__all__ = ["ReportRows", "Written", "check_target", "predict", "predict_from", "predict_table"]

__getattr__ = lazy_names(
    __name__,
    {
        "prediction_file": "ReportRows Written check_target",
        "predictions": "predict predict_from predict_table",
    },
)
