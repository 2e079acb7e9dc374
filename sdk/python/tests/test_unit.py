"""The client against servers that misbehave, and what it is made of."""

from __future__ import annotations

import io
import os
import random
import tarfile
import threading
from pathlib import Path
from typing import Any

import httpcore
import pytest
import tend
from fake import Call, Fake
from tend._connect import Envelopes, envelope, parse_target
from tend._dirs import unpack
from tend._home import defaults
from tend._retry import Attempts
from tend._schema import MESSAGES
from tend._sync._network import OnePieceStream
from tend._wire import decode, encode

QUICK = tend.Retry(first=0.001, max=0.005, attempts=5)


def connect(fake: Fake, **options: Any) -> tend.Process:
    return fake.client(retry=QUICK, **options).get(id="p")


def output(at: int, data: bytes, stream: int = 1) -> dict[str, Any]:
    return {"process_id": "p", "output": {"stream": stream, "offset": at, "data": data}}


HELLO: dict[str, Any] = {"hello": {"from": [{"stream": 1, "offset": 0}]}}
END: list[dict[str, Any]] = [{"exited": {"code": 3}}, {"eof": {"stream": 1, "offset": 0}}, {"eof": {"stream": 2, "offset": 0}}]


def asked_from(c: Call) -> int:
    request = decode("ReadRequest", c.body[5:])
    return next((f.get("offset", 0) for f in request["from"] if f["stream"] == 1), 0)


def test_an_output_that_breaks_anywhere_arrives_whole() -> None:
    text = b"".join(b"line %d\n" % i for i in range(200))
    tries = 0

    def read(c: Call) -> None:
        nonlocal tries
        tries += 1
        at = asked_from(c)
        pieces = [output(i, text[i : i + 37]) for i in range(at, len(text), 37)]
        hello = {"hello": {"from": [{"stream": 1, "offset": at}]}}
        if tries % 2:
            c.events(hello, *pieces[:tries], end=False, raw=envelope(encode("ReadResponse", {"event": output(0, b"torn")}))[: tries % 11])
        else:
            c.events(hello, *pieces[:tries], {"going_away": {}})
        if tries > 12:
            c.server.answers["Read"] = lambda c: c.events({"hello": {"from": [{"stream": 1, "offset": asked_from(c)}]}}, output(asked_from(c), text[asked_from(c) :]), *END)  # type: ignore[attr-defined]

    with Fake(Read=read) as fake:
        process = connect(fake)
        assert b"".join(process.output()) == text
        assert fake.calls.count("Read") == 14


def test_an_archive_of_an_image_that_breaks_anywhere_arrives_whole() -> None:
    text = b"".join(b"line %d\n" % i for i in range(200))
    tries = 0

    def export(c: Call) -> None:
        nonlocal tries
        tries += 1
        size = 30 + tries  # pieces need not be the same
        pieces = b"".join(envelope(encode("ExportImageResponse", {"data": text[i : i + size]})) for i in range(0, len(text), size))
        if tries < 12:
            return c.events(end=False, raw=envelope(b"") + pieces[: 97 * tries])
        c.events(raw=pieces)

    with Fake(ExportImage=export, Hello=lambda c: c.message("HelloResponse", {"listeners_held": True, "sandboxes": True})) as fake:
        assert b"".join(fake.client(retry=QUICK).images.export("python:3")) == text
        assert fake.calls.count("ExportImage") == 12


