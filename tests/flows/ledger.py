"""What was promised to clients, and whether what they see keeps it. Pure: no site, no clock, no I/O.

A key is a register that many may write. Each write is an *attempt*: begun, and then acknowledged, refused, or never
answered. One that is not answered may have happened or not, and may happen yet, until everybody who could still do it
is known to be gone (`settle`). A read may show an attempt unless another one that was acknowledged lies wholly between
the two in time: that is linearizability for a register, and holds for one writer and for many alike.

Moments are counted, not measured: every beginning and every end gets the next number.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf

Part = tuple[int, str]
"""A part's size and ETag."""
STORY = 24
"""So many of a key's last events are told when something is wrong with it."""


class Broken(AssertionError):
    """A promise was not kept. Says which, and what was seen instead."""


@dataclass(frozen=True)
class Value:
    """An object as a client sees it, whole: *tag* stands in its metadata and in its content type."""

    tag: str
    size: int
    md5: str
    etag: str


ABSENT: Value | None = None


@dataclass(eq=False)
class Attempt:
    """A write on its way, or done. *value*: what it makes of the key; None where it deletes."""

    key: str
    verb: str
    value: Value | None
    began: float
    ended: float = inf
    landed: bool = False
    """It is known to have happened, by `ended` at the latest."""
    unanswered: bool = False
    if_absent: bool = False
    """It may only happen while nothing stands under the key."""


@dataclass
class _Key:
    attempts: list[Attempt]
    story: deque[str] = field(default_factory=lambda: deque(maxlen=STORY))


class Ledger:
    """Everything that was asked of a bucket's keys. At first they are all absent."""

    def __init__(self) -> None:
        self._now = 0.0
        self._keys: dict[str, _Key] = defaultdict(lambda: _Key([Attempt("", "nothing", ABSENT, 0, 0, landed=True)]))
        self.touched: set[str] = set()
        """Keys that somebody tried to write since they were last settled."""
        self.acknowledged = 0
        self.unanswered = 0
        self.unanswered_and_done = 0
        """Of those without an answer, how many stood when their key was settled."""

    def now(self) -> float:
        """The next moment."""
        self._now += 1
        return self._now

    # ---- writing -------------------------------------------------------------------------------------------------

    def begin(self, key: str, verb: str, value: Value | None, *, if_absent: bool = False) -> Attempt:
        attempt = Attempt(key, verb, value, self.now(), if_absent=if_absent)
        self._keys[key].attempts.append(attempt)
        self.touched.add(key)
        self._tell(attempt, "begun")
        return attempt

    def acknowledge(self, attempt: Attempt) -> None:
        """The client was told that it happened. Raises `Broken` where it never could."""
        self._land(attempt, "acknowledged")
        self.acknowledged += 1
        if attempt.if_absent:
            self._check_if_absent(attempt)

    def refuse(self, attempt: Attempt, why: str) -> None:
        """It is known never to happen."""
        self._keys[attempt.key].attempts.remove(attempt)
        self._tell(attempt, why)

    def refuse_as_present(self, attempt: Attempt) -> None:
        """The client was told that something stands there. Raises `Broken` where nothing could."""
        self.refuse(attempt, "refused, for something stands there")
        if not any(self.possible(attempt.key, attempt.began, self.now())):
            self._break(attempt.key, f"{attempt.verb} was refused for what stands there, and nothing can")

    def leave_open(self, attempt: Attempt, why: str) -> None:
        """No answer came, or one that says nothing."""
        self.unanswered += not attempt.unanswered
        attempt.unanswered = True
        self._tell(attempt, f"not answered: {why}")

    def land(self, attempt: Attempt) -> None:
        """Nobody was told, but it is seen to have happened."""
        self._land(attempt, "seen to have happened")

    # ---- reading -------------------------------------------------------------------------------------------------

    def possible(self, key: str, began: float, ended: float = inf) -> list[Value | None]:
        """What a read that began and ended then may show."""
        return [each.value for each in self._candidates(key, began, ended)]

    def certain(self, key: str) -> Value | None:
        """What stands there, where only one thing can; None otherwise."""
        found = self._candidates(key, self.now(), inf)
        return found[0].value if len(found) == 1 else None

    def check_read(self, key: str, seen: Value | None, began: float) -> None:
        """A read that began at *began* and is over shows *seen*. Raises `Broken`."""
        ended = self.now()
        candidates = self._candidates(key, began, ended)
        shown = [each for each in candidates if each.value == seen]
        if not shown:
            may = " or ".join(dict.fromkeys(_spelt(each.value) for each in candidates))
            self._break(key, f"expected {may}; seen {_spelt(seen)}{self._known(key, seen)}")
        if len(shown) == 1 and not shown[0].landed:  # from now on it cannot be undone
            self.land(shown[0])

    def settle(self, key: str, seen: Value | None, began: float) -> None:
        """As `check_read`, when nobody is left who could still write: what is seen now stays."""
        self.check_read(key, seen, began)
        now = self.now()
        entry = self._keys[key]
        self.unanswered_and_done += any(
            each.landed and each.unanswered and each.value == seen for each in entry.attempts
        )
        entry.attempts[:] = [Attempt(key, "settled", seen, now, now, landed=True)]
        entry.story.append(f"{now:g}: settled as {_spelt(seen)}")
        self.touched.discard(key)

    # ---- the whole bucket, once settled --------------------------------------------------------------------------

    def standing(self) -> dict[str, Value]:
        """Every key that is settled as present."""
        lasts = ((key, entry.attempts[-1].value) for key, entry in self._keys.items() if key not in self.touched)
        return {key: value for key, value in lasts if value is not None}

    def known_keys(self) -> list[str]:
        return sorted(self._keys)

    def check_listing(self, listed: Mapping[str, tuple[int, str]]) -> None:
        """A listing of everything shows each key's size and ETag. Raises `Broken`."""
        standing = self.standing()
        for key in standing.keys() - listed.keys():
            self._break(key, "it stands there, and is not listed")
        for key, (size, etag) in listed.items():
            value = standing.get(key)
            if value is None:
                self._break(key, f"nothing stands there, and it is listed with {size} bytes")
            elif (value.size, value.etag) != (size, etag):
                self._break(key, f"expected {_spelt(value)}; listed with {size} bytes, ETag {etag}")

    def check_head(self, key: str, tag: str, size: int, etag: str) -> None:
        """HEAD of a settled key says this. Raises `Broken`."""
        value = self._keys[key].attempts[-1].value
        if value is None or (value.tag, value.size, value.etag) != (tag, size, etag):
            self._break(key, f"GET shows {_spelt(value)}; HEAD {tag}, {size} bytes, ETag {etag}")

    def story(self, key: str) -> str:
        """What happened to a key, for people."""
        return "\n  ".join([f"{key!r}:", *self._keys[key].story])

    # ---- how -----------------------------------------------------------------------------------------------------

    def _candidates(self, key: str, began: float, ended: float) -> list[Attempt]:
        attempts = self._keys[key].attempts
        before = [each for each in attempts if each.landed and each.ended < began]
        latest_begin = max((each.began for each in before), default=-inf)
        found = [each for each in attempts if each.began < ended and not each.ended < latest_begin]
        return self._without_late_firsts(found)

    def _without_late_firsts(self, found: list[Attempt]) -> list[Attempt]:
        """Where nobody deletes, one that was acknowledged as the first excludes those who asked for the same."""
        firsts = [each for each in found if each.if_absent and each.landed]
        if firsts and all(each.if_absent or each.verb in {"nothing", "settled"} for each in found):
            return [each for each in found if not each.if_absent or each.landed]
        return found

    def _check_if_absent(self, attempt: Attempt) -> None:
        others = [each for each in self._candidates(attempt.key, attempt.began, attempt.ended) if each is not attempt]
        if not any(each.value is None for each in others):
            self._break(attempt.key, f"{attempt.verb} was acknowledged, though something stood there all the time")
        attempts = self._keys[attempt.key].attempts
        firsts = sum(each.if_absent and each.landed for each in attempts)
        absences = sum(each.value is None for each in attempts)
        if firsts > absences:
            self._break(attempt.key, f"{firsts} were told that they came first, and it was absent {absences} times")

    def _land(self, attempt: Attempt, how: str) -> None:
        if not attempt.landed:
            attempt.landed, attempt.ended = True, self.now()
        self._tell(attempt, how)

    def _known(self, key: str, seen: Value | None) -> str:
        """Where a value that should not be seen comes from."""
        if seen is None:
            return ""
        for other, entry in self._keys.items():
            for each in entry.attempts:
                if each.value is not None and each.value.tag == seen.tag and (other, each.value) != (key, seen):
                    return f", but {seen.tag} is {_spelt(each.value)} of {other!r}"
        return ""

    def _tell(self, attempt: Attempt, what: str) -> None:
        line = f"{self._now:g}: {attempt.verb} of {_spelt(attempt.value)} (begun {attempt.began:g}): {what}"
        self._keys[attempt.key].story.append(line)

    def _break(self, key: str, sentence: str) -> None:
        raise Broken(f"{key!r}: {sentence}\n  {self.story(key)}")


