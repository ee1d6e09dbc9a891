"""Every option of the library is a keyword of Python, with the same default, and documented."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import ferry
from ferry import _ferry

TREE = Path(__file__).resolve().parent.parent.parent

HEADERS = [
    "ckpt/checkpoint.h",
    "ckpt/engine/engine.h",
    "ckpt/integrity/verify.h",
    "ckpt/megatron/model/target_options.h",
    "ckpt/store/options.h",
    "estimate/estimate.h",
    "ops/check.h",
    "ops/convert.h",
    "ops/diff.h",
    "ops/inspect.h",
    "ops/prune.h",
    "ops/reshard.h",
    "ops/write_options.h",
]

OPTIONS = {
    "convert": "ConvertOptions",
    "reshard": "ReshardOptions",
    "verify": "VerifyOptions",
    "check": "CheckOptions",
    "seal": "SealOptions",
    "diff": "DiffOptions",
    "prune": "PruneRunOptions",
    "inspect": "InspectOptions",
    "estimate": "EstimateOptions",
}

# Members that a front end sets itself, by their last name, and why.
OTHERS = {
    "progress": "progress=",
    "verify_progress": "progress=",
    "cancel": "Ctrl-C",
    "borrowed": "set by ferry itself",
    "values": "set by ferry itself",
    "args": "for front ends that print",
}

# Keywords that are not a member of the options.
OWN = {"verify": {"path", "run"}, "check": {"path"}, "seal": {"path"}, "prune": {"path"}, "inspect": {"path"}}


def members_of(struct: str) -> dict[str, str]:
    """Name -> type of the members of a struct, by what the headers say."""
    for header in HEADERS:
        text = re.sub(r"//[^\n]*", "", (TREE / header).read_text())
        start = re.search(rf"struct {struct} {{", text)
        if start is None:
            continue
        body = text[start.end() : text.index("\n};", start.end())]
        body = re.sub(r"(?:[^;{}=]|==)*\)\s*(const)?\s*(noexcept)?\s*(=\s*default)?\s*({[^}]*}|;)", "", body)
        members = {}
        for statement in body.split(";"):
            statement = " ".join(statement.split())
            if not statement or statement.startswith(("static ", "struct ", "using ", "bool operator")):
                continue
            names = statement
            kind = re.match(r"(const )?[\w:]+(<.*>)?[*&]?(?= )", names)
            assert kind, f"{header}: {statement}"
            for name in re.sub(r"{[^}]*}", "", names[kind.end() :]).split(","):
                members[re.split(r"[={ ]", name.strip())[0]] = kind.group()
        return members
    raise AssertionError(f"no header has struct {struct}")


STRUCTS = {
    "OpenOptions",
    "ParallelTarget",
    "WriteOptions",
    "IntegrityOptions",
    "EngineOptions",
    "Tolerance",
    "Retention",
}


def leaves_of(struct: str, prefix: str = "") -> list[str]:
    leaves = []
    for name, kind in members_of(struct).items():
        path = prefix + name
        # VerifyOptions::values is an option; EngineOptions::values is not.
        if name in OTHERS and not (name == "values" and struct != "EngineOptions"):
            continue
        leaves += leaves_of(kind, path + ".") if kind in STRUCTS else [path]
    return leaves


def test_the_headers_are_understood() -> None:
    assert members_of("OpenOptions") == {"iteration": "std::string", "raw": "bool"}
    assert set(members_of("Tolerance")) == {"absolute", "relative"}
    assert "context" in members_of("ParallelTarget")
    assert {"open_a", "open_b", "only", "drop"} <= set(members_of("DiffOptions"))


@pytest.mark.parametrize("function", OPTIONS)
def test_every_member_is_reachable(function: str) -> None:
    bound = _ferry._options[function]
    assert sorted(leaves_of(OPTIONS[function])) == sorted(bound)


@pytest.mark.parametrize("function", OPTIONS)
def test_the_signature_has_every_keyword(function: str) -> None:
    signature = inspect.signature(getattr(ferry, function))
    keywords = set(signature.parameters) - {"progress"} - OWN.get(function, set())
    assert keywords == set(_ferry._options[function].values())


@pytest.mark.parametrize("function", OPTIONS)
def test_every_keyword_is_documented(function: str) -> None:
    documented: set[str] = set()
    for line in (getattr(ferry, function).__doc__ or "").splitlines():
        if names := re.match(r" {4}(\w+(?:, \w+)*): ", line):
            documented |= set(names.group(1).split(", "))
    assert documented == set(inspect.signature(getattr(ferry, function)).parameters)


def plain(value: Any) -> Any:
    if value in (None, "", (), 0, False):
        return None
    if isinstance(value, str) and re.fullmatch(r"[\d.]+(|[kMGT]i?)B", value):
        return _ferry.size_in_bytes(value)
    return value


@pytest.mark.parametrize("function", OPTIONS)
def test_defaults_are_the_librarys(function: str) -> None:
    signature = inspect.signature(getattr(ferry, function))
    for keyword, default in _ferry._defaults[function].items():
        own = signature.parameters[keyword].default
        if own is not inspect.Parameter.empty:
            assert plain(own) == plain(default), keyword
