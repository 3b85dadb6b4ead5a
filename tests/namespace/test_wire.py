"""Commands as they come out of the socket mean what they meant before."""

from __future__ import annotations

from gateway.journal.codec import COMMAND_CODEC
from gateway.namespace.commands.complete import CompleteUpload, WantedPart
from gateway.namespace.commands.copy import CopyObject, Source
from gateway.namespace.commands.objects import DeleteObjects, Doomed
from gateway.namespace.commands.uploads import CreateUpload, PutPart
from gateway.namespace.conditions import Preconditions
from tests.namespace.world import USER, World, put_command, stored

ONLY_NEW = Preconditions(if_none_match=("*",))


def sent(world: World, command):
    """The answer to a command that went over the wire."""
    return world.run(*COMMAND_CODEC.unpack(COMMAND_CODEC.pack([command])))


def test_conditions_and_lists_survive_the_wire():
    world = World()
    world.bucket()
    sent(world, put_command(b"a", etag="e", conditions=ONLY_NEW, n=1))
    source = Source("b", b"a", "", Preconditions(if_match=("e",)))
    assert sent(world, CopyObject("b", b"b", USER, False, source, conditions=ONLY_NEW))[2] == "e"
    upload = sent(world, CreateUpload("b", b"c", USER, False, "", "", b"", b""))
    sent(world, PutPart("b", b"c", USER, False, upload, 1, 3, "0" * 32, *stored(9, 3), 1, 0, ""))
    done = sent(world, CompleteUpload("b", b"c", USER, False, upload, (WantedPart(1, "0" * 32),), conditions=ONLY_NEW))
    assert done[3] == 3
    doomed = (
        Doomed(b"a", "", Preconditions(if_match=("x",))),
        Doomed(b"b", "", Preconditions(if_match=("e",))),
        Doomed(b"c"),
    )
    outcomes = sent(world, DeleteObjects("b", USER, False, doomed))
    assert [outcome[0] for outcome in outcomes] == ["PreconditionFailed", "", ""]
