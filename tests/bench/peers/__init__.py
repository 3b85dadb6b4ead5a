"""Entrepot beside MinIO and versitygw: the same client, the same disk, the servers taking turns."""
