"""A process and its supervisor: what it says when it is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.config import default_text, load_text
from gateway.metrics.json_log import INFO, JsonLog
from gateway.site.processes.child import Child, Role
from gateway.site.processes.control_channel import ControlChannel, Message, Question, pair
from gateway.timing import Timing


class Probed(Role):
    """Answers probes with what it is given; not at all until then."""

    answers: Message | None = None

    async def run(self, child: Child) -> None:
        """Not called here."""

    async def answer(self, question: Question, message: Message) -> Message | None:
        return self.answers


async def test_a_process_that_does_not_know_yet_how_to_answer_says_that_it_is_starting(tmp_path: Path) -> None:
    mine, its = [await ControlChannel.over(end) for end in pair()]
    lines = JsonLog("keeper", INFO, timing=Timing())
    role = Probed()
    child = Child("keeper", tmp_path, load_text(default_text(), tmp_path), role, lines, its, Timing())
    listening = asyncio.create_task(child.listen())
    answers = mine.messages()

    async def ask(number: int) -> Message:
        mine.tell({"do": "probe", "number": number})
        return await anext(answers)

    assert {**await ask(1), "config": ""} == {
        "is": "answered", "number": 1, "config": "", "ok": False, "why": "it is starting", "passing": True,
    }  # fmt: skip

    role.answers = {"journal": "well"}
    assert (await ask(2))["journal"] == "well"
    mine.tell({"do": "a question of tomorrow", "number": 3})
    unknown = await anext(answers)
    assert (unknown["number"], unknown["ok"]) == (3, False), "it goes on listening"
    mine.close()
    await listening
    its.close()
