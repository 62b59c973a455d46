"""Flags and TOML -> RunConfig. The one place where a user's settings are read; unknown names are refused.

A TOML file has RunConfig's own shape: top-level keys, and tables [search], [eval], [stop], [hyper] and
[space.NAME] (low, high, choices) with `frozen = [...]` under [space] for hyperparameters the search must not touch.
A flag wins over the file, the file over the model's profile.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmzero.domain.codec import from_json, to_json
from llmzero.domain.config import EvalConfig, LLMConfig, RunConfig, SearchConfig, StopConfig
from llmzero.domain.errors import UsageError, did_you_mean
from llmzero.domain.space import Parameter, SearchSpace
from llmzero.domain.types import HyperParams
from llmzero.limits import check_range, within_limits
from llmzero.profiles import LLM_EVAL, NANO_HYPER, NANO_WORKERS, llm_space, nano_space

RESERVED = {"schema", "versions"}

LLM_FLAGS = {"llm_model": "model", "llm_base_url": "base_url", "usd": "usd"}
"""Flags that set a field of [llm]."""

LLM_ENVIRONMENT = {"LLMZERO_LLM_MODEL": "model", "OPENAI_BASE_URL": "base_url"}
"""Variables that set a field of [llm] where neither a flag nor the file does."""


def load_settings(file: Path | None, flags: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> RunConfig:
    """The RunConfig of a search; `flags` holds only what the user typed. Raises UsageError with one line."""
    given = _read_toml(file) if file else {}
    where = str(file) if file else "settings"
    _refuse_unknown(RunConfig, {k: v for k, v in given.items() if k != "space"}, where)
    merged = {**given, **{name: value for name, value in flags.items() if name not in LLM_FLAGS}}
    merged["llm"] = _llm(given.get("llm", {}), flags, environ or {})
    nano = merged.get("model", "nano") == "nano"
    if nano:
        merged.setdefault("workers", 1 if merged.get("agent") == "skill" else NANO_WORKERS)
    merged["hyper"] = {**to_json(HyperParams(**(NANO_HYPER if nano else {}))), **given.get("hyper", {})}
    merged["eval"] = {**({} if nano else LLM_EVAL), **given.get("eval", {})}
    merged["space"] = to_json(_space(nano_space() if nano else llm_space(), given.get("space", {}), where))
    try:
        config = from_json(RunConfig, merged, "")
    except ValueError as error:
        raise UsageError(f"{where}: {str(error).removeprefix('RunConfig').lstrip('.')}") from None
    return within_limits(_without_a_key(config, flags, environ or {}))


def _without_a_key(config: RunConfig, flags: Mapping[str, Any], environ: Mapping[str, str]) -> RunConfig:
    """A model with neither an endpoint of its own nor a key is not configured: an error only where it was asked for."""
    llm = config.llm
    if not llm.model or llm.base_url or environ.get("OPENAI_API_KEY"):
        return config
    if "llm_model" in flags or config.agent in ("llm", "skill") or config.stopper in ("agent", "both"):
        raise UsageError(f"llm.model = {llm.model!r}: set OPENAI_API_KEY, or give --llm-base-url for another endpoint")
    return dataclasses.replace(config, llm=dataclasses.replace(llm, model=""))


def _llm(given: Mapping[str, Any], flags: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """[llm]: a flag wins over the file, the file over the environment."""
    values = {field: environ[name] for name, field in LLM_ENVIRONMENT.items() if environ.get(name)}
    return {**values, **given, **{field: flags[name] for name, field in LLM_FLAGS.items() if name in flags}}


def _read_toml(file: Path) -> dict[str, Any]:
    if file.exists() and not file.is_file():
        raise UsageError(f"{file}: {'a folder' if file.is_dir() else 'a device or pipe'}, not a settings file")
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file}: not UTF-8 text") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{file}: not valid TOML: {str(error)[:200]}") from None


def _refuse_unknown(kind: Any, given: Mapping[str, Any], where: str) -> None:
    """Unknown keys at any depth, with the nearest valid names."""
    known = {f.name: f for f in dataclasses.fields(kind) if f.name not in RESERVED}
    for key, value in given.items():
        if key not in known:
            raise UsageError(f"{where}: unknown key {key[:60]!r}: {did_you_mean(key[:60], known)}")
        default = known[key].default_factory
        nested = default if isinstance(default, type) and dataclasses.is_dataclass(default) else None
        if nested and not isinstance(value, dict):
            raise UsageError(f"{where}: {key} must be a table [{key}]")
        if nested:
            _refuse_unknown(nested, value, f"{where} [{key}]")


def _space(space: SearchSpace, given: Any, where: str) -> SearchSpace:
    """The profile's space with a file's bounds, without its frozen names."""
    if not isinstance(given, dict):
        raise UsageError(f"{where}: space must be a table [space]")
    frozen = given.get("frozen", [])
    if not isinstance(frozen, list) or not all(isinstance(name, str) for name in frozen):
        raise UsageError(f"{where} [space]: frozen must be a list of hyperparameter names")
    for name in [*frozen, *(k for k in given if k != "frozen")]:
        if name not in space.names:
            raise UsageError(
                f"{where} [space]: unknown hyperparameter {name!r}: {did_you_mean(str(name), space.names)}"
            )
    kept = (p for p in space.parameters if p.name not in frozen)
    return SearchSpace(tuple(_bounded(p, given.get(p.name, {}), f"{where} [space.{p.name}]") for p in kept))


def _bounded(parameter: Parameter, given: Any, where: str) -> Parameter:
    allowed = (
        {"choices"} if parameter.kind == "choice" else {"low", "high", *(["multiple_of"] * (parameter.kind == "int"))}
    )
    if not isinstance(given, dict):
        raise UsageError(f"{where}: must be a table with {', '.join(sorted(allowed))}")
    for key in given:
        if key not in allowed:
            raise UsageError(f"{where}: unknown key {key!r}: {did_you_mean(key, allowed)}")
    try:
        changed = from_json(Parameter, {**to_json(parameter), **given}, where)
    except ValueError as error:
        raise UsageError(str(error)) from None
    check_range(parameter, changed, where)
    return changed


def settings_reference() -> str:
    """docs/settings.md: every setting with its default, from RunConfig's own documentation."""
    lines = [
        "# Settings",
        "",
        "One documented `RunConfig`: flags of `llmzero search` and keys of `--config FILE.toml` meet in it, a flag",
        "wins. It is stored whole in the run's journal. This page is generated: `python -m llmzero.settings`.",
        "",
        "| setting | default | flag | meaning |",
        "|---|---|---|---|",
    ]
    lines += [_row(f, "", f"`--{f.name.replace('_', '-')}`" * (f.name in FLAGS)) for f in _plain_fields(RunConfig)]
    for table, kind in TABLES:
        lines += [_row(f, f"{table}.", _flag_of(table, f.name)) for f in _plain_fields(kind)]
    lines += ["", "## Hyperparameters", "", _HYPER_TEXT, "", "| hyperparameter | nano | LLM | nano range | LLM range |"]
    lines += ["|---|---|---|---|---|"]
    nano, llm = HyperParams(**NANO_HYPER).flat(), HyperParams().flat()
    for name in nano:
        ranges = [_range(space[name]) if name in space.names else "" for space in (nano_space(), llm_space())]
        lines.append(f"| `{name}` | {nano[name]} | {llm[name]} | {ranges[0]} | {ranges[1]} |")
    return "\n".join([*lines, ""])


