//go:build linux

package crashtest

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// turn says something, waits until the turn is over, and returns its name.
func (v *conversation) turn(text string) string {
	v.t.Helper()
	v.say(text)
	v.until("the turn is over: "+text, func() bool { return v.over() && v.last("said").GetText() == text })
	end := v.last("end")
	if end.GetTurn() != v.last("said").GetSeq() {
		v.t.Fatalf("the end is %v\n%s", end, v.story())
	}
	return fmt.Sprintf("%s/%d", v.chat.GetId(), end.GetTurn())
}

// What a turn of a chat has changed is taken back once, whoever dies meanwhile, with nothing of
// the user's work touched; and not at all where somebody else has changed it since.
func TestTakingATurnBackOutlivesDeaths(t *testing.T) {
	t.Parallel()
	hold := filepath.Join(t.TempDir(), "hold")
	edit := func(text string) any { return call("edit", m{"path": "part.txt", "content": text}) }
	var script []any
	for n := range 4 {
		script = append(script,
			m{"name": fmt.Sprint("works ", n), "expect": []string{fmt.Sprint("round ", n)}, "reply": []any{edit("good, half\n"), edit("good, mended\n"), call("exec", m{"command": fmt.Sprintf("mkdir -p new; echo made > new/made.txt; rm -f other.txt; echo made %d", n)})}},
			m{"name": fmt.Sprint("ends ", n), "expect": []string{fmt.Sprint("made ", n)}, "reply": []any{m{"text": fmt.Sprint("Done ", n)}}})
	}
	script = append(script,
		m{"name": "a later turn", "expect": []string{"later"}, "reply": []any{edit("good, later\n")}},
		m{"name": "its end", "expect": []string{"part.txt: changed"}, "reply": []any{m{"text": "It is later."}}},
		m{"name": "looks", "expect": []string{"only look"}, "reply": []any{call("read", m{"path": "part.txt"})}},
		m{"name": "looked", "expect": []string{"later"}, "reply": []any{m{"text": "I have looked."}}},
		m{"name": "is cut off", "expect": []string{"write much"}, "stop_reason": "max_tokens", "reply": []any{call("edit", m{"path": "much.txt", "content": "much\n"}), call("edit", m{"path": "more.txt", "content": "more"})}},
		m{"name": "its end, cut", "expect": []string{"was cut off within this call"}, "reply": []any{m{"text": "I leave it there."}}},
		m{"name": "is killed", "expect": []string{"run long"}, "reply": []any{edit("good, long\n"), call("exec", m{"command": "echo ran > ran.txt; sleep 1000"})}},
		m{"name": "waits", "expect": []string{"broken off"}, "faults": []any{m{"kind": "slow", "after": 1, "until": hold}}, "reply": []any{m{"text": "I leave it as it is, and say so at length. " + strings.Repeat("And on. ", 10)}}},
	)
	d := serve(t)
	p := newProject(t, "true\n")
	v := converse(t, d, p, model(t, script...), "")
	c := d.Connect(t)
	head := p.git("rev-parse", "HEAD")
	before := p.git("status", "--porcelain")
	var name string
	for n, round := range deathsOf(d) {
		name = v.turn(fmt.Sprint("round ", n))
		if end := v.last("end"); !end.GetCanRollBack() || p.read("part.txt") != "good, mended\n" || p.read("new/made.txt") != "made\n" {
			t.Fatalf("before %s: %v, %q\n%s", round.name, end, p.read("part.txt"), v.story())
		}
		back := takenBack(t, d, c, name, round)
		id := back.ID
		if back.Status != tend.HealReady || back.TakesBack != name || back.Commit != "" || len(back.Left) > 0 || len(back.Tries) != 1 || strings.Join(back.Tries[0].Paths, " ") != "new/made.txt part.txt" {
			t.Fatalf("after the death of %s it is %+v", round.name, back.Episode)
		}
		if _, err := os.Lstat(p.dir + "/new"); p.read("part.txt") != "good\n" || err == nil {
			t.Errorf("the part is %q, and %v", p.read("part.txt"), err)
		}
		if now := p.git("status", "--porcelain"); now != before || p.git("rev-parse", "HEAD") != head {
			t.Errorf("the repository was\n%s\nand is\n%s", before, now)
		}
		p.untouched()
		v.until("the chat says so", func() bool { return v.last("back").GetEpisode() == id })
		if e := v.last("back"); fmt.Sprintf("%s/%d", v.chat.GetId(), e.GetTurn()) != name || e.GetText() != "" {
			t.Errorf("it says %v", e)
		}
		if again, err := c.RollBack(t.Context(), name); again != id || err != nil {
			t.Errorf("again it is %q, %v; want %s", again, err, id)
		}
	}
	if n := strings.Count(v.story(), " back "); n != 4 {
		t.Errorf("%d turns were taken back\n%s", n, v.story())
	}
	refused := func(what, name string, kind error, says string) {
		t.Helper()
		was := p.read("part.txt")
		_, err := c.RollBack(t.Context(), name)
		var changed *tend.ChangedError
		if err == nil || !strings.Contains(err.Error(), says) || kind != nil && !errors.Is(err, kind) || kind == nil && (!errors.As(err, &changed) || strings.Join(changed.Paths, " ") != "part.txt") {
			t.Errorf("%s: it is %v", what, err)
		}
		if p.read("part.txt") != was {
			t.Errorf("%s: something was done", what)
		}
	}
	refused("no turn", v.chat.GetId()+"/999999", process.ErrNotFound, "has no turn")
	refused("no message", v.chat.GetId()+"/2", process.ErrUnsupported, "nothing to go back to")
	refused("another chat", "20200101-000000-000-aaaaaa/1", process.ErrNotFound, "there is no chat")

	// The model knows what was taken back. What a later turn has changed, and somebody since, is
	// named.
	p.write("extra.txt", "the user's\n")
	first := v.turn("a later one")
	p.write("part.txt", "good, somebody's\n")
	refused("what has changed since", first, nil, "part.txt: it has changed since")
	p.write("part.txt", "good, later\n")
	if v.turn("only look"); v.last("end").GetCanRollBack() {
		t.Errorf("a turn that only looked: %v", v.last("end"))
	}
	refused("a turn that only looked", fmt.Sprintf("%s/%d", v.chat.GetId(), v.last("end").GetTurn()), process.ErrUnsupported, "nothing to go back to")

	// A call that was not made, since the reply was cut off within it, has changed nothing: what
	// is known of the others stays.
	if v.turn("write much"); p.read("much.txt") != "much\n" || !v.last("end").GetCanRollBack() {
		t.Errorf("a turn with a call that was cut off: %v\n%s", v.last("end"), v.story())
	}

	// A worker dies in the middle of a turn: what it had done before is known, and of the call
	// that was broken off, that it has done nothing.
	v.say("run long")
	proctest.Eventually(t, "a command runs", func() bool { return labelled(t, d, "tend.heal.command") > 0 })
	kill(labelled(t, d, "tend.chat"))
	v.until("another one goes on", func() bool { return strings.Contains(v.story(), "it was broken off") })
	refused("a turn that is under way", first, process.ErrRunning, "a turn of the chat is under way")
	proctest.Must(t, os.WriteFile(hold, nil, 0o600))
	v.until("it is over", func() bool { return v.over() && v.last("said").GetText() == "run long" })
	last := fmt.Sprintf("%s/%d", v.chat.GetId(), v.last("end").GetTurn())
	refused("what a later turn has changed", first, nil, "a later turn of the chat has changed it, too: take that back first")
	for _, one := range []struct{ name, is string }{{last, "good, later\n"}, {first, "good\n"}} {
		if e := over(t, c, proctest.Value(c.RollBack(t.Context(), one.name))(t)); e.Status != tend.HealReady || p.read("part.txt") != one.is {
			t.Errorf("%s is %+v, and the part %q\n%s", one.name, e.Episode, p.read("part.txt"), v.story())
		}
	}
	if p.read("extra.txt") != "the user's\n" {
		t.Error("the user's file is not what it was")
	}
	// What was kept goes with the chat.
	turns := filepath.Join(d.StateDir(), "healing", "chats", v.chat.GetId(), "turns")
	proctest.Value(os.Stat(turns))(t)
	proctest.Value(v.c.Clear(t.Context(), connect.NewRequest(&tendv1.ClearChatRequest{})))(t)
	if _, err := os.Lstat(turns); err == nil {
		t.Error("what was kept of turns is there still")
	}
	refused("a chat that was cleared", last, process.ErrNotFound, "there is no chat")
}

