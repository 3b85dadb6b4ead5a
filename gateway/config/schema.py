"""The config's JSON schema, for editors that check a TOML file while it is written. Pure."""

from __future__ import annotations

import json

from gateway.config.models import Config


def schema_text() -> str:
    """The schema, as it is published in `conf/entrepot.schema.json`."""
    found = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "entrepot.toml"}
    made = Config.model_json_schema(mode="validation")
    made.pop("title")
    return json.dumps({**found, **made}, indent=2) + "\n"
