"""The error that the S3 API itself raises. `format/error_response.py` formats it, and the errors of the engine."""

from __future__ import annotations


class S3Error(Exception):
    """An error of the S3 protocol, such as malformed XML or an invalid header.

    *code* is a key of `s3api.codes.CODES`. *message* replaces the sentence that CODES has for the code. *extras* become
    XML elements of the error document."""

    def __init__(self, code: str, message: str = "", **extras: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.extras = extras