// What a turn has changed is taken back where the service runs, with the rights that it has
// there.
func TestATurnIsTakenBackWhereItIs(t *testing.T) {
	everywhere(t, func(t *testing.T, d *daemon, c *tend.Client, at place, dir string) {
		url := model(t,
			m{"name": "edits", "expect": []string{"mend it"}, "reply": []any{call("edit", m{"path": "part.txt", "content": "good, mended\n"}), call("edit", m{"path": "new/made.txt", "content": "made\n"})}},
			m{"name": "ends", "expect": []string{"part.txt: written"}, "reply": []any{m{"text": "It is mended."}}},
		)
		p := newProjectAt(t, at, dir, "true\n")
		text := fmt.Sprintf("services:\n  web: {command: [sh, server.sh], cwd: %[1]s, %[5]senv: {%[2]s: '%[3]s'}, health: {http: 'http://%[3]s/', interval: 200ms, timeout: 30s}}\nhealer: {root: %[1]s, llm: {provider: anthropic, model: scripted, base_url: '%[4]s'}}\n", p.dir, serveRole, p.addr, url, at.keys())
		proctest.Must(t, c.ApplyServices(t.Context(), tend.ServiceFile{Dir: t.TempDir(), Text: []byte(text), Env: map[string]string{"PATH": os.Getenv("PATH"), "ANTHROPIC_API_KEY": modelKey}}))
		proctest.Must(t, c.StartServices(t.Context()))
		service(t, c, "web", "ready", isReady)
		v := &conversation{t: t, d: d, c: tendv1connect.NewChatServiceClient(http.DefaultClient, d.URL)}
		name := v.turn("mend it")
		if p.read("part.txt") != "good, mended\n" || !v.last("end").GetCanRollBack() {
			t.Fatalf("the turn has made %q\n%s", p.read("part.txt"), v.story())
		}
		p.write("part.txt", "good, mine\n")
		var changed *tend.ChangedError
		if _, err := c.RollBack(t.Context(), name); !errors.As(err, &changed) || p.read("part.txt") != "good, mine\n" {
			t.Errorf("what has changed since: %v", err)
		}
		p.write("part.txt", "good, mended\n")
		if e := over(t, c, proctest.Value(c.RollBack(t.Context(), name))(t)); e.Status != tend.HealReady || p.read("part.txt") != "good\n" {
			t.Errorf("it is %+v, and the part %q", e.Episode, p.read("part.txt"))
		}
		if text, err := at.read(filepath.Join(dir, "new/made.txt")); err == nil {
			t.Errorf("what it made is %q", text)
		}
		p.untouched()
		if m, ok := at.(machine); ok {
			m.owns(t, dir)
		}
	})
}
