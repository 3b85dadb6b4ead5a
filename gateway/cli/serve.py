"""`entrepot serve`: the gateway, until it is told to stop."""

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
    """Make these commands of *app*."""
    app.command("serve")(serve)


def serve(
    folder: SiteArgument,
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Instead of the config's.")] = "",
    metrics: Annotated[
        str,
        typer.Option("--metrics", metavar="HOST:PORT", help="Instead of the config's; with --listen, its port + 1."),
    ] = "",
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, max=256, help="Instead of the config's.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Serve the site in DIR over S3. SIGTERM or ^C stops it; requests under way finish. SIGHUP reads the config and the
    TLS files anew."""
    from gateway.config import load

    config = load(folder)
    if workers is not None:
        config = config.model_copy(update={"server": config.server.model_copy(update={"workers": workers})})
    at, watched = _addresses(config, listen, metrics)
    failure = asyncio.run(_serve(folder, config, at, watched, as_json=json))
    if failure:
        raise Misconfigured(failure)


def _addresses(config: Config, listen: str, metrics: str) -> tuple[Address, Address]:
    """Where S3 and where metrics are served. Two gateways that differ in `--listen` do not collide in metrics."""
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
    """Serve until told to stop. Answers why a process could not go on, if that is what stopped it."""
    from gateway.metrics.json_log import LEVELS, JsonLog, take_over_logging
    from gateway.site.processes.supervisor import Supervisor
    from gateway.timing import timing_from_environment

    timing = timing_from_environment()
    lines = JsonLog("supervisor", LEVELS[config.log.level], timing=timing)
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
    """Where it is, who may come in, and what to try."""
    from gateway.site.paths import ROOT_SECRET

    secret = (serving.folder / ROOT_SECRET).absolute()
    if as_json:
        facts = {"endpoint": serving.endpoint, "access_key": serving.root_access_key, "metrics": serving.metrics}
        print_result({**facts, "secret_key_file": str(secret) if secret.exists() else None}, as_json=True, text=list)
        return
    at, region = serving.endpoint, config.site.region
    print_line(f"endpoint: {at}")
    print_line(f"access key: {serving.root_access_key}")
    print_line(f"secret key: in {secret}" if secret.exists() else "secret key: no longer kept in the site's folder")
    print_line(f"metrics: {serving.metrics}")
    print_line("try:")
    print_line(
        f"  export AWS_ENDPOINT_URL={at} AWS_DEFAULT_REGION={region} AWS_ACCESS_KEY_ID={serving.root_access_key}"
        f" AWS_SECRET_ACCESS_KEY=$(cat {shlex.quote(str(secret))})"
    )
    print_line("  aws s3 mb s3://first && aws s3 cp README.md s3://first/ && aws s3 ls s3://first")
    print_line(f"  curl {serving.metrics}/readyz")