def _spelt(value: Value | None) -> str:
    if value is None:
        return "nothing"
    return f"{value.tag} ({value.size} bytes, MD5 {value.md5[:12]}, ETag {value.etag[:12]})"


def check_uploads(
    known: Mapping[str, str], listed: Mapping[str, str], unanswered: Mapping[str, int]
) -> list[tuple[str, str]]:
    """*known*: each upload that somebody was told of and that has not ended, and its key. *listed*: those of a listing.
    *unanswered*: how often a key's upload was begun without an answer.

    Answers those that are listed and that nobody was told of. Raises `Broken`."""
    for upload, key in known.items():
        if listed.get(upload) != key:
            raise Broken(f"{key!r}: upload {upload} was acknowledged, and is not listed")
    strangers = [(upload, key) for upload, key in listed.items() if upload not in known]
    for key, count in Counter(key for _, key in strangers).items():
        if count > unanswered.get(key, 0):
            raise Broken(f"{key!r}: {count} uploads are listed that had ended, or that nobody began")
    return strangers


def check_parts(
    key: str, acknowledged: Mapping[int, Part], unanswered: Collection[int], listed: Mapping[int, Part]
) -> None:
    """An upload under way has its acknowledged parts (number → size and ETag), and none that was never sent. Raises
    `Broken`."""
    for number, expected in acknowledged.items():
        if listed.get(number) != expected:
            raise Broken(
                f"{key!r}: part {number} was acknowledged as {expected}, and is listed as {listed.get(number)}"
            )
    if strangers := listed.keys() - acknowledged.keys() - set(unanswered):
        raise Broken(f"{key!r}: parts {sorted(strangers)} are listed, and nobody sent them")
