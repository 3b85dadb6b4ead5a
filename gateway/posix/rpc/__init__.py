"""The file verbs over HTTP: client, server and the protocol between them."""
