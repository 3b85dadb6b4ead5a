"""Drivers and wrappers behind one contract, `base.Backend`. Imports no other package of the project."""