def test_an_archive_removes_and_writes_nothing_outside(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        member = tarfile.TarInfo(f"top/{outside}")
        member.size = 1
        tar.addfile(member, io.BytesIO(b"x"))
    assert unpack(archive, tmp_path / "local") == []
    assert outside.read_text() == "mine"
    assert (tmp_path / "local" / str(outside).lstrip("/")).read_text() == "x"

    def unpacked(*members: tuple[str, bytes, str]) -> list[str]:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for name, kind, link in members:
                member = tarfile.TarInfo("top/" + name)
                member.type, member.linkname = kind, link
                tar.addfile(member)
        return unpack(archive, tmp_path / "local")

    for name in ("..", "../outside", "a/../../outside", "a/.."):
        with pytest.raises(tarfile.ReadError, match="out of the directory"):
            unpacked((name, tarfile.REGTYPE, ""))
    (tmp_path / "local" / "b").symlink_to(tmp_path)
    with pytest.raises(NotADirectoryError):
        unpacked(("b/outside", tarfile.REGTYPE, ""))
    assert unpacked(("c", tarfile.SYMTYPE, "."), ("d", tarfile.SYMTYPE, "c/../.."), ("e", tarfile.LNKTYPE, "top/c"), ("f", tarfile.FIFOTYPE, "")) == [
        "d: a link to c/../.., out of the directory", "e: no file, directory or symbolic link", "f: no file, directory or symbolic link"
    ]  # fmt: skip
    with pytest.raises(NotADirectoryError):
        unpacked(("c/outside", tarfile.REGTYPE, ""))
    assert outside.read_text() == "mine" and sorted(os.listdir(tmp_path)) == ["local", "outside"]


def test_what_was_used_has_the_points_that_the_server_has_kept() -> None:
    def usage(c: Call) -> None:
        assert decode("UsageRequest", c.body) == {"names": ["web"], "since": {"seconds": 5400, "nanos": 500_000_000}}
        points = [{"time": {"seconds": 60}, "cpu": 1500, "memory": 7}, {"time": {"seconds": 180}, "received": 0, "sent": 3}]
        c.message("UsageResponse", {"usages": [{"kind": "service", "name": "web", "points": points}]})

    with Fake(Usage=usage) as fake:
        (web,) = fake.client().usage_history(5400.5, "web")
    assert (web.kind, web.id, web.name, web.cpus, web.memory_total) == ("service", "", "web", 0, 0)
    assert [(p.time.timestamp() if p.time else None, p.cpu, p.memory, p.received, p.sent) for p in web.points] == [(60, 1.5, 7, None, None), (180, 0, 0, 0, 3)]


def test_facts_that_a_second_stream_repeats_are_told_once() -> None:
    answers = [(lambda c: c.events(HELLO, {"started": {"pid": 7}}, *END[:1], end=False)), (lambda c: c.events(HELLO, {"started": {"pid": 7}}, *END))]
    with Fake(Read=lambda c: answers.pop(0)(c)) as fake:
        assert [type(e).__name__ for e in connect(fake).read()] == ["Started", "Exited", "Eof", "Eof"]


def test_when_nothing_can_follow_the_end_of_the_stream_is_not_asked_for() -> None:
    with Fake(Read=lambda c: c.events(HELLO, *END, end=False)) as fake:
        assert len(list(connect(fake).read())) == 3
        assert fake.calls.count("Read") == 1


@pytest.mark.parametrize(
    "wrong",
    [
        [output(0, b"again")],
        [output(9, b"skipped")],
        [output(3, b"x", stream=0)],
        [{**output(3, b"x"), "process_id": "other"}],
        [{"gap": {"stream": 1, "from": 3, "to": 2}}],
        [{"exited": {"signal": 300}}],
    ],
)
def test_output_that_is_not_the_next_is_refused(wrong: list[dict[str, Any]]) -> None:
    with Fake(Read=lambda c: c.events(HELLO, output(0, b"abc"), *wrong)) as fake:
        with pytest.raises(tend.TendError) as err:
            list(connect(fake).read())
        assert err.value.code == "protocol"


@pytest.mark.parametrize("raw", [b"\1\0\0\0\1x", b"\0\xff\xff\xff\xff", b"\0\0\0\0\2\xff\xff", b"\0\0\0\0\2\x0a\x05"])
def test_garbage_is_refused(raw: bytes) -> None:
    with Fake(Read=lambda c: c.events(HELLO, raw=raw)) as fake:
        with pytest.raises(tend.TendError) as err:
            list(connect(fake).read())
        assert err.value.code == "protocol"


def test_a_server_that_breaks_each_stream_is_given_up() -> None:
    with Fake(Read=lambda c: c.events(HELLO, end=False)) as fake:
        with pytest.raises(tend.UnavailableError):
            list(connect(fake).read())
        assert fake.calls.count("Read") == 6


def test_a_write_whose_answer_is_lost_is_sent_again_as_the_same_one() -> None:
    seen: list[dict[str, Any]] = []

    def write(c: Call) -> None:
        request = decode("WriteRequest", c.body)
        seen.append(request)
        if len(seen) in (1, 3):
            return c.cut()
        c.message("WriteResponse", {"written": request.get("writer_offset", 0) + len(request["data"])})

    with Fake(Write=write) as fake:
        process = connect(fake)
        process.write("abc")
        process.write("def")
    assert [(w.get("writer_offset", 0), w["data"], w.get("again", False)) for w in seen] == [(0, b"abc", False), (0, b"abc", True), (3, b"def", False), (3, b"def", True)]
    assert len({w["writer"] for w in seen}) == 1


def test_a_command_is_one_call() -> None:
    """It is repeated until it has begun; then it is read from where it was."""
    started, end = {"started": {"pid": 7}}, [{"exited": {"code": 3}}, {"eof": {"stream": 1, "offset": 3}}, {"eof": {"stream": 2}}]
    runs: list[dict[str, Any]] = []
    starts: list[int] = []

    def run(call: Call) -> None:
        runs.append(decode("RunRequest", call.body[5:]))
        if len(runs) == 1:
            call.cut()
        elif len(runs) == 2:
            call.events({"hello": {}}, started, {"output": {"stream": 1, "data": b"ab"}}, end=False)
        else:
            call.events({"hello": {}}, started, {"output": {"stream": 1, "data": b"xyz"}}, *end)

    def read(call: Call) -> None:
        starts.extend(at["offset"] for at in decode("ReadRequest", call.body[5:])["from"] if at["stream"] == 1)
        call.events({"hello": {}}, started, {"output": {"stream": 1, "offset": 2, "data": b"c"}}, *end)

    removed: list[str] = []

    def remove(call: Call) -> None:
        removed.append(decode("RemoveRequest", call.body)["process"]["id"])
        call.message("RemoveResponse", {})

    with Fake(Run=run, Read=read, Remove=remove, Hello=lambda c: c.message("HelloResponse", {"listeners_held": True, "runs": True})) as fake:
        client = fake.client()
        first = client.run(["x"])
        assert (first.stdout, first.exit_code, starts) == (b"abc", 3, [2])
        assert runs[0]["spec"]["id"] == runs[1]["spec"]["id"]
        assert client.run(["y"]).stdout == b"xyz"
        assert client.run(["z"], id="mine").stdout == b"xyz"
        client.close()  # ends what nobody waits for
    # Each was removed once: with a run that followed at once, or by a call of its own.
    assert sorted([*removed, *(i for r in runs for i in r.get("forget", []))]) == sorted(r["spec"]["id"] for r in runs[1:])


def test_a_command_is_a_start_and_a_read_where_the_server_turns_out_to_be_older() -> None:
    def start(call: Call) -> None:
        call.message("StartResponse", {"info": {"id": decode("StartRequest", call.body)["spec"]["id"], "pid": 5}})

    def read(call: Call) -> None:
        call.events({"hello": {}}, {"started": {"pid": 5}}, {"exited": {"code": 3}}, {"eof": {"stream": 1}}, {"eof": {"stream": 2}})

    with Fake(Start=start, Read=read, Hello=lambda c: c.message("HelloResponse", {"runs": True})) as fake:
        client = fake.client()
        for _ in range(2):
            assert client.run(["x"]).exit_code == 3
        client.close()
        assert [c for c in fake.calls if c != "Remove"] == ["Hello", "Run", "Start", "Read", "Start", "Read"]


def test_a_signal_is_sent_once() -> None:
    with Fake(Signal=lambda c: c.cut()) as fake:
        with pytest.raises(tend.UnavailableError):
            connect(fake).signal(15)
        assert fake.calls.count("Signal") == 1


def test_a_silent_server_is_left_for_another_answer() -> None:
    silent = threading.Event()

    def read(c: Call) -> None:
        if fake.calls.count("Read") > 1:
            at = asked_from(c)
            return c.events({"hello": {"from": [{"stream": 1, "offset": at}]}}, output(at, b"ab"[at:]), *END)
        c.send_response(200)
        c.send_header("Content-Type", "application/connect+proto")
        c.send_header("Content-Length", "1000")
        c.end_headers()
        c.wfile.write(b"".join(envelope(encode("ReadResponse", {"event": e})) for e in (HELLO, output(0, b"a"))))
        silent.wait(60)
        c.close_connection = True

    with Fake(Read=read) as fake:
        assert b"".join(fake.client(retry=tend.Retry(first=0.001, attempts=50), silence=2.0).get(id="p").output()) == b"ab"
        silent.set()


def test_a_method_that_the_server_lacks_and_one_that_is_elsewhere() -> None:
    with Fake(Kill=lambda c: c.say(307, "text/plain", b"", {"Location": "http://elsewhere/"})) as fake:
        process = connect(fake)
        with pytest.raises(tend.UnsupportedError, match="tend upgrade replaces it"):
            process.pin()
        with pytest.raises(tend.UnsupportedError, match="no sandboxes, or is of a former version"):
            fake.client().sandboxes()
        with pytest.raises(tend.RedirectError, match="http://elsewhere/"):
            process.kill()


def test_nobody_listens_and_somebody_else_does(tmp_path: Path) -> None:
    for url in (f"unix://{tmp_path}/none", "http://127.0.0.1:1"):
        with pytest.raises(tend.NoDaemonError, match="tend serve") as none:
            tend.Client.connect(url)
        assert none.value.__suppress_context__  # its text has the cause: a second traceback hides it
    with Fake(Hello=lambda c: c.say(200, "text/html", b"hello")) as fake:
        with pytest.raises(tend.TendError) as err:
            tend.Client.connect(fake.url)
        assert err.value.code == "protocol"
    for token in ("wrong", ""):
        with Fake(Hello=lambda c: c.say(401, "text/plain", b"")) as fake, pytest.raises(tend.PermissionDeniedError, match="TEND_TOKEN"):
            tend.Client.connect(fake.url, token=token)


@pytest.mark.parametrize("url", ["", "unix:", "ftp://x", "http://", "http://u:p@x", "http://x?a", "http://x#a", "http://[::1", "x:1"])
def test_urls_that_mean_nothing_are_refused_without_their_password(url: str) -> None:
    with pytest.raises(tend.InvalidError) as err:
        parse_target(url)
    assert "p@" not in str(err.value)


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port", "path", "authority"),
    [
        ("http://127.0.0.1:7800", "http", "127.0.0.1", 7800, "", "127.0.0.1:7800"),
        ("https://Tend.Example/api/", "https", "tend.example", None, "/api", "tend.example"),
        ("http://[::1]:1", "http", "::1", 1, "", "[::1]:1"),
        ("http://b\u00fccher.example/\u00e4 b/%2F", "http", "xn--bcher-kva.example", None, "/%C3%A4%20b/%2F", "xn--bcher-kva.example"),
    ],
)
def test_what_a_url_means(url: str, scheme: str, host: str, port: int | None, path: str, authority: str) -> None:
    t = parse_target(url)
    assert (t.scheme, t.host, t.port, t.path, t.socket, t.authority) == (scheme, host, port, path, None, authority)


