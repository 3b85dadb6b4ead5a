"""The config file of a site: parsing and validation. Reads files; opens no backend and makes no connection."""

from gateway.config.loading import CONFIG_NAME, default_text, load, load_text
from gateway.config.models import Config
from gateway.config.units import Address, parse_address

__all__ = ["CONFIG_NAME", "Address", "Config", "default_text", "load", "load_text", "parse_address"]
