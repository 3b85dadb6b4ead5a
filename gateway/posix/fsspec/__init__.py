"""The fsspec file system `entrepot://`."""
