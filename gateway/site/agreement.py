"""Whether a site goes on elsewhere, decided from what the markers of all its places say. No I/O.

Two kinds of marker say so: one of a later incarnation (`RestoredElsewhere`: the site was restored from a backup), and
one with the fence of another copy of this site's folder (`StampedElsewhere`, see `fencing`). A real second site claims
or stamps every place that it reaches. But a marker is what a store answers, and one broken or hostile store must not
end a site whose other places are well. So there are two rules, one for the place and one for the site:

1. **The place.** Whatever the other places say, this process writes nothing and deletes nothing on a place whose marker
   says that the site goes on elsewhere. It is set aside: metrics, `status` and the log say so, until its marker is this
   site's again.
2. **The site.** The process ends where one of its folders says so, since this machine reads those itself, or where more
   than half of all places do. Places that cannot be reached count among "all", and say nothing.

**Why no acknowledged data is deleted by the wrong copy.** Let X be the original and Y the copy that started later.

- One place only: it is a folder, or more than half of all. So its word ends X.
- Y stamped a folder of X's, or more than half of X's places: X ends within two looks at its markers. What X deletes in
  between, `fencing` allows for.
- Y stamped fewer, since it could not reach the others, or since the others are folders of X's machine that Y has copies
  of. X goes on with the others. On those that Y stamped, X deletes nothing (rule 1, and `Guarded.delete`, which demands
  X's own token), so everything that Y names is safe there. On the others Y deletes nothing, since it has not stamped
  them, so everything that X names is safe there. When Y reaches them later, it finds fences of X's with numbers that
  are not in its own history: they are set aside for Y, and more than half of them, or a folder, end Y.
- What X had on a place before Y stamped it, Y may delete, but not before `journal.fork_grace_hours` have passed: Y pins
  what dies in its history, and leaves the sessions that it inherited and unknown ones alone for as long. Until then X's
  alarms are on. A block of X's with copies elsewhere loses none of those. So an operator who lets the grace pass may
  lose in X what lies on Y's places alone, and nothing else; `entrepot takeover` on either copy prevents it.
- A store that forges a fence or an incarnation costs X the use of that store. It could refuse its service just as well.

**Restoring** draws an incarnation above every one that the places bear. One store must not drive that number up until
none is left, so `believed` looks only a few steps beyond what a backup says or the places agree on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from backends import errors
from gateway.errors import Misconfigured
from gateway.topology import BackendPlace

INCARNATION_STEPS = 16
"""How many restores a backup may be behind, by the word of a single place."""


class GoesOnElsewhere(errors.Foreign):
    """The marker of one place says that this site goes on elsewhere."""


class RestoredElsewhere(GoesOnElsewhere):
    """The marker is of a later incarnation of this site."""


class StampedElsewhere(GoesOnElsewhere):
    """The marker bears the fence of another copy of this site's folder."""


class Parted(Misconfigured):
    """The places agree that another copy of this site's folder goes on with them. args: a sentence."""


def goes_on_elsewhere(places: Mapping[str, BackendPlace], say_so: Collection[str]) -> bool:
    """Whether the places agree. *places*: all that the config names, by name. *say_so*: the names of those whose marker
    says that the site goes on elsewhere."""
    heard = places.keys() & set(say_so)
    return any(places[name].s3 is None for name in heard) or 2 * len(heard) > len(places)


def see_that_it_goes_on_here(places: Mapping[str, BackendPlace], say_so: Mapping[str, GoesOnElsewhere]) -> None:
    """Raises `Parted` or `Misconfigured` where *places* agree that the site goes on elsewhere. *say_so*: what each of
    those places says."""
    if not goes_on_elsewhere(places, say_so):
        return
    name, said = next((name, said) for name, said in say_so.items() if name in places)
    if isinstance(said, StampedElsewhere):
        raise Parted(
            f"backend {name!r}: {said.message}. Nothing is written or deleted by this process any more. Use the other "
            "folder, or see `entrepot takeover`, which shows where they part"
        )
    raise Misconfigured(f"backend {name!r}: {said.message}, and ends there")


def believed(places: Mapping[str, BackendPlace], heard: Mapping[str, int], known: int) -> int:
    """The greatest incarnation in *heard* (what each place bears) that is believed: one that the places agree on (at
    least as great where it counts), or one at most `INCARNATION_STEPS` above that and above *known*, the backup's."""
    agreed = [
        incarnation
        for incarnation in heard.values()
        if goes_on_elsewhere(places, [name for name, other in heard.items() if other >= incarnation])
    ]
    limit = max([known, *agreed]) + INCARNATION_STEPS
    return max((incarnation for incarnation in heard.values() if incarnation <= limit), default=0)
