"""Patterns with the wildcards `*` and `?`, and with policy variables such as `${aws:username}`. Pure.

A pattern is split at each `*` into segments. The first segment must begin the text, the last one must end it, and each
one between them is looked for from the left, behind the one before it. The leftmost place leaves most of the text to
the segments that follow, so nothing is tried twice. A segment without `?` is found by
`str.find`. One with `?` is looked for by a regular expression, in up to as many steps as the product of both lengths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

ContextValue = Callable[[str], str | None]
"""Returns the value of a condition key; None if the request has none."""

_TOKEN = re.compile(r"\$\{([^{}]{0,128})\}|([*?])")
_LITERALS = {"*", "?", "$"}
VARIABLES = frozenset(
    {"aws:currenttime", "aws:epochtime", "aws:securetransport", "aws:sourceip", "aws:userid", "aws:username"}
)
"""The policy variables that are supported, in lower case. Their values are short."""


class _Variable(NamedTuple):
    """A policy variable, and the text that replaces it if the request has no value for it."""

    name: str
    default: str | None


class _Any(NamedTuple):
    """`*` or `?`."""

    char: str


_Token = str | _Any | _Variable


class Pattern:
    """A compiled pattern. Without wildcards and variables it matches exactly its text."""

    __slots__ = ("_segments", "_tokens", "text")

    def __init__(self, text: str, *, wildcards: bool = True, variables: bool = True) -> None:
        """Raises `ValueError` for a variable that is not closed or not supported."""
        self.text = text
        self._tokens = _tokenize(text, wildcards, variables)
        has_variables = any(isinstance(token, _Variable) for token in self._tokens)
        self._segments = None if has_variables else _segments_of(self._tokens)

    def matches(self, text: str, value_of: ContextValue = lambda name: None) -> bool:
        """Whether *text* matches. A pattern with a variable that has neither a value nor a default matches nothing."""
        segments = self._segments
        if segments is None:
            tokens = _substitute(self._tokens, value_of)
            if tokens is None:
                return False
            segments = _segments_of(tokens)
        return _match(segments, text)


class _Segment(NamedTuple):
    """The part of a pattern between two `*`."""

    length: int
    literal: str
    """The text, if the segment has no `?`."""
    regex: re.Pattern[str] | None


def _tokenize(text: str, wildcards: bool, variables: bool) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    for match in _TOKEN.finditer(text):
        variable = match[1]
        if not (variables if variable is not None else wildcards):
            continue
        if match.start() > at:
            tokens.append(text[at : match.start()])
        at = match.end()
        if variable is None:
            tokens.append(_Any(match[2]))
        elif variable in _LITERALS:
            tokens.append(variable)
        else:
            tokens.append(_variable(variable))
    if at < len(text):
        tokens.append(text[at:])
    if variables and any(isinstance(token, str) and "${" in token for token in tokens):
        raise ValueError(f"{text!r} contains ${{ without a policy variable")
    return tokens


def _variable(text: str) -> _Variable:
    name, comma, default = text.partition(",")
    default = default.strip()
    if name.strip().lower() not in VARIABLES:
        raise ValueError(f"the policy variable ${{{name.strip()}}} is not supported")
    if not comma:
        return _Variable(name.strip().lower(), None)
    if len(default) < 2 or default[0] != "'" or default[-1] != "'":
        raise ValueError(f"the default of ${{{text}}} is not within single quotes")
    return _Variable(name.strip().lower(), default[1:-1])


def _substitute(tokens: Sequence[_Token], value_of: ContextValue) -> list[_Token] | None:
    substituted: list[_Token] = []
    for token in tokens:
        if isinstance(token, _Variable):
            value = value_of(token.name)
            if value is None:
                value = token.default
            if value is None:
                return None
            substituted.append(value)
        else:
            substituted.append(token)
    return substituted


def _segments_of(tokens: Sequence[_Token]) -> list[_Segment]:
    segments: list[list[_Token]] = [[]]
    for token in tokens:
        if isinstance(token, _Any) and token.char == "*":
            segments.append([])
        else:
            segments[-1].append(token)
    return [_segment(tuple(each)) for each in segments]


@lru_cache(1024)
def _segment(tokens: tuple[_Token, ...]) -> _Segment:
    if any(isinstance(token, _Any) for token in tokens):
        expression = "".join("." if isinstance(token, _Any) else re.escape(str(token)) for token in tokens)
        length = sum(1 if isinstance(token, _Any) else len(str(token)) for token in tokens)
        return _Segment(length, "", re.compile(expression, re.DOTALL))
    literal = "".join(map(str, tokens))
    return _Segment(len(literal), literal, None)


def _match(segments: Sequence[_Segment], text: str) -> bool:
    first = segments[0]
    if len(segments) == 1:
        return len(text) == first.length and _is_at(first, text, 0)
    last = segments[-1]
    end = len(text) - last.length
    if end < first.length or not _is_at(first, text, 0) or not _is_at(last, text, end):
        return False
    at = first.length
    for segment in segments[1:-1]:
        found = _find(segment, text, at, end)
        if found < 0:
            return False
        at = found + segment.length
    return True


def _is_at(segment: _Segment, text: str, at: int) -> bool:
    if segment.regex is None:
        return text.startswith(segment.literal, at)
    return segment.regex.match(text, at) is not None


def _find(segment: _Segment, text: str, at: int, end: int) -> int:
    if segment.regex is None:
        return text.find(segment.literal, at, end)
    found = segment.regex.search(text, at, end)
    return -1 if found is None else found.start()
