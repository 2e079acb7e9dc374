package healing

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/heal/chat"
	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/service/supervisor"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

// undoOf is the Undo of a change of one file; kind "": it was not there.
func undoOf(path, kind string, before []byte) []byte {
	return fmt.Appendf(nil, `{"Files":[{"Path":%q,"Before":{"Kind":%q,"Sum":"1","Data":%q},"After":{"Kind":"f","Sum":"2"}}]}`,
		`"`+path+`"`, kind, base64.StdEncoding.EncodeToString(before))
}

// A file is compared with what it was before the newest repair, or turn of a chat, that has
// changed it, is kept and was not taken back: in its place, and in no other.
func TestWhatAFileWasBefore(t *testing.T) {
	s := play(t, t.TempDir(), testkeeper.New(t), "/bin/false")
	c, _ := project(t, "web")
	s.is("web", supervisor.State{Up: true})
	s.declare(t, c, "/one/tend.yaml")
	root := c.Healer.Root
	if root == "" {
		t.Fatal("the project has no root")
	}
	wrote := []healer.Entry{
		{Kind: healer.Answered, Did: healer.Look, Seq: 1, OK: true, Remedies: []healer.Remedy{{Kind: healer.Book, Tree: true}}},
		{Kind: healer.Answered, Did: healer.Checkpoint, Seq: 2, OK: true}, {Kind: healer.Answered, Did: healer.Act, Seq: 3, OK: true},
	}
	ready := append(wrote[:3:3], healer.Entry{Kind: healer.Answered, Did: healer.Verify, Seq: 4, OK: true},
		healer.Entry{Kind: healer.Answered, Did: healer.Review, Seq: 5, OK: true}, healer.Entry{Kind: healer.Answered, Did: healer.Commit, Seq: 6, OK: true, Commit: strings.Repeat("ab", 20)})
	keep := func(id, name string, data []byte) {
		t.Helper()
		proctest.Must(t, os.WriteFile(filepath.Join(s.store.episode(id), name), data, 0o600))
	}
	want := func(what, path, by, content, why string, sandbox ...string) {
		t.Helper()
		m := proctest.Value(s.FileBefore(t.Context(), sandbox, path))(t)
		if m.GetChangedBy() != by || string(m.GetContent()) != content || !strings.Contains(m.GetWhy(), why) || why == "" && m.GetWhy() != "" || by != "" && m.GetAt() == nil {
			t.Errorf("%s: it is %v", what, m)
		}
	}
	a := filepath.Join(root, "a.txt")
	want("nothing was changed", a, "", "", "")
	old := s.ended(t, 1, c, "web", "/one/tend.yaml", ready...)
	keep(old, healer.UndoFile, undoOf("a.txt", checkpoint.File, []byte("the oldest\n")))
	want("a repair", a, old, "the oldest\n", "")
	other := s.ended(t, 2, c, "web", "/one/tend.yaml", ready...)
	keep(other, healer.UndoFile, undoOf("b.txt", "", nil))
	want("a repair of another file", a, old, "the oldest\n", "")
	want("one that made it", filepath.Join(root, "b.txt"), other, "", "")
	newer := s.ended(t, 3, c, "web", "/one/tend.yaml", ready...)
	keep(newer, healer.UndoFile, undoOf("a.txt", checkpoint.File, []byte("newer\n")))
	want("a newer repair", a, newer, "newer\n", "")
	keep(newer, healer.BackFile, []byte(old+"\n"))
	want("one that was taken back", a, old, "the oldest\n", "")
	broken := s.ended(t, 4, c, "web", "/one/tend.yaml", healer.Entry{Kind: healer.Cancelled})
	keep(broken, healer.UndoFile, undoOf("a.txt", checkpoint.File, []byte("never\n")))
	keep(broken, healer.LiveFile, undoOf("a.txt", checkpoint.File, []byte("never\n")))
	want("one that did not help", a, old, "the oldest\n", "")

	for what, one := range map[string]struct{ path string }{
		"another file": {filepath.Join(root, "c.txt")}, "the root": {root}, "above it": {filepath.Dir(root) + "/a.txt"}, "a path with dots": {root + "/x/../a.txt"}, "another project": {root + "2/a.txt"}, "no path": {""},
	} {
		want(what, one.path, "", "", "")
	}
	want("a sandbox", a, "", "", "", "box-1", "dev")
	want("a sandbox without a name", a, "", "", "", "box-1", "")

	// A turn of a chat, and a repair that is under way.
	dir := s.store.chat("20250101-000000-chat")
	o := proctest.Value(healer.ReadOrder(s.store.episode(old)))(t)
	o.ID, o.Dir = "20250101-000000-chat", dir
	proctest.Must(t, os.MkdirAll(dir, 0o700))
	proctest.Must(t, atomicfile.File(o.Path(healer.OrderFile), proctest.Value(json.Marshal(o))(t), 0o600))
	turn := func(said int64, kind string, before []byte) {
		t.Helper()
		u := new(checkpoint.Undo)
		proctest.Must(t, json.Unmarshal(undoOf("a.txt", kind, before), u))
		proctest.Must(t, chat.KeepCall(dir, root, "", said, int(said), u, ""))
		at := time.Now().Add(time.Duration(said-100) * time.Second / 10)
		proctest.Must(t, os.Chtimes(chat.TurnFile(dir, said), at, at))
	}
	for n, one := range []struct {
		kind          string
		before        []byte
		content, says string
	}{
		{checkpoint.File, []byte("before the turn\n"), "before the turn\n", ""},
		{checkpoint.File, bytes.Repeat([]byte("x"), maxBefore+1), "", "more than 2 MiB"},
		{checkpoint.File, []byte("a\x00b"), "", "not text"},
		{checkpoint.File, []byte("caf\xe9"), "", "not text"},
		{checkpoint.Link, []byte("/etc/passwd"), "", "symbolic link"},
	} {
		said := int64(n + 1)
		turn(said, one.kind, one.before)
		want("a turn", a, fmt.Sprintf("20250101-000000-chat/%d", said), one.content, one.says)
	}
	proctest.Must(t, chat.KeepCall(dir, root, "", 6, 5, nil, "what a call has changed is not known"))
	turn(6, checkpoint.File, []byte("in the middle of the turn\n"))
	want("a turn of which a call is not known", a, "20250101-000000-chat/6", "", "not all that the turn has changed is kept")
	turn(7, checkpoint.File, []byte("damaged\n"))
	proctest.Must(t, os.WriteFile(chat.TurnFile(dir, 7), []byte(`{"root":`), 0o600))
	damaged := s.ended(t, 99, c, "web", "/one/tend.yaml", ready...)
	keep(damaged, healer.UndoFile, []byte(`{"Files":[{"Pa`))
	want("what is damaged is as good as not there", a, "20250101-000000-chat/6", "", "not all that the turn has changed is kept")
	want("also for another file", filepath.Join(root, "b.txt"), other, "", "")
	live := newID(time.Now())
	o.ID, o.Dir = live, s.store.episode(live)
	proctest.Must(t, begin(o))
	keep(live, healer.LiveFile, undoOf("a.txt", checkpoint.File, []byte("before what is tried\n")))
	want("a repair that is under way", a, live, "before what is tried\n", "")
	proctest.Must(t, os.Remove(o.Path(healer.LiveFile)))
	proctest.Must(t, s.in(t.Context(), func() { _ = s.forgetTalk("20250101-000000-chat") }))
	want("a chat that was cleared", a, old, "the oldest\n", "")
}

