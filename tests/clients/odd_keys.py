"""Keys that S3 allows and that clients, proxies and servers are known to stumble over.

Each client's module takes all of them but those that the client itself cannot spell, which it names with the reason.
"""

ODD_KEYS = {
    "spaces": "with space/and  two /here",
    "plus": "a+b+c/1+1",
    "percent": "100%/%2F/%zz/%41",
    "unicode": "grüße/日本語/😀.txt",
    "decomposed": "decomposed/e\u0301",
    "composed": "composed/\u00e9",
    "quotes": 'it\'s "quoted" and `so`',
    "markup": "a&b<c>d&amp;e",
    "query": "what?x=1#fragment;y",
    "punctuation": "~!@$^(),:=|[a]{b}*",
    "backslash": "back\\slash\\",
    "doubled slash": "a//b///c",
    "leading slash": "/leading",
    "dots": "up/../down/./here",
    "dots alone": "..",
    "hidden": "...three/.one",
    "trailing slash": "folder/",
    "beside a folder": "folder",
    "very long": "long/" + "k" * 1019,
    "very long in parts": ("segment/" * 128)[:1023] + "x",
    "very long unicode": "語" * 341 + "x",
    "control characters": "tab\tand\nline",
}


def odd_keys(cannot: dict[str, str]) -> dict[str, str]:
    """All of them but those that a client *cannot* spell: the names of those, each with the reason."""
    unknown = set(cannot) - set(ODD_KEYS)
    assert not unknown, f"no such odd keys: {unknown}"
    return {name: key for name, key in ODD_KEYS.items() if name not in cannot}
