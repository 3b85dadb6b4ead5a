"""Records and commands come out of msgpack as they went in."""

from __future__ import annotations

import typing
from types import NoneType, UnionType
from typing import Any, NamedTuple

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import Corrupted
from gateway.journal.codec import COMMAND_CODEC, RECORD_CODEC, Codec
from gateway.journal.commands import COMMAND_CLASSES
from gateway.journal.records import RECORDS
from gateway.journal.records.base import record
from gateway.journal.session_commands import OpenSession
from gateway.namespace.commands.complete import CompleteUpload
from gateway.namespace.commands.objects import PutObject
from gateway.site.commands import COMMANDS

assert COMMANDS  # every room's commands are known


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is int:
        return st.integers(-(2**63), 2**64 - 1)
    if hint is str:
        return st.text(max_size=20)
    if hint is bytes:
        return st.binary(max_size=40)
    if hint is bool:
        return st.booleans()
    if hint is NoneType:
        return st.none()
    if origin in (typing.Union, UnionType):
        return st.one_of(*map(values, inner))
    if origin is tuple and inner[-1] is Ellipsis:
        return st.lists(values(inner[0]), max_size=4).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, inner))
    assert hasattr(hint, "_make"), hint
    hints = typing.get_type_hints(hint)
    return st.tuples(*(values(hints[name]) for name in hint._fields)).map(hint._make)


def made(cls: type[Any]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{name: values(hints[name]) for name in cls.__dataclass_fields__})


def types_in(value: Any) -> Any:
    """The classes of a value, all the way down."""
    inner = [types_in(each) for each in value] if isinstance(value, tuple) else []
    return (type(value), inner)


@pytest.mark.parametrize("cls", RECORDS.values(), ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_a_record_comes_back_with_the_types_that_it_had(cls: type[Any], data: Any) -> None:
    value = data.draw(made(cls))
    (back,) = RECORD_CODEC.unpack(RECORD_CODEC.pack([value]))
    assert back == value
    for name in cls.__dataclass_fields__:
        assert types_in(getattr(back, name)) == types_in(getattr(value, name))


@pytest.mark.parametrize("cls", COMMAND_CLASSES.values(), ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_a_command_comes_back_with_the_types_that_it_had(cls: type[Any], data: Any) -> None:
    value = data.draw(made(cls))
    (back,) = COMMAND_CODEC.unpack(COMMAND_CODEC.pack([value]))
    assert back == value
    for name in cls.__dataclass_fields__:
        assert types_in(getattr(back, name)) == types_in(getattr(value, name))


class Inner(NamedTuple):
    a: int
    b: int = 9


class Outer(NamedTuple):
    one: Inner
    some: tuple[Inner, ...] = ()


@record(tag=9001)
class Grown:
    old: int
    new: tuple[Outer, ...] = (Outer(Inner(1)),)
    newest: str = "later"


CODEC = Codec({9001: RECORDS.pop(9001)}, "a record")


def test_what_was_written_before_a_field_came_takes_its_default() -> None:
    assert CODEC.from_tuple((9001, 5)) == Grown(5)
    assert CODEC.from_tuple((9001, 5, (((1,),),))) == Grown(5, (Outer(Inner(1, 9)),))


def test_tuples_inside_named_tuples_come_back_as_what_they_were() -> None:
    (back,) = CODEC.unpack(CODEC.pack([Grown(1, (Outer(Inner(2, 3), (Inner(4, 5),)),))]))
    assert back.new[0].some[0].b == 5


def test_an_unknown_tag_is_named() -> None:
    with pytest.raises(Corrupted, match="a record of tag 4711 is not known to this version"):
        RECORD_CODEC.unpack(msgpack.packb([(4711, 1)]))


def test_fields_that_do_not_fit_are_refused() -> None:
    with pytest.raises(Corrupted, match="a record of tag 9001"):
        CODEC.from_tuple((9001,))
    with pytest.raises(Corrupted, match="a record of tag 9001"):
        CODEC.from_tuple((9001, 1, (), "", "one too many"))


def test_an_answer_of_several_fields_is_rebuilt_with_their_names() -> None:
    assert PutObject.ANSWER is not None
    assert PutObject.ANSWER(("v1", 5)).modified_ns == 5
    assert CompleteUpload.ANSWER is not None
    assert CompleteUpload.ANSWER(None) is None
    assert CompleteUpload.ANSWER(("v1", 5, "etag", 7, b"")).size == 7
    assert OpenSession.ANSWER is None
