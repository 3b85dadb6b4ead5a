"""The JSON schema of the config, for editors that validate a TOML file. Pure."""

from __future__ import annotations

import json

from gateway.config.models import Config


def schema_text() -> str:
    """Return the schema, which is published as `conf/entrepot.schema.json`."""
    found = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "entrepot.toml"}
    made = Config.model_json_schema(mode="validation")
    made.pop("title")
    return json.dumps({**found, **made}, indent=2) + "\n"
