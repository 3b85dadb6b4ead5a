"""Requests about an S3 bucket over one aiobotocore client: find and create it, list, delete, probe, and its marker.

The bytes of values never pass here. This client retries nothing by itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from backends import errors
from backends.s3.credentials import Credentials, resolve
from backends.s3.errors import (
    BucketLocation,
    S3Failure,
    failure_in_response,
    failure_of_botocore_error,
    to_backend_error,
)
from backends.s3.listing import LINES, PAGE_BYTES_MAX
from backends.s3.sessions import REGION_DEFAULT, create_client, prepare_session
from backends.s3.settings import S3Settings

CONTROL = ".entrepot"
"""The folder of the driver's own objects below the prefix; no key of a value begins with a dot."""

_ELSEWHERE = frozenset({301, 307, 400})
_CONDITION_FAILED = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey"})
"""Codes of a condition that does not hold. If-Match finds no key where the object was deleted meanwhile."""
_WRONG_CHECKSUM = "AAAAAAAAAAA="  # not the CRC64NVME of `_PROBE`
_UNUSED_MD5 = "0" * 32  # no known value has this MD5
_PROBE = b"does this place check what it is told?"


class ControlClient:
    """The client of one bucket. Every method raises `backends.errors`."""

    def __init__(self, client: Any, settings: S3Settings, region: str) -> None:
        self._client, self._settings, self.region = client, settings, region
        self.endpoint = str(client.meta.endpoint_url)
        self.location = BucketLocation(settings.name, settings.bucket, self.endpoint)
        self._reported_region = ""
        client.meta.events.register_first("needs-retry.s3", self._note_region)

    @classmethod
    async def start(cls, session: Any, settings: S3Settings, region: str) -> ControlClient:
        """Create a client for *region*, without a request. Raises `Misconfigured`."""
        from botocore.exceptions import BotoCoreError

        try:
            return cls(await create_client(session, settings, region).__aenter__(), settings, region)
        except (BotoCoreError, ValueError) as error:  # an invalid region in a profile, for example
            raise errors.Misconfigured(str(error), backend=settings.name) from error

    async def find_other_region(self) -> str | None:
        """List one line below the prefix. Return None if this region answers, else the region of the bucket. Raises
        any other error."""
        self._reported_region = ""
        try:
            with self._translating(None):
                await self._client.list_objects_v2(**self._in_bucket, Prefix=self._settings.prefix, MaxKeys=1)
        except errors.Misconfigured:
            if self._reported_region in ("", self.region):
                raise
        return self._reported_region if self._reported_region not in ("", self.region) else None

    async def create_bucket(self) -> None:
        """Create the bucket in this region. A bucket of this account that exists is no error."""
        constraint = {} if self.region == REGION_DEFAULT else {"LocationConstraint": self.region}
        options = {"CreateBucketConfiguration": constraint} if constraint else {}
        with self._translating(None, ignored_code="BucketAlreadyOwnedByYou"):
            await self._client.create_bucket(**self._in_bucket, **options)

    async def keeps_versions(self) -> bool:
        """Return whether deleted objects stay as old versions; False where the credentials may not read that."""
        try:
            with self._translating(None):
                answer = await self._client.get_bucket_versioning(**self._in_bucket)
        except errors.BackendError:
            return False
        return bool(answer.get("Status") == "Enabled")

    async def delete(self, path: str, key: str) -> None:
        """Delete the object at *path* of the value *key*; a missing one is no error.

        S3 answers 204 without a body (https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteObject.html). A
        response with a body is no success, whatever its status: servers send errors after a premature 200 (botocore
        raises those that it can parse)."""
        with self._translating(key, ignored_code="NoSuchKey"):
            answer = await self._client.delete_object(**self._in_bucket, Key=path)
            meta = answer["ResponseMetadata"]
            status, length = meta["HTTPStatusCode"], meta["HTTPHeaders"].get("content-length")
            if status != 204 and length != "0":
                message = f"{self.location}: the response to a delete was {status} with an unexpected body"
                raise errors.Unavailable(message, backend=self.location.name, key=key)

    async def probe_put_confirmation(self) -> tuple[Literal["checksum", "etag", "read"], bool]:
        """Probe how this server can confirm a put, with a put of a wrong CRC64NVME. Return also whether its ETags are
        MD5s.

        A server that refuses the put verifies checksums. For one that stores the value, or rejects the header, ETags
        confirm a put if they are the MD5 of the bytes sent."""
        path = self._control_path("probe")
        probe = {**self._in_bucket, "Key": path, "Body": _PROBE}
        wrong_checksum = {"ChecksumCRC64NVME": _WRONG_CHECKSUM, "ChecksumAlgorithm": "CRC64NVME"}
        try:
            with self._translating(path):
                answer = await self._client.put_object(**probe, **wrong_checksum)
        except (errors.Corrupted, errors.Misconfigured) as error:
            compares = isinstance(error, errors.Corrupted)
            with self._translating(path):
                answer = await self._client.put_object(**probe)
        else:
            compares = False
        with self._translating(path):
            await self._client.delete_object(**self._in_bucket, Key=path)
        etags_are_md5 = is_md5(answer.get("ETag"), hashlib.md5(_PROBE, usedforsecurity=False).hexdigest())
        return ("checksum" if compares else "etag" if etags_are_md5 else "read"), etags_are_md5

    async def probe_write_conditions(self) -> list[str]:
        """Return the conditional headers that this server supports: it refuses a write whose condition is false."""
        try:
            await self.write_control_object("probe", _PROBE, replacing=None)
            first, other = {"If-None-Match": None, "If-Match": f'"{_UNUSED_MD5}"'}.items()
            return [
                name
                for name, etag in (first, other)
                if not await self.write_control_object("probe", _PROBE, replacing=etag)
            ]
        finally:
            with self._translating(self._control_path("probe")):
                await self._client.delete_object(**self._in_bucket, Key=self._control_path("probe"))

    async def read_control_object(self, name: str, bytes_max: int) -> tuple[bytes, str] | None:
        """Read an object of the control folder, at most its first *bytes_max* bytes.

        Return the bytes and the ETag; None where it is missing."""
        path = self._control_path(name)
        try:
            with self._translating(path):
                answer = await self._client.get_object(**self._in_bucket, Key=path)
                async with answer["Body"] as stream:
                    return await _first_bytes(stream, bytes_max), str(answer.get("ETag", ""))
        except errors.NotFound:
            return None

    async def write_control_object(self, name: str, value: bytes, replacing: str | None) -> bool:
        """Write *value* to the object *name* of the control folder if it has the ETag *replacing* (None: if it does not
        exist). Return False if the condition does not hold. A server without conditional writes ignores it."""
        if replacing is None:
            return await self._write_if(name, value, IfNoneMatch="*")
        # Ceph compares the ETag without its quotes; RFC 9110 compares it with them.
        return await self._write_if(name, value, IfMatch=replacing) or await self._write_if(
            name, value, IfMatch=replacing.strip('"')
        )

    async def _write_if(self, name: str, value: bytes, **condition: str) -> bool:
        path = self._control_path(name)
        try:
            await self._client.put_object(**self._in_bucket, Key=path, Body=value, **condition)
        except Exception as error:
            failure = failure_of_botocore_error(error)
            if failure.status == 412 or failure.code in _CONDITION_FAILED:
                return False
            if failure.status != 501:
                raise self._to_backend_error(error, path) from error
            with self._translating(path):
                await self._client.put_object(**self._in_bucket, Key=path, Body=value)
        return True

    async def list_page(self, prefix: str, after: str = "", token: str = "", *, lines: int = LINES) -> bytes:
        """Return a page of the objects whose names begin with *prefix*, as the server's XML: the first one after
        *after*, or the one that *token* names."""
        from botocore.awsrequest import AWSRequest

        from backends.s3.botocore_http import read_bounded

        query: dict[str, Any] = {"Prefix": prefix, "MaxKeys": lines, "EncodingType": "url"}
        query |= {"ContinuationToken": token} if token else {"StartAfter": after} if after else {}
        with self._translating(None):
            url = await self._client.generate_presigned_url("list_objects_v2", Params={**self._in_bucket, **query})
            request = AWSRequest("GET", url, stream_output=True).prepare()
            answer = await self._client._endpoint.http_session.send(request)  # noqa: SLF001 (no public way)
            async with answer.raw:  # closes the connection where the response was not read to its end
                body = await read_bounded(answer.raw.content, PAGE_BYTES_MAX)
        if answer.status_code == 200:
            return body
        raise to_backend_error(failure_in_response(answer.status_code, answer.headers, body), self.location, None, None)

    def tls_context(self, ca_pem: bytes | None) -> ssl.SSLContext:
        """Create a TLS context that trusts *ca_pem* alone; without it, the authorities of this machine and those of
        botocore. Blocking: it reads certificates."""
        from botocore.httpsession import get_cert_path

        context = ssl.create_default_context(cadata=None if ca_pem is None else ca_pem.decode("ascii", "replace"))
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # self-made authorities lack extensions
        if ca_pem is None:
            verify = self._client._endpoint.http_session._verify  # noqa: SLF001 (a path, where the environment names one)
            context.load_verify_locations(get_cert_path(verify))
        return context

    async def close(self) -> None:
        """Close the connections."""
        await self._client.__aexit__(None, None, None)

    def _control_path(self, name: str) -> str:
        return f"{self._settings.prefix}{CONTROL}/{name}"

    @property
    def _in_bucket(self) -> dict[str, str]:
        return {"Bucket": self._settings.bucket}

    def _note_region(self, request_dict: Any, response: Any = None, **_: object) -> None:
        """Note the region that a response reports for the bucket, which the client for values needs too. Keep botocore
        from following the redirect itself: it would repeat requests without end where each response redirects again."""
        request_dict["context"].setdefault("s3_redirect", {})["redirected"] = True
        if response is None:
            return
        http, parsed = response
        if http.status_code in _ELSEWHERE:
            error = parsed.get("Error", {})
            self._reported_region = str(error.get("Region") or http.headers.get("x-amz-bucket-region") or "")

    @contextmanager
    def _translating(self, key: str | None, ignored_code: str = "") -> Iterator[None]:
        """Turn the exceptions of botocore into `backends.errors`; ignore an error with the code *ignored_code*."""
        try:
            yield
        except errors.BackendError:
            raise
        except Exception as error:  # botocore's parsers raise anything
            if not ignored_code or failure_of_botocore_error(error).code != ignored_code:
                raise self._to_backend_error(error, key) from error

    def _to_backend_error(self, error: Exception, key: str | None) -> errors.BackendError:
        return to_backend_error(failure_of_botocore_error(error), self.location, key, error)


