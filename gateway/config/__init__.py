"""The site's config file: what may stand in it, and what it means. Reads files; opens and connects nothing."""

from gateway.config.loading import CONFIG_NAME, default_text, load, load_text
from gateway.config.models import Config
from gateway.config.units import Address, parse_address

__all__ = ["CONFIG_NAME", "Address", "Config", "default_text", "load", "load_text", "parse_address"]
