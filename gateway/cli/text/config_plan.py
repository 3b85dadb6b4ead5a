"""What a reload of a config would do, as JSON and as text."""

from __future__ import annotations

from typing import Any

from gateway.placement.movement import Copies, Movement
from gateway.site.admin.config_plan import BackendCheck, ConfigPlan


def to_dict(plan: ConfigPlan) -> dict[str, Any]:
    """Return *plan* as plain values, for JSON."""
    return {
        "in_force": plan.in_force,
        "restart": list(plan.restart),
        "refused": list(plan.refused),
        "backends": [each._asdict() for each in plan.backends],
        "movement": movement_to_dict(plan.movement),
    }


def to_text(plan: ConfigPlan) -> list[str]:
    """Return *plan* as lines for people."""
    same = " (in force already)" if plan.version == plan.in_force else f"; version {plan.in_force} is in force"
    lines = [f"a reload would {'succeed' if plan.ok else 'FAIL'}{same}"]
    lines += [f"needs a restart of `entrepot serve`: {setting}" for setting in plan.restart]
    lines += [f"refused: {reason}" for reason in plan.refused]
    lines += map(_backend, plan.backends)
    return [*lines, *movement_to_text(plan.movement)]


def _backend(check: BackendCheck) -> str:
    state = "FAILS" if check.problem else "ok"
    rest = check.problem or check.remark
    return f"backend {check.backend}: {state}" + (", new" if check.is_new else "") + (f": {rest}" if rest else "")


def movement_to_dict(movement: Movement) -> dict[str, Any]:
    """Return *movement* as plain values, for JSON."""
    return {
        "makes": [each._asdict() for each in movement.makes],
        "drops": [each._asdict() for each in movement.drops],
        "price": movement.price,
    }


def movement_to_text(movement: Movement) -> list[str]:
    """Return *movement* as lines for people."""
    if not movement.makes and not movement.drops:
        return ["copies: all are where this config wants them"]
    lines = [f"make {_count(each)} on {each.backend}{_way(each)}" for each in movement.makes]
    lines += [f"drop {_count(each)} on {each.backend}" for each in movement.drops]
    return [*lines, f"price of the lines: {movement.price:.2f}"]


def _count(copies: Copies) -> str:
    return f"{copies.copies} copies, {copies.bytes} bytes,"


def _way(copies: Copies) -> str:
    if not copies.source:
        return ", which no backend of the config has"
    over = f", over {' and '.join(copies.lines)}, for {copies.price:.2f}" if copies.lines else ""
    return f", read from {copies.source}{over}"