class Written(httpcore.NetworkStream):
    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return b""

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.pieces.append(buffer)


def test_the_head_and_the_body_of_a_call_are_one_piece() -> None:
    head, streamed = b"POST /x HTTP/1.1\r\nContent-Length: 3\r\n\r\n", b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    for writes, want in [
        ([head, b"abc", b""], [head + b"abc", b""]),
        ([head], [head]),  # of an empty body nothing is written
        ([head, head, head], [head + head, head]),  # a body that looks like a head
        ([streamed, b"2b\r\n" + head + b"\r\n"], [streamed, b"2b\r\n" + head + b"\r\n"]),
    ]:
        inner = Written()
        stream = OnePieceStream(inner)
        for w in writes:
            stream.write(w)
        if writes[0] == streamed:
            assert inner.pieces == want, "what is streamed may take its time"
        stream.read(1)
        assert inner.pieces == want


def test_where_the_daemon_of_the_user_is(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    assert defaults({"TEND_URL": "http://x", "TEND_TOKEN": "t"}) == (["http://x"], "t")
    assert defaults({"TEND_STATE_DIR": str(state)}) == ([f"unix://{state}/tend.sock"], "")
    (state / "url").write_text("http://127.0.0.1:5\n")
    assert defaults({"TEND_STATE_DIR": str(state)})[0] == ["http://127.0.0.1:5", f"unix://{state}/tend.sock"]


def test_waits_between_attempts() -> None:
    attempts = Attempts(tend.Retry(first=0.5, max=8, attempts=6), lambda: 0.0)
    assert [attempts.next(True) for _ in range(7)] == [0.0, 1.0, 2.0, 4.0, 8.0, 8.0, None]
    attempts.progress()
    assert attempts.next(False) == 0.5


def sample(schema: str, rand: random.Random, depth: int = 0) -> dict[str, Any]:
    """A message with some of its fields."""

    def value(kind: str) -> Any:
        if kind in MESSAGES:
            return sample(kind, rand, depth + 1)
        return {
            "string": "ü\0x",
            "bytes": b"\xff" * rand.choice((0, 1, 200)),
            "bool": True,
            "double": 1.5,
            "int32": -(1 << 31),
            "int64": rand.choice((-1, 1 << 62)),
            "uint32": (1 << 32) - 1,
            "uint64": (1 << 64) - 1,
        }[kind]

    message: dict[str, Any] = {}
    for _, name, kind, label in MESSAGES[schema]:
        if depth > 4 or rand.random() < 0.3:
            continue
        if label == "map":
            message[name] = {"k": value(kind.split()[1])} if kind.startswith("string") else {7: value(kind.split()[1])}
        else:
            message[name] = [value(kind), value(kind)] if label else value(kind)
    return message


def test_messages_survive_and_unknown_fields_are_passed_over() -> None:
    rand = random.Random(1)
    later = b"\xba\x3e\x03new" + b"\xc0\x3e\x07" + b"\xc9\x3e12345678" + b"\xd5\x3e1234"  # fields 999 to 1002, of each wire type
    for schema in MESSAGES:
        message = sample(schema, rand)
        assert decode(schema, later + encode(schema, message) + later) == message
    assert decode("KillResponse", b"\x12\x03\x07\x80\x01") == {"survivors": [7, 128]}, "packed numbers"


def test_any_bytes_are_a_message_or_an_error() -> None:
    rand = random.Random(2)
    good = encode("ReadResponse", {"event": {**output(5, b"x" * 50), "time": {"seconds": 7, "nanos": 9}}})
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(rand.randint(1, 4)):
            data[rand.randrange(len(data))] = rand.randrange(256)
        try:
            decode("ReadResponse", bytes(data[: rand.randint(0, len(data))]))
        except tend.TendError as err:
            assert err.code == "protocol"


def test_envelopes_come_in_any_pieces() -> None:
    messages = [b"", b"a", b"b" * 1000]
    data = b"".join(map(envelope, messages))
    for size in (1, 3, 7, 500, 5000):
        envelopes, got = Envelopes(), []
        for at in range(0, len(data), size):
            envelopes.add(data[at : at + size])
            while (found := envelopes.next()) is not None:
                got.append(found[1])
        assert got == messages and not envelopes.torn
