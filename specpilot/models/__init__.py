"""The bundled models, and how an engine is put together from model folders (``build``)."""
