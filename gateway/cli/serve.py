"""`entrepot serve`: run the gateway until a signal stops it."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.options import Json, SiteArgument
from gateway.cli.output import print_line, print_result
from gateway.errors import InvalidArgument, Misconfigured

if TYPE_CHECKING:
    from gateway.config import Address, Config
    from gateway.site.processes.supervisor import Supervisor

WORKER_MODULE = "gateway.cli.worker"


def add_to(app: typer.Typer) -> None:
    """Add these commands to *app*."""
    app.command("serve", short_help="Serve a site over S3.")(serve)


def serve(
    folder: SiteArgument,
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="HOST:PORT", help="The S3 endpoint's address. [default: from the config]"),
    ] = "",
    metrics: Annotated[
        str,
        typer.Option(
            "--metrics",
            metavar="HOST:PORT",
            help="The address of metrics and probes. [default: with --listen, its port + 1; otherwise from the config]",
        ),
    ] = "",
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", min=1, max=256, help="The number of workers. [default: from the config]", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Serve the site in DIR over S3. SIGTERM or ^C stops it, after the requests in progress have finished. SIGHUP
    reloads the config and the TLS files."""
    from gateway.config import load

    config = load(folder)
    if workers is not None:
        config = config.model_copy(update={"server": config.server.model_copy(update={"workers": workers})})
    at, watched = _addresses(config, listen, metrics)
    failure = asyncio.run(_serve(folder, config, at, watched, as_json=json))
    if failure:
        raise Misconfigured(failure)


def _addresses(config: Config, listen: str, metrics: str) -> tuple[Address, Address]:
    """Return the addresses of the S3 endpoint and of the metrics. With `--listen`, the metrics get the next port, so
    that two gateways with different `--listen` do not use the same."""
    from gateway.config import Address, parse_address

    try:
        at = parse_address(listen) if listen else config.server.listen
        if metrics:
            return at, parse_address(metrics)
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
    if listen:
        return at, Address(config.metrics.listen.host, (at.port + 1) % 65_536 if at.port else 0)
    return at, config.metrics.listen


async def _serve(folder: Path, config: Config, listen: Address, metrics: Address, *, as_json: bool) -> str:
    """Serve until a signal arrives or a process fails for good. Returns why it failed; empty for a signal."""
    from gateway.metrics.json_log import JsonLog, take_over_logging
    from gateway.site.processes.supervisor import Supervisor
    from gateway.timing import timing_from_environment

    timing = timing_from_environment()
    lines = JsonLog("supervisor", timing=timing)
    lines.configure(config.log.level, config.log.format)
    take_over_logging(lines)
    try:
        serving = await Supervisor.start(
            folder, config, lines, worker_module=WORKER_MODULE, listen=listen, metrics=metrics, timing=timing
        )
        _announce(serving, config, as_json=as_json)
        await serving.wait()
        await serving.stop()
        return serving.failure
    finally:
        lines.close()


def _announce(serving: Supervisor, config: Config, *, as_json: bool) -> None:
    """Print the addresses, the root user's access key, and commands to try."""
    from gateway.site.paths import ROOT_SECRET
    from gateway.site.rehearsal import READ_ONLY, is_rehearsal_in

    secret = (serving.folder / ROOT_SECRET).absolute()
    kept, rehearsal = secret.exists(), is_rehearsal_in(serving.folder, config)
    if as_json:
        facts = {"endpoint": serving.endpoint, "access_key": serving.root_access_key, "metrics": serving.metrics}
        more = {"secret_key_file": str(secret) if kept else None, "rehearsal": rehearsal}
        print_result({**facts, **more}, as_json=True, text=list)
        return
    at, region = serving.endpoint, config.site.region
    if rehearsal:
        print_line(f"REHEARSAL: {READ_ONLY}")
    print_line(f"endpoint: {at}")
    print_line(f"access key: {serving.root_access_key}")
    print_line(f"secret key: in {secret}" if kept else "secret key: no longer kept in the site's folder")
    print_line(f"metrics: {serving.metrics}")
    print_line("try:")
    secret_key = f"$(cat {shlex.quote(str(secret))})" if kept else "SECRET_KEY"
    print_line(
        f"  export AWS_ENDPOINT_URL={at} AWS_DEFAULT_REGION={region} AWS_ACCESS_KEY_ID={serving.root_access_key}"
        f" AWS_SECRET_ACCESS_KEY={secret_key}"
    )
    if rehearsal:
        print_line("  aws s3 ls")
        return
    print_line("  aws s3 mb s3://first && aws s3 cp README.md s3://first/ && aws s3 ls s3://first")
    print_line(f"  curl {serving.metrics}/readyz")
