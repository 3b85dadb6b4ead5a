"""The S3 API: parse a request, call the engine once, and build the response.

The layers, from the top: `server`, `app`, `operations` (the routing table), `ops` (one function for each operation),
`http` (connections and bodies), `auth`, `request` and `response`, `format` (headers and XML), `errors` and `codes`.
"""
