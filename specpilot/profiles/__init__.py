"""Profiles: which engine serves which target with which mechanisms on which device, and on what evidence."""

from specpilot.profiles.gpus import GpuClass, GpuIdentity, detect_gpus, match_gpu, parse_nvidia_smi
from specpilot.profiles.machine import find_machine
from specpilot.profiles.preflight import Machine, Preflight, check
from specpilot.profiles.resolve import MechanismState, ResolvedProfile, resolve
from specpilot.profiles.schema import CPU, Profile
from specpilot.profiles.store import ProfileStore, load_profiles, profiles_folder

__all__ = [
    "CPU",
    "GpuClass",
    "GpuIdentity",
    "Machine",
    "MechanismState",
    "Preflight",
    "Profile",
    "ProfileStore",
    "ResolvedProfile",
    "check",
    "detect_gpus",
    "find_machine",
    "load_profiles",
    "match_gpu",
    "parse_nvidia_smi",
    "profiles_folder",
    "resolve",
]