async def open_control(settings: S3Settings) -> tuple[ControlClient, Credentials]:
    """Resolve the credentials, find the region and the bucket, and create the bucket if the settings say so."""
    session = await asyncio.to_thread(prepare_session, settings)
    credentials = await resolve(session, settings)
    region = settings.region or session.get_config_variable("region") or REGION_DEFAULT
    control = await ControlClient.start(session, settings, region)
    try:
        elsewhere = await _find_or_create(control, settings)
        if elsewhere is not None and settings.region is None:
            await control.close()
            control = await ControlClient.start(session, settings, elsewhere)
            elsewhere = await _find_or_create(control, settings)
        if elsewhere is not None:
            raise to_backend_error(
                S3Failure(301, "", "", elsewhere), control.location, None, errors.Misconfigured("wrong region")
            )
    except BaseException:
        await control.close()
        raise
    return control, credentials


async def _find_or_create(control: ControlClient, settings: S3Settings) -> str | None:
    try:
        return await control.find_other_region()
    except errors.Misconfigured as error:
        if not settings.create_bucket or failure_of_botocore_error(error.__cause__ or error).code != "NoSuchBucket":
            raise
    await control.create_bucket()
    return await control.find_other_region()


async def _first_bytes(stream: Any, bytes_max: int) -> bytes:
    """Read *stream* to its end, or its first *bytes_max* bytes."""
    content = bytearray()
    while len(content) < bytes_max and (part := await stream.read(bytes_max - len(content))):
        content += part
    return bytes(content)


def is_md5(etag: str | None, digest: str) -> bool:
    """Return whether *etag* is the MD5 *digest*, in hex."""
    return etag is not None and etag.strip('"').lower() == digest
