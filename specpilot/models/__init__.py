"""The bundled models, and how an engine is put together from model folders (``build``)."""

from specpilot.models.folders import BUNDLED_MODEL_ID, bundled_folder, model_folders

__all__ = ["BUNDLED_MODEL_ID", "bundled_folder", "model_folders"]
