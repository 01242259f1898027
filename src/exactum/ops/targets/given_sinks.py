"""Sinks that the user gives by ``--sinks FILE.py:NAME`` or ``--sinks MODULE:NAME``."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TypeGuard

from exactum.errors import ExactumError, SettingRefused
from exactum.protocol.sink import Sink, participant_names

_NEEDED = ("name", "check_columns", "open")


def given_sinks(place: str) -> dict[str, Sink]:
    """By the name of its participant each sink that ``place`` holds: a sink, a list or tuple of
    sinks in the query's order, a mapping of names to sinks, what ``exactly_once(...)`` returned, or
    a function without arguments that returns one of these.

    The module is imported, so what it does at import is done; it cannot start a query.

    Raises:
        SettingRefused: it cannot be imported, holds something else, or starts Spark.
    """
    where = f"--sinks {place}"
    module_name, colon, name = place.rpartition(":")
    if not colon or not module_name or not name:
        raise SettingRefused(
            "SINKS_OPTION",
            f"{where} must be FILE.py:NAME or MODULE:NAME, like --sinks sinks.py:SINKS.",
        )
    from exactum.spark.open_queries import no_start

    reading = f"{module_name} cannot be imported"
    try:
        with no_start(place):
            module = _module(module_name)
            if not hasattr(module, name):
                raise SettingRefused(
                    "SINKS_OPTION",
                    f"{where}: {module_name} has no {name!r}. Give the query's sinks that name "
                    "in it: one sink, a list of them, or a function that returns them.",
                )
            value = getattr(module, name)
            if not _is_sink(value) and not hasattr(value, "sinks") and callable(value):
                reading = f"{name}() failed"
                value = value()
    except ExactumError:
        raise
    except (Exception, SystemExit) as error:
        raise SettingRefused(
            "SINKS_OPTION", f"{where}: {reading}: {type(error).__name__}: {error}"
        ) from error
    return _named(getattr(value, "sinks", value), where)


def _named(value: object, where: str) -> dict[str, Sink]:
    if isinstance(value, Mapping):
        found = dict(value)
        strange = [name for name, sink in found.items() if not _is_sink(sink)]
        if strange:
            raise SettingRefused(
                "SINKS_OPTION", f"{where}: what it has under {strange[0]!r} is no sink."
            )
        return found
    several = [value] if _is_sink(value) else value
    if not isinstance(several, list | tuple) or not all(map(_is_sink, several)):
        raise SettingRefused(
            "SINKS_OPTION",
            f"{where} is a {type(value).__name__}: give a sink, a list of sinks, a mapping of "
            "participants' names to sinks, what exactly_once(...) returned, or a function that "
            "returns one of these.",
        )
    return dict(zip(participant_names(several), several, strict=True))


def _is_sink(value: object) -> TypeGuard[Sink]:
    # A class has these names as well, and is a function that makes a sink.
    return not isinstance(value, type) and all(hasattr(value, each) for each in _NEEDED)


def _module(name: str) -> ModuleType:
    if not name.endswith(".py"):
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        return importlib.import_module(name)
    path = Path(name).resolve(strict=True)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Sinks' classes are found again by their module's name when they are copied.
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module
