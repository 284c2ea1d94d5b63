"""A folder for PYTHONPATH of an SGLang server: Python imports ``sitecustomize`` from it at start."""
