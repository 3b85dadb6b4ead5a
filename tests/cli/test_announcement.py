"""What `entrepot serve` prints when it is ready."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.cli import serve
from gateway.config import default_text, load_text
from gateway.site.paths import ROOT_SECRET


@pytest.mark.parametrize("kept", [True, False])
def test_the_commands_to_try_name_the_secret_key_only_while_it_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kept: bool
) -> None:
    if kept:
        (tmp_path / ROOT_SECRET).write_text("secret")
    supervisor = SimpleNamespace(
        folder=tmp_path, endpoint="http://127.0.0.1:1", root_access_key="ROOT", metrics="http://127.0.0.1:2"
    )
    serve._announce(cast("Any", supervisor), load_text(default_text(), tmp_path), as_json=False)
    printed = capsys.readouterr().out
    assert ("AWS_SECRET_ACCESS_KEY=$(cat " in printed) == kept
    assert ("secret key: no longer kept" in printed) != kept
