"""Sealing, the key ring and the master key. Knows neither the journal nor the backends."""
