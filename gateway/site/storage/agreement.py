"""Decides from the markers of all places whether another instance of this site has taken over. Pure: no I/O.

A *place* is a backend of the site. Two kinds of marker report a takeover. One names a later incarnation
(`RestoredElsewhere`: the site was restored from a backup). The other has the fence of another copy of this site's
folder (`StampedElsewhere`, see `fencing.py`). A real second instance claims or stamps every place that it reaches. But
a marker is only what a store returns, and one broken or hostile store must not end a site whose other places work. So
there is one rule for a single place, and one for the site:

1. **The place.** Whatever the other markers report, this process writes nothing and deletes nothing on a place whose
   marker reports a takeover. That place is set aside: metrics, `status` and the log report it until its marker is this
   site's again.
2. **The site.** The process ends if the marker of one local folder reports a takeover, since this machine reads its
   folders itself. It also ends if the markers of more than half of all places do. A place that cannot be reached counts
   among all places, but not among those that report a takeover.

**Why no acknowledged data is deleted by the wrong copy.** Let X be the original and Y the copy that started later.

- The site has one place only. That place is a folder, or is more than half of all places. So its marker ends X.
- Y stamped one of X's folders, or more than half of X's places. X ends within two looks at its markers. `fencing` says
  why what X deletes in between is safe.
- Y stamped fewer places. Either Y could not reach the others, or the others are folders of X's machine, of which Y has
  copies. X goes on with the places that Y has not stamped.
  - On the places that Y stamped, X deletes nothing (rule 1, and `MarkerGuard.delete`, which requires X's own token). So
    everything that Y names is safe there.
  - On the other places Y deletes nothing, since it has not stamped them. So everything that X names is safe there. When
    Y reaches them later, it finds X's fences, with numbers that are not in Y's own history. Those places are set aside
    for Y; one folder among them, or more than half of all places, ends Y.
- Y may delete what X had on a place before Y stamped it, but only after `journal.fork_grace_hours`. Until then Y pins
  what dies in its history, and does not sweep the sessions that it inherited or does not know. X's alarms are on all
  that time. A block of X's with copies on other places keeps those copies. So if the operator lets the grace pass, X
  may lose what lies on Y's places alone, and nothing else; `entrepot takeover` on either copy prevents that.
- A store that forges a fence or an incarnation costs X the use of that store. The store could as well refuse service.

**Restoring** draws an incarnation above every one that the places' markers have. One store must not be able to use up
these numbers, so `credible_incarnation` accepts at most a few steps beyond what the backup names or the places agree
on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from backends import errors
from gateway.errors import Misconfigured
from gateway.topology import BackendPlace

INCARNATION_STEPS = 16
"""How many restores a single place may claim beyond those that the backup or the agreeing places know of."""


class ActiveElsewhere(errors.OwnedByAnotherSite):
    """The marker of one place reports that another instance of this site has taken over."""


class RestoredElsewhere(ActiveElsewhere):
    """The marker names a later incarnation of this site."""


class StampedElsewhere(ActiveElsewhere):
    """The marker has the fence of another copy of this site's folder."""


class HistoriesDiverged(Misconfigured, wire_code="Parted"):
    """The places agree that another copy of this site's folder has taken them over. args: (message,)."""


def is_active_elsewhere(places: Mapping[str, BackendPlace], reporting: Collection[str]) -> bool:
    """Whether enough places report a takeover: one folder, or more than half of all. *places*: all places of the config
    by name. *reporting*: the names of those whose marker reports a takeover."""
    counted = places.keys() & set(reporting)
    return any(places[name].s3 is None for name in counted) or 2 * len(counted) > len(places)


def require_active_here(places: Mapping[str, BackendPlace], reports: Mapping[str, ActiveElsewhere]) -> None:
    """Check that the places do not agree on a takeover. *reports*: by name, what the marker of each place that reports
    a takeover contains.

    Raises `HistoriesDiverged` if another copy of the folder has taken over, and `Misconfigured` if the site was
    restored elsewhere."""
    if not is_active_elsewhere(places, reports):
        return
    name, report = next((name, report) for name, report in reports.items() if name in places)
    if isinstance(report, StampedElsewhere):
        raise HistoriesDiverged(
            f"backend {name!r}: {report.message}. Nothing is written or deleted by this process any more. Use the "
            "other folder, or run `entrepot takeover`, which shows where the two histories diverge"
        )
    raise Misconfigured(f"backend {name!r}: {report.message}, and stops")


def credible_incarnation(places: Mapping[str, BackendPlace], borne: Mapping[str, int], known: int) -> int:
    """Return the greatest credible incarnation in *borne*, which maps each place to the incarnation in its marker; 0 if
    there is none.

    The places agree on an incarnation if one folder, or more than half of all places, have it or a greater one. An
    incarnation is credible if it is at most `INCARNATION_STEPS` above the greater of two numbers: the greatest one that
    the places agree on, and *known*, the backup's."""
    agreed = [
        incarnation
        for incarnation in borne.values()
        if is_active_elsewhere(places, [name for name, other in borne.items() if other >= incarnation])
    ]
    limit = max([known, *agreed]) + INCARNATION_STEPS
    return max((incarnation for incarnation in borne.values() if incarnation <= limit), default=0)