TABLES: tuple[tuple[str, Any], ...] = (
    ("search", SearchConfig),
    ("eval", EvalConfig),
    ("stop", StopConfig),
    ("llm", LLMConfig),
)

FLAGS = {"task", "model", "data", "nodes", "hours", "steps", "agent", "stopper", "seed", "workers", "kl_anchor", "keep"}
FLAGS |= {"trainer", "prompts", *LLM_FLAGS}

_HYPER_TEXT = (
    "`[hyper]` sets where the search begins; `[space.NAME]` the bounds (`low`, `high`, `multiple_of`, or `choices`); "
    "`[space] frozen = [...]`\nwhat the search must not touch. The first two columns are the defaults of the embedded "
    "bases and of every other model.\nFurther fields of the trainer go under `[hyper.extra]` and are checked against "
    "the trainer's own config class.\n`--config`, `--out`, `--dry-run` and `--json` are flags only."
)


def _plain_fields(kind: Any) -> list[dataclasses.Field[Any]]:
    return [f for f in dataclasses.fields(kind) if "doc" in f.metadata]


def _flag_of(table: str, name: str) -> str:
    flags = {field: flag for flag, field in LLM_FLAGS.items()} if table == "llm" else {}
    return f"`--{flags[name].replace('_', '-')}`" if name in flags else ""


def _row(field: dataclasses.Field[Any], prefix: str, flag: str) -> str:
    default = repr({} if field.default is dataclasses.MISSING else field.default).replace("'", '"')
    return f"| `{prefix}{field.name}` | `{default}` | {flag} | {field.metadata['doc'].replace('|', '/')} |"


def _range(parameter: Parameter) -> str:
    if parameter.kind == "choice":
        return ", ".join(map(str, parameter.choices))
    log = " (log)" if parameter.kind == "log" else ""
    return f"{parameter.low:g} to {parameter.high:g}{log}"


if __name__ == "__main__":
    print(settings_reference(), end="")
