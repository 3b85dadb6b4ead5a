"""The slow side of an S3 backend, over one aiobotocore client: finding the bucket, making it, its marker, its habits.

Bytes of values never pass here. botocore is loaded, and its models are read, in a thread, since that takes a second.
It retries nothing by itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Literal

from backends import errors
from backends.s3.credentials import Credentials, resolve
from backends.s3.errors import BucketLocation, S3Failure, failure_in_response, failure_of_botocore_error, translated
from backends.s3.listing import LINES, PAGE_BYTES_MAX
from backends.s3.settings import S3Settings

CONTROL = ".entrepot"
"""Below the prefix, what the driver keeps for itself; no key of a value begins with a dot."""

REGION_DEFAULT = "us-east-1"
_ELSEWHERE = frozenset({301, 307, 400})
_NOT_SO = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey"})
"""A condition that does not hold; an If-Match finds no key at all where the object was deleted meanwhile."""
_LIE = "AAAAAAAAAAA="  # as the CRC64NVME of `_PROBE`, whose true one is another
_NOBODYS = "0" * 32  # no value's MD5 that anybody has seen
_PROBE = b"does this place check what it is told?"

_loading = threading.Lock()
_loaded: list[bool] = []


class ControlClient:
    """One client for one bucket. Every method raises `backends.errors`."""

    def __init__(self, client: Any, settings: S3Settings, region: str) -> None:
        self._client, self._settings, self.region = client, settings, region
        self.endpoint = str(client.meta.endpoint_url)
        self.where = BucketLocation(settings.name, settings.bucket, self.endpoint)
        self._region_told = ""
        client.meta.events.register_first("needs-retry.s3", self._listen_for_region)

    @classmethod
    async def start(cls, session: Any, settings: S3Settings, region: str) -> ControlClient:
        """A client for *region*; nothing is asked of the server yet. Raises `Misconfigured`."""
        from botocore.exceptions import BotoCoreError

        try:
            return cls(await _client(session, settings, region).__aenter__(), settings, region)
        except (BotoCoreError, ValueError) as error:  # of a region that a profile names, say
            raise errors.Misconfigured(str(error), backend=settings.name) from error

    async def region_elsewhere(self) -> str | None:
        """Ask for one line below the prefix: None if it is answered here, else the region where the bucket lies.
        Raises what stands in the way."""
        self._region_told = ""
        try:
            with self._translating(None):
                await self._client.list_objects_v2(**self._in_bucket, Prefix=self._settings.prefix, MaxKeys=1)
        except errors.Misconfigured:
            if self._region_told in ("", self.region):
                raise
        return self._region_told if self._region_told not in ("", self.region) else None

    async def create_bucket(self) -> None:
        """Make the bucket in this region; that we made it already is fine."""
        place = {} if self.region == REGION_DEFAULT else {"LocationConstraint": self.region}
        wanted = {"CreateBucketConfiguration": place} if place else {}
        with self._translating(None, fine="BucketAlreadyOwnedByYou"):
            await self._client.create_bucket(**self._in_bucket, **wanted)

    async def keeps_versions(self) -> bool:
        """Whether what is deleted stays in the bucket as an old version. False where we may not know."""
        try:
            with self._translating(None):
                answer = await self._client.get_bucket_versioning(**self._in_bucket)
        except errors.BackendError:
            return False
        return bool(answer.get("Status") == "Enabled")

    async def delete(self, path: str, key: str) -> None:
        """Delete the value *key*, which lies at *path*; one that is not there is fine. S3 answers 204 without a body
        (https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteObject.html). What has a body is no success, whatever
        its status: servers send errors behind a 200 that came too early (botocore raises those that it can read)."""
        with self._translating(key, fine="NoSuchKey"):
            answer = await self._client.delete_object(**self._in_bucket, Key=path)
            meta = answer["ResponseMetadata"]
            status, length = meta["HTTPStatusCode"], meta["HTTPHeaders"].get("content-length")
            if status != 204 and length != "0":
                message = f"{self.where}: a delete was answered {status} with something else behind it"
                raise errors.Unavailable(message, backend=self.where.name, key=key)

    async def probe_put_confirmation(self) -> tuple[Literal["checksum", "etag", "read"], bool]:
        """How this server can confirm a put: it is told a wrong CRC64NVME. One that refuses checks what it is told;
        of one that stores it all the same, or does not want to hear of it, the ETag is worth something if it is the
        MD5 of what was sent. Answers also whether its ETags are MD5s."""
        at = self._own("probe")
        probe = {**self._in_bucket, "Key": at, "Body": _PROBE}
        lie = {"ChecksumCRC64NVME": _LIE, "ChecksumAlgorithm": "CRC64NVME"}
        try:
            with self._translating(at):
                answer = await self._client.put_object(**probe, **lie)
        except (errors.Corrupted, errors.Misconfigured) as error:
            compares = isinstance(error, errors.Corrupted)
            with self._translating(at):
                answer = await self._client.put_object(**probe)
        else:
            compares = False
        with self._translating(at):
            await self._client.delete_object(**self._in_bucket, Key=at)
        tell = is_md5(answer.get("ETag"), hashlib.md5(_PROBE, usedforsecurity=False).hexdigest())
        return ("checksum" if compares else "etag" if tell else "read"), tell

    async def probe_write_conditions(self) -> list[str]:
        """The conditions of which this server refuses a write that does not meet them."""
        try:
            await self.write_own("probe", _PROBE, replacing=None)
            first, other = {"If-None-Match": None, "If-Match": f'"{_NOBODYS}"'}.items()
            return [name for name, etag in (first, other) if not await self.write_own("probe", _PROBE, replacing=etag)]
        finally:
            with self._translating(self._own("probe")):
                await self._client.delete_object(**self._in_bucket, Key=self._own("probe"))

    async def read_own(self, name: str, bytes_max: int) -> tuple[bytes, str] | None:
        """What stands in the control folder under *name*, or its first *bytes_max* bytes, and its ETag."""
        at = self._own(name)
        try:
            with self._translating(at):
                answer = await self._client.get_object(**self._in_bucket, Key=at)
                async with answer["Body"] as stream:
                    return await _first_bytes(stream, bytes_max), str(answer.get("ETag", ""))
        except errors.NotFound:
            return None

    async def write_own(self, name: str, value: bytes, replacing: str | None) -> bool:
        """Write *value* under *name* in the control folder, if what stands there has the ETag *replacing* (None: if
        nothing does); False if that is not so. A server that knows no such conditions writes all the same."""
        if replacing is None:
            return await self._write_if(name, value, IfNoneMatch="*")
        # Ceph compares with what stands between the quotes, RFC 9110 with what stands there quotes and all.
        return await self._write_if(name, value, IfMatch=replacing) or await self._write_if(
            name, value, IfMatch=replacing.strip('"')
        )

    async def _write_if(self, name: str, value: bytes, **condition: str) -> bool:
        at = self._own(name)
        try:
            await self._client.put_object(**self._in_bucket, Key=at, Body=value, **condition)
        except Exception as error:
            said = failure_of_botocore_error(error)
            if said.status == 412 or said.code in _NOT_SO:
                return False
            if said.status != 501:
                raise self._translated(error, at) from error
            with self._translating(at):
                await self._client.put_object(**self._in_bucket, Key=at, Body=value)
        return True

    async def list_page(self, prefix: str, after: str = "", token: str = "", *, lines: int = LINES) -> bytes:
        """A page of what the bucket holds under names that begin with *prefix*, as the server's XML: the first one
        behind *after*, or the one that *token* stands for."""
        from botocore.awsrequest import AWSRequest

        from backends.s3.botocore_http import first_bytes

        query: dict[str, Any] = {"Prefix": prefix, "MaxKeys": lines, "EncodingType": "url"}
        query |= {"ContinuationToken": token} if token else {"StartAfter": after} if after else {}
        with self._translating(None):
            url = await self._client.generate_presigned_url("list_objects_v2", Params={**self._in_bucket, **query})
            request = AWSRequest("GET", url, stream_output=True).prepare()
            answer = await self._client._endpoint.http_session.send(request)  # noqa: SLF001 (nobody else has one)
            async with answer.raw:  # a connection with an answer that was not read to its end is closed
                body = await first_bytes(answer.raw.content, PAGE_BYTES_MAX)
        if answer.status_code == 200:
            return body
        raise translated(failure_in_response(answer.status_code, answer.headers, body), self.where, None, None)

    def tls_context(self, ca_pem: bytes | None) -> ssl.SSLContext:
        """A context for TLS that trusts *ca_pem* alone, or without it the authorities of this machine and those that
        botocore trusts. Blocking: it reads certificates."""
        from botocore.httpsession import get_cert_path

        context = ssl.create_default_context(cadata=None if ca_pem is None else ca_pem.decode("ascii", "replace"))
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # authorities made by hand lack extensions
        if ca_pem is None:
            verify = self._client._endpoint.http_session._verify  # noqa: SLF001 (a path, where the environment names one)
            context.load_verify_locations(get_cert_path(verify))
        return context

    async def close(self) -> None:
        """Close the connections."""
        await self._client.__aexit__(None, None, None)

    def _own(self, name: str) -> str:
        return f"{self._settings.prefix}{CONTROL}/{name}"

    @property
    def _in_bucket(self) -> dict[str, str]:
        return {"Bucket": self._settings.bucket}

    def _listen_for_region(self, request_dict: Any, response: Any = None, **_: object) -> None:
        """Keep where a bucket is said to lie, which the client for values has to know too. botocore itself shall not go
        there: it asks anew to find out where that is, and anew for an answer that sends it elsewhere again, without
        end."""
        request_dict["context"].setdefault("s3_redirect", {})["redirected"] = True
        if response is None:
            return
        http, parsed = response
        if http.status_code in _ELSEWHERE:
            fault = parsed.get("Error", {})
            self._region_told = str(fault.get("Region") or http.headers.get("x-amz-bucket-region") or "")

    @contextmanager
    def _translating(self, key: str | None, fine: str = "") -> Iterator[None]:
        """Turn what botocore raises into our errors; the code *fine* is no error."""
        try:
            yield
        except errors.BackendError:
            raise
        except Exception as error:  # botocore's parsers raise anything
            if not fine or failure_of_botocore_error(error).code != fine:
                raise self._translated(error, key) from error

    def _translated(self, error: Exception, key: str | None) -> errors.BackendError:
        return translated(failure_of_botocore_error(error), self.where, key, error)


async def open_control(settings: S3Settings) -> tuple[ControlClient, Credentials]:
    """Find the keys, the region and the bucket, which is made where that is asked for. Raises what is in the way."""
    session = await asyncio.to_thread(_prepared, settings)
    credentials = await resolve(session, settings)
    region = settings.region or session.get_config_variable("region") or REGION_DEFAULT
    control = await ControlClient.start(session, settings, region)
    try:
        elsewhere = await _found_or_made(control, settings)
        if elsewhere is not None and settings.region is None:
            await control.close()
            control = await ControlClient.start(session, settings, elsewhere)
            elsewhere = await _found_or_made(control, settings)
        if elsewhere is not None:
            raise translated(
                S3Failure(301, "", "", elsewhere), control.where, None, errors.Misconfigured("wrong region")
            )
    except BaseException:
        await control.close()
        raise
    return control, credentials


async def _found_or_made(control: ControlClient, settings: S3Settings) -> str | None:
    try:
        return await control.region_elsewhere()
    except errors.Misconfigured as error:
        if not settings.create_bucket or failure_of_botocore_error(error.__cause__ or error).code != "NoSuchBucket":
            raise
    await control.create_bucket()
    return await control.region_elsewhere()


async def _first_bytes(stream: Any, bytes_max: int) -> bytes:
    """All of *stream*, or its first *bytes_max* bytes; of what follows nothing is taken in."""
    found = bytearray()
    while len(found) < bytes_max and (part := await stream.read(bytes_max - len(found))):
        found += part
    return bytes(found)


def is_md5(etag: str | None, digest: str) -> bool:
    """Whether *etag* is that MD5."""
    return etag is not None and etag.strip('"').lower() == digest


def load() -> None:
    """Load what opening a bucket takes, once in a process; nobody is asked anything. Blocking: a second, and on a busy
    machine many."""
    with _loading:
        if not _loaded:
            keys = (None, None, None, None)
            with suppress(errors.Misconfigured):  # an environment that is wrong is told by who opens a bucket
                _prepared(S3Settings("", "", "", None, REGION_DEFAULT, *keys, "auto", False, None, 1, 1.0, "auto"))
            _loaded.append(True)


def _prepared(settings: S3Settings) -> Any:
    """A session that has read its models: a client is made and thrown away here, so that the next takes 6 ms."""
    from aiobotocore.session import AioSession
    from botocore.exceptions import BotoCoreError

    try:
        session = AioSession(profile=settings.profile)
        session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
        asyncio.run(_warm(session, settings))
    except (BotoCoreError, ValueError) as error:
        raise errors.Misconfigured(str(error), backend=settings.name) from error
    return session


@cache
def _loader(data_path: str | None) -> Any:
    """botocore's models of services, read from its files once in a process: parsing them takes a tenth of a second."""
    from botocore.loaders import create_loader

    return create_loader(data_path)


async def _warm(session: Any, settings: S3Settings) -> None:
    """With keys that are nobody's, so that the chain is left for the loop that will use it."""
    async with _client(session, settings, REGION_DEFAULT, aws_access_key_id="warm", aws_secret_access_key="up"):  # noqa: S106
        pass


def _client(session: Any, settings: S3Settings, region: str, **keys: str) -> Any:
    from aiobotocore.config import AioConfig

    from backends.s3.botocore_http import BoundedSession

    config = AioConfig(
        signature_version="s3v4",
        connect_timeout=settings.timing.connect_seconds,
        read_timeout=settings.timeout_s,
        retries={"total_max_attempts": 1},
        s3={"addressing_style": settings.style},
        # Servers older than these checksums refuse the trailers that they come in.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        max_pool_connections=settings.connections,
        http_session_cls=BoundedSession,
    )
    return session.create_client(
        "s3", region_name=region, endpoint_url=settings.endpoint, verify=settings.ca_file, config=config, **keys
    )
