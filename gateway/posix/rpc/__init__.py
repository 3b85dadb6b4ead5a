"""`FileApi` over HTTP: the client, the server and the protocol between them."""
