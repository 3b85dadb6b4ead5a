"""Generated keys have the syntax of valid keys."""

from __future__ import annotations

import pytest

from gateway.errors import InvalidArgument
from gateway.identity.names import check_access_key, check_secret, new_access_key, new_secret


def test_drawn_keys_are_of_the_form_that_clients_know() -> None:
    drawn = {new_access_key() for _ in range(100)}
    assert len(drawn) == 100
    for access_key in drawn:
        assert len(check_access_key(access_key)) == 20
        assert access_key.isalnum() and access_key.isupper()
    assert len(check_secret(new_secret())) == 40


@pytest.mark.parametrize("secret", ["short", "with space inside", "x" * 129, "schlüssel1", "line\nbreak1"])
def test_a_secret_that_is_refused_is_not_repeated(secret: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_secret(secret)
    assert secret not in str(refused.value)
