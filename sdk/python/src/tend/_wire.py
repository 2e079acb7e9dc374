"""Messages of the API as bytes: protobuf, by the tables of _schema. A message is a dict of its fields.

Fields that are not known are passed over, so that a server of a later version is understood. What a field says that is
absent is its default; a field that is None, or not in the dict, is not sent.
"""

from __future__ import annotations

import struct
from typing import Any, Callable

from ._errors import InvalidError, protocol_error
from ._schema import MESSAGES

Message = dict[str, Any]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_INTS = {"int32": (-(1 << 31), (1 << 31) - 1), "int64": (-(1 << 63), (1 << 63) - 1), "uint32": (0, (1 << 32) - 1), "uint64": (0, (1 << 64) - 1)}


def _varint(n: int) -> bytes:
    if n < 0x80:
        return bytes((n,))
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def _scalar(kind: str, name: str, value: Any) -> tuple[int, bytes]:
    """The wire type and the bytes of one value."""
    if kind == "string":
        if not isinstance(value, str):
            raise InvalidError(name, f"is no text but {type(value).__name__}")
        try:
            data = value.encode()
        except UnicodeEncodeError:
            raise InvalidError(name, "has half of a surrogate pair, which is no text") from None
        return _BYTES, _varint(len(data)) + data
    if kind == "bytes":
        return _BYTES, _varint(len(value)) + bytes(value)
    if kind == "double":
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InvalidError(name, f"is no number but {type(value).__name__}")
        return _FIXED64, struct.pack("<d", value)
    if kind == "bool":
        if not isinstance(value, bool):
            raise InvalidError(name, "is neither True nor False")
        return _VARINT, b"\1" if value else b"\0"
    if kind in _INTS:
        low, high = _INTS[kind]
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidError(name, f"is no whole number but {type(value).__name__}")
        if not low <= value <= high:
            raise InvalidError(name, f"is {value}; {low} to {high} are possible")
        return _VARINT, _varint(value & 0xFFFF_FFFF_FFFF_FFFF)
    data = encode(kind, value)
    return _BYTES, _varint(len(data)) + data


def encode(schema: str, message: Message) -> bytes:
    """The bytes of a message. InvalidError: a field has a value that it cannot have."""
    out: list[bytes] = []
    for number, name, kind, label in MESSAGES[schema]:
        value = message.get(name)
        if value is None:
            continue
        if label == "map":
            key_kind, value_kind = kind.split()
            for k, v in value.items():
                pair = b""
                for n, (one, what) in enumerate(((k, key_kind), (v, value_kind)), 1):
                    wire, data = _scalar(what, name, one)
                    pair += bytes((n << 3 | wire,)) + data
                out += (_varint(number << 3 | _BYTES), _varint(len(pair)), pair)
            continue
        for one in value if label else (value,):
            wire, data = _scalar(kind, name, one)
            out += (_varint(number << 3 | wire), data)
    return b"".join(out)


# What the decoder does with a field: its name, kind, label, and how a number is read.
_Field = tuple[str, str, str, Callable[[int], Any]]
_tables: dict[str, dict[int, _Field]] = {}


def _reading(kind: str) -> Callable[[int], Any]:
    if kind == "bool":
        return bool
    if kind in ("int32", "int64"):
        return lambda n: n - (1 << 64) if n >> 63 else n
    return int


def _table(schema: str) -> dict[int, _Field]:
    table = _tables.get(schema)
    if table is None:
        table = _tables[schema] = {number: (name, kind, label, _reading(kind)) for number, name, kind, label in MESSAGES[schema]}
    return table


def decode(schema: str, data: bytes) -> Message:
    """The message that bytes are. A TendError of the code "protocol": they are none."""
    try:
        return _decode(schema, data, 0, len(data))
    except (IndexError, ValueError, struct.error) as err:
        raise protocol_error(f"a message that cannot be read ({err})") from None


def _decode(schema: str, data: bytes, at: int, end: int) -> Message:
    table = _table(schema)
    message: Message = {}
    while at < end:
        tag = data[at]
        at += 1
        if tag & 0x80:
            tag, at = _more(data, at, tag)
        wire = tag & 7
        field = table.get(tag >> 3)
        if wire == _VARINT:
            n = data[at]
            at += 1
            if n & 0x80:
                n, at = _more(data, at, n)
            if field is not None and field[1] in _NUMBERS:
                name, _, label, read = field
                if label:
                    message.setdefault(name, []).append(read(n))
                else:
                    message[name] = read(n)
        elif wire == _BYTES:
            n = data[at]
            at += 1
            if n & 0x80:
                n, at = _more(data, at, n)
            to = at + n
            if to > end:
                raise ValueError("a field is longer than its message")
            if field is not None:
                _field(message, field, data, at, to)
            at = to
        elif wire == _FIXED64:
            if at + 8 > end:
                raise ValueError("a field is longer than its message")
            if field is not None and field[1] == "double":
                message[field[0]] = struct.unpack_from("<d", data, at)[0]
            at += 8
        elif wire == _FIXED32:
            at += 4
        else:
            raise ValueError(f"wire type {wire}")
    if at != end:
        raise ValueError("a field is longer than its message")
    return message


_NUMBERS = frozenset(("bool", *_INTS))


def _more(data: bytes, at: int, n: int) -> tuple[int, int]:
    """The rest of a varint whose first byte is n."""
    n &= 0x7F
    shift = 7
    while True:
        b = data[at]
        at += 1
        n |= (b & 0x7F) << shift
        if b < 0x80:
            return n & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _field(message: Message, field: _Field, data: bytes, at: int, to: int) -> None:
    """Takes the field at..to, whose length came before it, into a message."""
    name, kind, label, read = field
    value: Any
    if label == "map":
        key_kind, value_kind = kind.split()
        key, value = ("" if key_kind == "string" else 0), {"string": "", "bytes": b""}.get(value_kind, {} if value_kind in MESSAGES else 0)
        pair: Message = {"1": key, "2": value}
        _pair(pair, key_kind, value_kind, data, at, to)
        message.setdefault(name, {})[pair["1"]] = pair["2"]
        return
    if kind == "bytes":
        value = data[at:to]
    elif kind == "string":
        value = data[at:to].decode()
    elif kind in MESSAGES:
        value = _decode(kind, data, at, to)
    elif kind in _NUMBERS:
        if not label:
            raise ValueError(f"{name} is no number")
        values = message.setdefault(name, [])  # packed
        while at < to:
            n, at = _more(data, at + 1, data[at]) if data[at] & 0x80 else (data[at], at + 1)
            values.append(read(n))
        return
    else:
        raise ValueError(f"{name} has a length")
    if label:
        message.setdefault(name, []).append(value)
    else:
        message[name] = value


def _pair(pair: Message, key_kind: str, value_kind: str, data: bytes, at: int, to: int) -> None:
    kinds = {1: ("1", key_kind, "", _reading(key_kind)), 2: ("2", value_kind, "", _reading(value_kind))}
    schema = f"map {key_kind} {value_kind}"
    _tables.setdefault(schema, kinds)
    pair.update(_decode(schema, data, at, to))
