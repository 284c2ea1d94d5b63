"""The machine a profile is judged for: the GPU that is there, or one that is named for a dry run."""

from __future__ import annotations

from specpilot.errors import AmbiguousError
from specpilot.profiles.gpus import detect_gpus, match_gpu
from specpilot.profiles.preflight import Machine, host_free_gib
from specpilot.profiles.schema import CPU
from specpilot.profiles.store import ProfileStore

__all__ = ["find_machine"]


def find_machine(store: ProfileStore, gpu: str | None = None) -> Machine:
    """This machine, or the device class ``gpu`` without knowing what is free on it.

    Raises
    ------
    ConfigError
        ``gpu`` names no device class.
    AmbiguousError
        The machine has GPUs of several classes, or one that fits two.
    Unsupported
        A GPU of no known class, or a driver that does not answer.
    """
    if gpu is not None:
        return Machine(CPU if gpu == CPU else store.find_gpu(gpu).id)
    gpus = detect_gpus()
    if not gpus:
        return Machine(CPU, free_gib=host_free_gib())
    classes = tuple(dict.fromkeys(match_gpu(one, store.gpus).id for one in gpus))
    if len(classes) > 1:
        raise AmbiguousError(
            f"GPU: this machine has {', '.join(classes)}; show the engine one class, or name the GPU",
            candidates=classes,
        )
    largest = max(gpus, key=lambda one: one.free_mib)
    return Machine(classes[0], largest, largest.free_mib / 1024)
