"""Where bytes lie: drivers and wrappers behind one contract, `base.Backend`. Imports nothing of ours."""