// What is kept of a sandbox is not told of another one that has its name now, nor is it taken
// back there. What an earlier version has kept names no ID: it is that of a sandbox with the
// name, if that was there then.
func TestASandboxThatTakesOverANameHasNoPast(t *testing.T) {
	s := play(t, t.TempDir(), testkeeper.New(t), "/bin/false")
	ago := func(hours int) time.Time { return time.Now().Add(-time.Duration(hours) * time.Hour) }
	there := map[string]time.Time{"id-1": ago(5), "id-2": ago(3)} // that has the name now
	s.c.Sandbox = func(_ context.Context, key string) (string, time.Time) {
		if key == "dev" {
			key = "id-2"
		}
		if made, ok := there[key]; ok {
			return key, made
		}
		return "", time.Time{}
	}
	c, _ := project(t, "web")
	s.is("web", supervisor.State{Up: true})
	s.declare(t, c, "/one/tend.yaml")
	rules := *c.Services["web"]
	rules.Sandbox = "dev"
	a := filepath.Join(c.Healer.Root, "a.txt")
	order := func(dir, id, sandbox string, at time.Time) *healer.Order {
		return &healer.Order{ID: id, Dir: dir, Rules: &rules, Healer: c.Healer, Service: "web", SandboxID: sandbox, At: at}
	}
	want := func(what, by string, sandbox ...string) {
		t.Helper()
		if m := proctest.Value(s.FileBefore(t.Context(), sandbox, a))(t); m.GetChangedBy() != by {
			t.Errorf("%s: it is %v, want %q", what, m, by)
		}
	}
	// Repairs.
	repair := func(sandbox string, at time.Time) (id string, gone func()) {
		t.Helper()
		id = newID(time.Now())
		o := order(s.store.episode(id), id, sandbox, at)
		proctest.Must(t, begin(o))
		j, _, err := healer.OpenJournal(o.Path(healer.JournalFile))
		proctest.Must(t, err)
		proctest.Must(t, j.Append(healer.Entry{Kind: healer.Began, At: time.Now()}))
		proctest.Must(t, j.Close())
		live := o.Path(healer.LiveFile)
		proctest.Must(t, os.WriteFile(live, undoOf("a.txt", checkpoint.File, []byte("before\n")), 0o600))
		return id, func() { proctest.Must(t, os.Remove(live)) }
	}
	id, gone := repair("id-1", ago(4))
	want("a repair", id, "id-1", "dev")
	want("a repair, of a sandbox with another name by now", id, "id-1", "")
	want("a repair of the one before", "", "id-2", "dev")
	want("a repair in a sandbox, on the machine", "")
	gone()
	id, gone = repair("", ago(4))
	want("a repair without an ID", id, "id-1", "dev")
	want("a repair without an ID, of one that was not there yet", "", "id-2", "dev")
	want("a repair without an ID, of one that is not known", "", "id-3", "dev")
	gone()
	id, gone = repair("", ago(2))
	want("a repair without an ID, of one that was there", id, "id-2", "dev")
	want("a repair without an ID, of one with another name", "", "id-2", "other")
	gone()
	for _, one := range []struct {
		id   string
		at   time.Time
		want string
	}{{"id-1", ago(4), "id-1"}, {"", ago(4), ""}, {"", ago(2), "id-2"}} {
		got, err := s.sandboxThen(order("", "x", one.id, one.at), one.id, one.at)
		if got != one.want || (err == nil) != (one.want != "") || err != nil && !strings.Contains(err.Error(), "not there any more") {
			t.Errorf("what is taken back of %+v is in %q, %v", one, got, err)
		}
	}

	// Turns of one chat, whose service was on the machine, in a sandbox and in the next one of
	// its name.
	const talk = "20250102-000000-chat"
	dir := s.store.chat(talk)
	write := func(in, sandbox string) *healer.Order {
		t.Helper()
		o := order(dir, talk, sandbox, time.Now())
		r := rules
		r.Sandbox, o.Rules = in, &r
		proctest.Must(t, os.MkdirAll(dir, 0o700))
		proctest.Must(t, atomicfile.File(o.Path(healer.OrderFile), proctest.Value(json.Marshal(o))(t), 0o600))
		return o
	}
	turn := func(sandbox string, said int64, at time.Time) string {
		t.Helper()
		u := new(checkpoint.Undo)
		proctest.Must(t, json.Unmarshal(undoOf("a.txt", checkpoint.File, []byte("before\n")), u))
		proctest.Must(t, chat.KeepCall(dir, c.Healer.Root, sandbox, said, int(said), u, ""))
		proctest.Must(t, os.Chtimes(chat.TurnFile(dir, said), at, at))
		return turnName(talk, said)
	}
	// early has a turn name no sandbox, as an earlier version wrote it.
	early := func(said int64) {
		t.Helper()
		file := chat.TurnFile(dir, said)
		at := proctest.Value(os.Stat(file))(t).ModTime()
		kept := map[string]any{}
		proctest.Must(t, json.Unmarshal(proctest.Value(os.ReadFile(file))(t), &kept))
		delete(kept, "sandbox")
		proctest.Must(t, os.WriteFile(file, proctest.Value(json.Marshal(kept))(t), 0o600))
		proctest.Must(t, os.Chtimes(file, at, at))
	}
	outside := turn("", 1, ago(6))
	first := turn("id-1", 2, ago(4))
	second := turn("id-2", 3, ago(2))
	o := write("dev", "id-2")
	for range 2 {
		want("a turn", second, "id-2", "dev")
		want("a turn in the one before", first, "id-1", "dev")
		want("a turn on the machine", outside)
		o = write("", "") // the order says nothing of turns before
	}
	if !hasMoved(o, "id-1") || hasMoved(o, "") {
		t.Error("on the machine, it has not moved from a sandbox")
	}
	if o = write("dev", "id-2"); !hasMoved(o, "id-1") || !hasMoved(o, "") || hasMoved(o, "id-2") {
		t.Error("in a sandbox, it has not moved from another one")
	}
	early(2)
	want("an early turn", first, "id-1", "dev")
	if in, err := s.sandboxOfTurn(o, chat.TurnFile(dir, 2)); err == nil {
		t.Errorf("an early turn of the one before is taken back in %q", in)
	}
	early(3)
	want("an early turn, of the one that was there", second, "id-2", "dev")
	if in, err := s.sandboxOfTurn(o, chat.TurnFile(dir, 3)); err != nil || in != "id-2" {
		t.Errorf("an early turn is taken back in %q, %v", in, err)
	}
	proctest.Must(t, os.Remove(chat.TurnFile(dir, 3)))
	want("an early turn, of one that was not there yet", "", "id-2", "dev")
}
