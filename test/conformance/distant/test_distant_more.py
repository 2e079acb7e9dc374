#!/usr/bin/env python3
"""What tend adds to the JSON form, and the file requests, beside test_distant_json.py.

Run it the same way.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from distant_json import Conn, check_error, configured, main


@unittest.skipUnless(configured(), "set TEND_DISTANT_CMD, TEND_DISTANT_TCP or TEND_DISTANT_UNIX")
class Base(unittest.TestCase):
    def setUp(self):
        self.tmp = os.path.realpath(tempfile.mkdtemp(prefix="distant"))
        self.addCleanup(shutil.rmtree, self.tmp)
        self.c = Conn(cwd=self.tmp)
        self.addCleanup(self.c.close)

    def path(self, name):
        return os.path.join(self.tmp, name)

    def ok(self, **request):
        self.assertEqual(self.c.ask(request), {"type": "ok"})


class Beyond(Base):
    def test_close_stdin(self):
        p = self.c.spawn("cat")
        self.c.stdin(p, b"all")
        self.ok(type="tend_close_stdin", id=p.id)
        self.c.wait(p)
        self.assertEqual((p.out, p.code), (b"all", 0))

    def test_signal(self):
        p = self.c.spawn("sh -c 'trap \"echo got; exit 3\" USR1; echo ready; while :; do sleep 0.05; done'")
        self.c.pump(lambda: p.out == b"ready\n")
        self.ok(type="tend_signal", id=p.id, signal=10)
        self.c.wait(p)
        self.assertEqual((p.out, p.code), (b"ready\ngot\n", 3))

    def test_a_process_outlives_its_connection(self):
        p = self.c.spawn("sh -c 'echo one; read x; echo two; exit 6'")
        self.c.pump(lambda: p.out == b"one\n")
        self.c.close()
        d = Conn(cwd=self.tmp)
        self.addCleanup(d.close)
        again = d.ask({"type": "tend_attach", "id": p.id, "stdout": 4})
        self.assertEqual(again, {"type": "proc_spawned", "id": p.id})
        self.assertEqual(d.ask({"type": "proc_stdin", "id": p.id, "data": [10]}), {"type": "ok"})
        q = d.wait(d.procs[p.id])
        self.assertEqual((q.out, q.code), (b"two\n", 6))

    def test_attach_past_the_end_is_an_error(self):
        p = self.c.spawn("cat")
        check_error(self.c.ask({"type": "tend_attach", "id": p.id, "stdout": 1000}), "invalid_input")
        check_error(self.c.ask({"type": "tend_attach", "id": 4294967295}), "other")
        self.ok(type="proc_kill", id=p.id)

    def test_kill_ends_the_whole_tree(self):
        p = self.c.spawn("sh -c 'sleep 3456 & echo $!; wait'")
        self.c.pump(lambda: p.out.endswith(b"\n"))
        child = int(p.out)
        self.ok(type="proc_kill", id=p.id)
        self.c.wait(p)
        self.assertFalse(os.path.exists("/proc/%d" % child) and "Z" not in open("/proc/%d/stat" % child).read().split(")")[1])


class Files(Base):
    def test_bytes_are_what_was_written(self):
        data = list(range(256)) * 4
        self.ok(type="file_write", path=self.path("a"), data=data)
        self.ok(type="file_append", path=self.path("a"), data=[1, 2])
        self.assertEqual(self.c.ask({"type": "file_read", "path": self.path("a")}), {"type": "blob", "data": data + [1, 2]})
        with open(self.path("a"), "rb") as f:
            self.assertEqual(f.read(), bytes(data + [1, 2]))

    @unittest.skipIf(os.environ.get("TEND_DISTANT_TCP") or os.environ.get("TEND_DISTANT_UNIX"), "needs a server started by the test")
    def test_relative_paths_start_at_the_servers_directory(self):
        self.ok(type="file_write_text", path="rel", text="é")
        with open(self.path("rel"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "é")

    def test_directories(self):
        self.ok(type="dir_create", path=self.path("d/e"), all=True)
        self.ok(type="file_write_text", path=self.path("d/f"), text="x")
        m = self.c.ask({"type": "dir_read", "path": self.path("d")})
        self.assertEqual(m["errors"], [])
        self.assertEqual(sorted((e["path"], e["file_type"], e["depth"]) for e in m["entries"]), [("e", "dir", 1), ("f", "file", 1)])
        self.ok(type="copy", src=self.path("d"), dst=self.path("g"))
        self.ok(type="rename", src=self.path("g"), dst=self.path("h"))
        check_error(self.c.ask({"type": "remove", "path": self.path("h")}))
        self.ok(type="remove", path=self.path("h"), force=True)
        self.assertEqual(self.c.ask({"type": "exists", "path": self.path("h")}), {"type": "exists", "value": False})

    def test_metadata_and_permissions(self):
        self.ok(type="file_write_text", path=self.path("a"), text="12345")
        self.ok(type="set_permissions", path=self.path("a"), permissions={"owner_write": False, "other_read": False})
        m = self.c.ask({"type": "metadata", "path": self.path("a")})
        self.assertEqual((m["type"], m["file_type"], m["len"], m["unix"]["owner_write"]), ("metadata", "file", 5, False))

    def test_metadata_has_the_times(self):
        self.ok(type="file_write_text", path=self.path("a"), text="1")
        os.symlink("a", self.path("l"))
        os.utime(self.path("a"), (11, 22))
        for name in "a", "l":
            m = self.c.ask({"type": "metadata", "path": self.path(name)})
            stat = subprocess.run(["stat", "-c", "%W %X %Y", self.path(name)], capture_output=True, check=True, text=True).stdout
            born, accessed, modified = map(int, stat.split())
            self.assertEqual((m.get("created", 0), m["accessed"], m["modified"]), (born, accessed, modified), name)

    def test_errors_have_the_kinds_of_files(self):
        check_error(self.c.ask({"type": "file_read", "path": self.path("no")}), "not_found")
        check_error(self.c.ask({"type": "metadata", "path": self.path("no")}), "not_found")
        self.ok(type="dir_create", path=self.path("d"))
        check_error(self.c.ask({"type": "dir_create", "path": self.path("d")}), "already_exists")

    def test_watch_in_an_envelope_keeps_its_origin(self):
        self.c.send({"id": "w", "payload": {"type": "watch", "path": self.tmp}})
        self.assertEqual(self.c.recv()["payload"], {"type": "ok"})
        open(self.path("new"), "w").close()
        m = self.c.recv()
        self.assertEqual((m["origin_id"], m["payload"]["type"], m["payload"]["kind"], m["payload"]["path"]), ("w", "changed", "create", self.path("new")))

    def test_search_in_an_envelope(self):
        with open(self.path("a"), "w") as f:
            f.write("one\ntwo three\n")
        query = {"target": "contents", "condition": {"type": "contains", "value": "three"}, "paths": [self.tmp]}
        self.c.send({"id": "s", "payload": {"type": "search", "query": query}})
        got = [self.c.recv()["payload"] for _ in range(3)]
        self.assertEqual([m["type"] for m in got], ["search_started", "search_results", "search_done"])
        self.assertEqual(got[1]["matches"], [{"type": "contents", "path": self.path("a"), "lines": "two three\n", "line_number": 2,
                                              "absolute_offset": 4, "submatches": [{"match": "three", "start": 4, "end": 9}]}])


if __name__ == "__main__":
    main("__main__")
