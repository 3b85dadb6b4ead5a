"""How the site stands, as people and programs are told."""

from __future__ import annotations

from pathlib import Path

from gateway.site.standings import Backlog, Point, Standings, Use, plain, spell

PAGE = (Path(__file__).parents[2] / "docs" / "placement.md").read_text()
ONE = Standings(
    backends=(Use("disk", "home", 3, 4, 5, "in use"),),
    backlog=(Backlog("lost", 2, 20, 1.0), Backlog("place", 7, 70, 2.0)),
    points=(Point("default", 7, 2.0, 1.0, True), Point("gone", 1, 2.0, 0.0, False)),
    walking=False,
    unknown_policies=("gone",),
)


def test_what_programs_are_told_stands_on_the_page() -> None:
    told = plain(ONE)
    lists = [each for each in told.values() if isinstance(each, list) and each and isinstance(each[0], dict)]
    fields = [*told, *(field for each in lists for field in each[0])]
    assert {"settled", "placement", "backlog", "recovery_points", "leaving", "late"} <= set(fields)
    for field in fields:
        assert f"`{field}`" in PAGE, field


def test_what_is_lost_is_said_before_anything_is_said_to_be_well() -> None:
    settled = ONE._replace(backlog=ONE.backlog[:1])
    assert settled.settled
    told = spell(settled)
    assert "copies: 2 block(s) are LOST, `entrepot backend lost` names the objects; of the rest, everything" in told
    assert "copies: everything lies where it should" in spell(settled._replace(backlog=()))


def test_only_a_policy_that_promised_something_is_late() -> None:
    told = spell(ONE)
    assert "policy default: 7 block(s) behind, for 2 s at most, LATE: it promises 1 s" in told
    assert "policy gone: 1 block(s) behind, for 2 s at most\n" in told
