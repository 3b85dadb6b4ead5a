"""S3's formats: headers, request targets, XML, tokens, dates. Pure."""
