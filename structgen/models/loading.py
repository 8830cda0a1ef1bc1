"""Shared by the loading of language models and embedders: execution providers, checks, error texts.

Here are the names of execution providers and session options. Knows no models, and imports a
runtime only to find the available devices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from structgen.errors import ModelError, did_you_mean, printable
from structgen.options import Whole

from . import cache
from .damage import Lack

_INTERNALS = re.compile(r".*\[ONNXRuntimeError\] : \d+ : \w+ : |\w+\.cc:\d+ \w+ ", re.DOTALL)
_LONGEST = 2000  # characters of a runtime's error, which may quote a file


def remedy(folder: Path) -> str:
    """Return the fix for a model that cannot be loaded."""
    name = cache.name_of(folder)
    if name is None:
        return "Download or convert the model again."
    return f"Delete it with `structgen models rm {name}`. structgen downloads it again on next use."


def remedied(folder: Path, lacking: Sequence[Lack]) -> str:
    """Return the error about a folder with a fix: a folder of the cache is downloaded again."""
    problem = " ".join(lack.problem for lack in lacking)
    if cache.name_of(folder) is not None:
        return f"{problem} {remedy(folder)}"
    return f"{problem} {' '.join(dict.fromkeys(lack.do for lack in lacking))}"


def in_short(error: Exception) -> str:
    """Return a runtime's error without places in its source code."""
    return _INTERNALS.sub("", str(error)[:_LONGEST]).strip().rstrip(".")


@contextmanager
def explaining_panics(file: Path, kind: type[ModelError] = ModelError) -> Iterator[None]:
    """Turn a panic or error of ``tokenizers`` about a wrong file into a clear error.

    A panic is not an `Exception`, so it would end more than the call.

    Raises:
        ModelError: there was one; another class of error can be passed.
    """
    try:
        yield
    except BaseException as error:
        known = type(error) in (Exception, OverflowError)  # OverflowError for ids beyond 32 bits
        if not known and type(error).__name__ != "PanicException":
            raise
        raise kind(f"{file} does not work: {printable(str(error))}.") from error


_NAMES = {
    "CPUExecutionProvider": "cpu",
    "CUDAExecutionProvider": "cuda",
    "DmlExecutionProvider": "dml",
    "OpenVINOExecutionProvider": "openvino",
    "QNNExecutionProvider": "qnn",
    "WebGpuExecutionProvider": "webgpu",
}

_SESSION_OPTIONS = (
    *("intra_op_num_threads", "inter_op_num_threads", "graph_optimization_level"),
    *("enable_cpu_mem_arena", "enable_mem_pattern", "use_env_allocators", "enable_profiling"),
    *("log_id", "log_severity_level", "log_verbosity_level", "custom_ops_library"),
    "provider_options",
)

_PROVIDER_OPTIONS = "provider_options"


def runtime_names(providers: Iterable[str]) -> list[str]:
    """Return the names of providers for ONNX Runtime's own sessions."""
    of_name = {name: whole for whole, name in _NAMES.items()}
    return [of_name[name] for name in providers]


def installed() -> list[str]:
    """Return the names of the installed execution providers."""
    import onnxruntime  # type: ignore[import-untyped]

    return [_NAMES[name] for name in _NAMES if name in onnxruntime.get_available_providers()]


def checked(providers: Sequence[str]) -> list[str]:
    """Return the names in the runtime's form.

    Raises:
        ModelError: it is not a list, or a provider is not installed; the error names those that
            are.
    """
    if isinstance(providers, str) or not providers:
        raise ModelError(
            f"providers={providers!r} must be a list of names such as ['cuda', 'cpu']."
        )
    here = installed()
    names = [str(name).lower().removesuffix("executionprovider") for name in providers]
    for name, given in zip(names, providers, strict=True):
        if name not in here:
            hint = did_you_mean(name, _NAMES.values()) if name not in _NAMES.values() else ""
            raise ModelError(
                f"The execution provider {given!r} is not installed.{hint} Installed: "
                f"{', '.join(here)}. For CUDA, install onnxruntime-genai-cuda; for DirectML, "
                "onnxruntime-genai-directml; each replaces onnxruntime-genai. For embedders, "
                "install onnxruntime-gpu or onnxruntime-directml instead of onnxruntime."
            )
    return names


def _with_options(
    providers: Sequence[str] | None, given: Any
) -> tuple[Sequence[str] | None, Mapping[str, Mapping[str, Any]]]:
    """Return the providers that ``provider_options`` name, which alone would not make the runtime
    use them."""
    if given is None:
        return providers, {}
    entries = given if isinstance(given, (list, tuple)) else [given]
    found: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        if not isinstance(entry, Mapping) or not all(
            isinstance(options, Mapping) for options in entry.values()
        ):
            raise ModelError(
                f"Session option {_PROVIDER_OPTIONS!r} must be a list such as [{{'cuda': "
                f"{{'device_id': '0'}}}}], not {given!r}."
            )
        for name, options in zip(checked([*entry] or ["cpu"]), entry.values(), strict=False):
            found[name] = options
    for name in found:
        if providers is not None and name not in providers:
            raise ModelError(
                f"Session option {_PROVIDER_OPTIONS!r} contains {name!r}, but providers= does "
                f"not: {', '.join(providers)}. Add it to both."
            )
    return [*found] if providers is None and found else providers, found


def read_options(
    providers: Sequence[str] | None, session_options: Mapping[str, Any] | None, threads: int | None
) -> tuple[Sequence[str] | None, Mapping[str, Mapping[str, Any]], dict[str, Any]]:
    """Check the options for running a model.

    Args:
        providers: execution providers, the preferred one first; None: those of the options.
        session_options: options of ONNX Runtime, with ``provider_options`` as in
            ``genai_config.json``: a list of ``{name: {option: value}}``.
        threads: threads of an operator; None: the number of cores.

    Returns:
        The providers to use, the options of each by name, and all other options.

    Raises:
        OptionError: ``threads`` is not a valid number.
        ModelError: a provider is not installed, or named only by its options; or an option is
            unknown.
    """
    if threads is not None:
        Whole(1)("threads", threads)
    _check_session_options(session_options)
    named = None if providers is None else checked(providers)
    others = dict(session_options or {})
    names, options_of = _with_options(named, others.pop(_PROVIDER_OPTIONS, None))
    return names, options_of, others


def _check_session_options(options: Mapping[str, Any] | None) -> None:
    """Raise for an unknown session option, because the runtime accepts any name with a string.

    Names with a dot are ONNX Runtime's own configuration entries, which it looks up itself.

    Raises:
        ModelError: an option is unknown; the error names the known ones.
    """
    if options is None:
        return
    if not isinstance(options, Mapping):
        raise ModelError(f"session_options={options!r} must be a mapping from names to values.")
    for name, value in options.items():
        if name in _SESSION_OPTIONS:
            continue
        if not isinstance(name, str) or "." not in name:
            meant = did_you_mean(name, _SESSION_OPTIONS)
            raise ModelError(
                f"Unknown session option {name!r}.{meant} Known options: "
                f"{', '.join(_SESSION_OPTIONS)}, and ONNX Runtime's configuration entries, whose "
                "names have a dot, such as 'session.intra_op.allow_spinning'."
            )
        if not isinstance(value, str):
            raise ModelError(
                f"Session option {name!r} is a configuration entry, which must be a string such "
                f"as '1', not {value!r}."
            )
