"""CORS rules of a bucket: their XML, and which rule applies to a request. Pure.

Source: the S3 user guide, "Elements of a CORS configuration" and "How does Amazon S3 evaluate the CORS configuration on
a bucket?".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from s3api.errors import S3Error
from s3api.format.xml_reader import Element, parse_xml
from s3api.format.xml_writer import XMLNS, escape

RULES_MAX = 100
DOCUMENT_BYTES_MAX = 64 << 10
HEADER_PATTERNS_MAX = 200
"""The most AllowedHeader elements with a wildcard that all rules have together. S3 has no such limit. A preflight
request is compared with each of them."""
METHODS = ("GET", "PUT", "POST", "DELETE", "HEAD")
ROOT = "CORSConfiguration"
ID_CHARS_MAX = 255
_HEADER_TEXT = re.compile(r"[\x21-\x7e]+( [\x21-\x7e]+)*")
_VARY = "Vary: Origin, Access-Control-Request-Headers, Access-Control-Request-Method\r\n"


class CorsRule(NamedTuple):
    """One rule."""

    id: str
    origins: tuple[str, ...]
    """Each with at most one `*`."""
    methods: tuple[str, ...]
    headers: tuple[str, ...]
    """The request headers that are allowed, in any case, each with at most one `*`."""
    exposed: tuple[str, ...]
    """The response headers that a browser shows to its page."""
    max_age_seconds: int | None


def parse_rules(root: Element) -> tuple[CorsRule, ...]:
    """Parse a CORSConfiguration. Raises S3Error MalformedXML, InvalidRequest."""
    elements = root.all("CORSRule")
    if not 0 < len(elements) <= RULES_MAX or len(elements) != len(root.children):
        raise S3Error("MalformedXML")
    rules = tuple(map(_parse_rule, elements))
    if sum("*" in header for rule in rules for header in rule.headers) > HEADER_PATTERNS_MAX:
        raise S3Error(
            "InvalidRequest", f"At most {HEADER_PATTERNS_MAX} AllowedHeader elements with a wildcard are supported."
        )
    return rules


def _parse_rule(element: Element) -> CorsRule:
    origins, methods = _texts(element, "AllowedOrigin"), _texts(element, "AllowedMethod")
    if not origins or not methods:
        raise S3Error("MalformedXML")
    for method in methods:
        if method not in METHODS:
            raise S3Error(
                "InvalidRequest", f"Found unsupported HTTP method in CORS config. Unsupported method is {method}"
            )
    headers = _texts(element, "AllowedHeader")
    for name, values in (("AllowedOrigin", origins), ("AllowedHeader", headers)):
        for value in values:
            if value.count("*") > 1:
                raise S3Error("InvalidRequest", f'{name} "{value}" can not have more than one wildcard.')
    exposed = _texts(element, "ExposeHeader")
    for value in exposed:
        if "*" in value:
            raise S3Error(
                "InvalidRequest", f'ExposeHeader "{value}" contains wildcard. We currently do not support it.'
            )
    age = element.get("MaxAgeSeconds")
    if age is not None and not (age.isascii() and age.isdigit() and len(age) <= 10):
        raise S3Error("MalformedXML")
    rule_id = element.get("ID") or ""
    if len(rule_id) > ID_CHARS_MAX:
        raise S3Error(
            "InvalidArgument", f"ID length should not exceed allowed limit of {ID_CHARS_MAX}", ArgumentName="ID"
        )
    return CorsRule(rule_id, origins, methods, headers, exposed, int(age) if age is not None else None)


def _texts(element: Element, name: str) -> tuple[str, ...]:
    """Return the texts of the children called *name*, which become parts of header lines."""
    texts = tuple(child.text.strip() for child in element.all(name))
    if not all(_HEADER_TEXT.fullmatch(text) for text in texts):
        raise S3Error("MalformedXML")
    return texts


def rules_xml(rules: Sequence[CorsRule]) -> str:
    """Return the CORSConfiguration with *rules*, as it is stored and returned."""
    return f"<{ROOT} {XMLNS}>{''.join(map(_rule_xml, rules))}</{ROOT}>"


def _rule_xml(rule: CorsRule) -> str:
    parts = [f"<ID>{escape(rule.id)}</ID>"] if rule.id else []
    for name, values in (
        ("AllowedHeader", rule.headers),
        ("AllowedMethod", rule.methods),
        ("AllowedOrigin", rule.origins),
        ("ExposeHeader", rule.exposed),
    ):
        parts += [f"<{name}>{escape(value)}</{name}>" for value in values]
    if rule.max_age_seconds is not None:
        parts.append(f"<MaxAgeSeconds>{rule.max_age_seconds}</MaxAgeSeconds>")
    return f"<CORSRule>{''.join(parts)}</CORSRule>"


@lru_cache(256)
def stored_rules(document: bytes) -> tuple[CorsRule, ...]:
    """Return the rules of a stored document."""
    return parse_rules(parse_xml(document, ROOT))


def find_rule(
    rules: Sequence[CorsRule], origin: str, method: str, request_headers: Sequence[str] = ()
) -> CorsRule | None:
    """Return the first rule that allows a page from *origin* to send *method* with *request_headers*."""
    lower = [header.lower() for header in request_headers]
    for rule in rules:
        if (
            method in rule.methods
            and any(_matches(each, origin) for each in rule.origins)
            and _allows_headers(rule, lower)
        ):
            return rule
    return None


def _allows_headers(rule: CorsRule, request_headers: Sequence[str]) -> bool:
    """Whether *rule* allows all of *request_headers*, which are in lower case."""
    if not request_headers:
        return True
    allowed = [each.lower() for each in rule.headers]
    others = set(request_headers).difference(allowed)
    patterns = [each for each in allowed if "*" in each]
    return all(any(_matches(each, header) for each in patterns) for header in others)


def _matches(pattern: str, text: str) -> bool:
    before, star, after = pattern.partition("*")
    if not star:
        return pattern == text
    return len(text) >= len(before) + len(after) and text.startswith(before) and text.endswith(after)


def cors_lines(rule: CorsRule, origin: str, request_headers: Sequence[str] = ()) -> str:
    """Return the header lines for a request from *origin* that *rule* allows."""
    anybody = "*" in rule.origins
    lines = f"Access-Control-Allow-Origin: {'*' if anybody else origin}\r\n"
    lines += f"Access-Control-Allow-Methods: {', '.join(rule.methods)}\r\n"
    if request_headers:
        lines += f"Access-Control-Allow-Headers: {', '.join(header.lower() for header in request_headers)}\r\n"
    if rule.exposed:
        lines += f"Access-Control-Expose-Headers: {', '.join(rule.exposed)}\r\n"
    if rule.max_age_seconds is not None:
        lines += f"Access-Control-Max-Age: {rule.max_age_seconds}\r\n"
    if not anybody:
        lines += "Access-Control-Allow-Credentials: true\r\n"
    return lines + _VARY
