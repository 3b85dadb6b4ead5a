"""HTTP connections: accepting, limits, exchanges of a request and its response, closing."""
