"""Predictions of a trained program for every vertex, as arrays or files."""

from typing import TYPE_CHECKING

from dorylus.lazy import lazy_names

if TYPE_CHECKING:
    from dorylus.inference.prediction_file import ReportRows, Written, check_target
    from dorylus.inference.predictions import PredictionRequest, evaluate_from, predict, predict_from, predict_table

__all__ = [
    "PredictionRequest",
    "ReportRows",
    "Written",
    "check_target",
    "evaluate_from",
    "predict",
    "predict_from",
    "predict_table",
]

__getattr__ = lazy_names(
    __name__,
    {
        "prediction_file": "ReportRows Written check_target",
        "predictions": "PredictionRequest evaluate_from predict predict_from predict_table",
    },
)
