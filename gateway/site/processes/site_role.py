"""The role of a process that opens the site: a worker or the keeper. It follows the config that the supervisor puts in
force."""

from __future__ import annotations

from abc import abstractmethod

from gateway.config import Config
from gateway.site.processes.child import Child, Role
from gateway.site.processes.control_channel import Message, Question
from gateway.site.site import Site
from gateway.site.storage.backend_trouble import BackendTrouble
from gateway.site.storage.refusals import TemporarilyRejected


class SiteRole(Role):
    """Opens the site, then runs `work`, and closes the site."""

    def __init__(self, kind: str) -> None:
        """*kind*: "worker" or "keeper", for the journal's session."""
        self._kind = kind
        self._child: Child | None = None
        self._site: Site | None = None
        self._is_closing = False

    async def run(self, child: Child) -> None:
        opening = Site.open(child.folder, kind=self._kind, strict=not child.is_replacement, timing=child.timing)
        async with await opening as site:
            self._child, self._site = child, site
            try:
                await self.work(child, site)
            finally:
                self._is_closing = True  # reports go on

    @abstractmethod
    async def work(self, child: Child, site: Site) -> None:
        """Do the work of the process until `child.stopping` is set."""

    @property
    def child(self) -> Child:
        """This process. Set before the process is ready, and so before it is asked anything but PROBE."""
        assert self._child is not None
        return self._child

    @property
    def site(self) -> Site:
        """The opened site. Set when `child` is."""
        assert self._site is not None
        return self._site

    async def answer(self, question: Question, message: Message) -> Message | None:
        match question:
            case Question.OPEN_BACKENDS:
                await self.site.open_new_backends(await self.child.config_in(message))
            case Question.CHECK_OLD_WRITES:
                self._check_old_writes(message["backends"])
            case Question.PROBE:
                return None
        return {}

    async def adopt(self, config: Config) -> None:
        await self.site.adopt(config)

    def report(self) -> dict[str, BackendTrouble]:
        if self._site is None or self._is_closing:
            return {}
        self._site.count()
        return self._site.storage.troubles()

    def _check_old_writes(self, backends: list[str]) -> None:
        """Raise `TemporarilyRejected` if a request of this process still writes to one of *backends*."""
        busy = self.site.storage.backends_with_old_writes(backends)
        if busy:
            reason = "requests under way still write there, as policies had it when they began: try again later"
            raise TemporarilyRejected("\n".join(f"backends.{name}: {reason}" for name in busy))
