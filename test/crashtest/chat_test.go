//go:build linux

package crashtest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// conversation is what a person sees of a chat, who comes back after each loss.
type conversation struct {
	t *testing.T
	d *daemon
	c tendv1connect.ChatServiceClient

	chat    *tendv1.Chat
	entries []*tendv1.ChatEntry
	words   string
}

// converse begins a chat about a project's service, which is up.
func converse(t *testing.T, d *daemon, p *project, url, healer string) *conversation {
	t.Helper()
	text := fmt.Sprintf("services:\n  web: {command: [sh, server.sh], cwd: %[1]s, env: {%[2]s: '%[3]s'}, health: {http: 'http://%[3]s/', interval: 200ms, timeout: 30s}}\nhealer: {root: %[1]s%[5]s, llm: {provider: anthropic, model: scripted, base_url: '%[4]s', prices: {input: 3, output: 15}}}\n", p.dir, serveRole, p.addr, url, healer)
	cl := d.Connect(t)
	proctest.Must(t, cl.ApplyServices(t.Context(), tend.ServiceFile{Dir: t.TempDir(), Text: []byte(text), Env: map[string]string{"PATH": os.Getenv("PATH"), "ANTHROPIC_API_KEY": modelKey}}))
	proctest.Must(t, cl.StartServices(t.Context()))
	service(t, cl, "web", "ready", isReady)
	return &conversation{t: t, d: d, c: tendv1connect.NewChatServiceClient(http.DefaultClient, d.URL)}
}

// say sends a message until it is taken.
func (v *conversation) say(text string) {
	v.t.Helper()
	proctest.Eventually(v.t, "it is taken", func() bool {
		_, err := v.c.Send(v.t.Context(), connect.NewRequest(&tendv1.SendChatRequest{Text: text, Id: text}))
		if err != nil && connect.CodeOf(err) != connect.CodeUnavailable {
			v.t.Fatal(err)
		}
		return err == nil
	})
}

// until follows the chat until something is so.
func (v *conversation) until(what string, is func() bool) {
	v.t.Helper()
	proctest.Eventually(v.t, what, func() bool {
		s, err := v.c.Follow(v.t.Context(), connect.NewRequest(&tendv1.FollowChatRequest{Chat: v.chat.GetId(), After: int64(len(v.entries))}))
		if err != nil {
			return false
		}
		defer s.Close()
		for s.Receive() {
			m := s.Msg()
			if c := m.GetChat(); c != nil {
				if c.GetId() != v.chat.GetId() {
					v.entries = nil
				}
				v.chat = c
			}
			for _, e := range m.GetEntries() {
				if v.entries = append(v.entries, e); e.GetSeq() != int64(len(v.entries)) {
					v.t.Fatalf("entry %d is %v", len(v.entries), e)
				}
			}
			if m.GetWords() != nil {
				v.words = m.GetWords().GetText()
			}
			if is() {
				return true
			}
		}
		return false
	})
}

// last is the newest entry of a kind.
func (v *conversation) last(kind string) *tendv1.ChatEntry {
	for i := len(v.entries) - 1; i >= 0; i-- {
		if v.entries[i].GetKind() == kind {
			return v.entries[i]
		}
	}
	return nil
}

func (v *conversation) asks() bool {
	return v.chat.GetQuestion() > 0 && v.chat.GetQuestion() <= int64(len(v.entries))
}

func (v *conversation) over() bool {
	return v.chat.GetState() == tendv1.ChatState_CHAT_STATE_IDLE && v.chat.GetEntries() == int64(len(v.entries))
}

func (v *conversation) answer(yes bool) error {
	return v.answerTo(v.chat.GetQuestion(), yes)
}

func (v *conversation) answerTo(question int64, yes bool) error {
	_, err := v.c.Answer(v.t.Context(), connect.NewRequest(&tendv1.AnswerChatRequest{Chat: v.chat.GetId(), Question: question, Yes: yes}))
	return err
}

// story is all that happened, a line each.
func (v *conversation) story() string {
	var b strings.Builder
	for _, e := range v.entries {
		fmt.Fprintf(&b, "%d %s %s %s %s error=%v yes=%v\n%s", e.GetSeq(), e.GetKind(), e.GetTool(), e.GetInput(), e.GetText(), e.GetError(), e.GetYes(), e.GetDiff())
	}
	return b.String()
}

// killed has a role die, and waits for the next one.
func (v *conversation) killed(pid int) {
	v.t.Helper()
	proctest.Must(v.t, syscall.Kill(pid, syscall.SIGKILL))
	if !v.d.Settle(v.t.Context()) {
		v.t.Fatalf("not all roles came back: %v", v.d.Roles())
	}
}

// labelled is the pid of a live process with a label; 0: there is none.
func labelled(t *testing.T, d *daemon, label string) (pid int) {
	t.Helper()
	cl := d.Connect(t)
	all, err := cl.List(t.Context(), process.Filter{Live: true})
	for _, in := range all {
		if err == nil && in.Spec.Labels[label] != "" && in.PID > 0 {
			pid = in.PID
		}
	}
	return pid
}

func call(name string, input any) any { return map[string]any{"tool": name, "input": input} }

type m = map[string]any

// A conversation continues where it was, whoever dies and whenever: while the model writes, while
// a command of its runs, which is not run twice, and while it waits for the person.
func TestAChatOutlivesDeaths(t *testing.T) {
	t.Parallel()
	heard, ran := filepath.Join(t.TempDir(), "heard"), filepath.Join(t.TempDir(), "ran")
	url := model(t,
		m{"name": "command", "expect": []string{"mend it"}, "expect_tools": []string{"log", "exec"}, "faults": []any{m{"kind": "slow", "after": 8, "until": heard}},
			"reply": []any{m{"text": "I look at the part, since it may be bad. " + strings.Repeat("Thinking aloud. ", 12)}, call("exec", m{"command": "echo ran >> made.txt; echo other >> other.txt; echo running; sleep 4"})}},
		m{"name": "protected", "expect": []string{"running", "[exit 0]"}, "forbid": []string{modelKey}, "reply": []any{call("edit", m{"path": "engine/core.js", "old": "core", "new": "mended"})}},
		m{"name": "outside", "expect": []string{"engine/core.js: changed"}, "reply": []any{call("list", m{"path": "."}), call("exec", m{"command": "echo outside > " + ran, "outside": true}), call("read", m{"path": "part.txt"})}},
		m{"name": "done", "expect": []string{"not allowed", "good"}, "reply": []any{m{"text": "It is mended."}}},
		m{"name": "more", "expect": []string{"and again"}, "reply": []any{call("exec", m{"command": "echo twice >> made.txt; sleep 1000"})}},
		m{"name": "broken off", "expect": []string{"broken off"}, "reply": []any{m{"text": "I leave it."}}},
	)
	d := serve(t)
	p := newProject(t, "true\n")
	p.write("engine/core.js", "core\n")
	v := converse(t, d, p, url, ", protected: ['engine/**']")
	server := func() int { return d.Roles()[testdaemon.Server] }

	v.say("mend it")
	v.until("the model writes", func() bool { return strings.Contains(v.words, "I look at the part") })
	v.killed(server())
	proctest.Must(t, os.WriteFile(heard, nil, 0o600))
	proctest.Eventually(t, "a command runs", func() bool { return labelled(t, d, "tend.heal.command") > 0 })
	if _, err := d.Connect(t).Heal(t.Context(), "", false); err == nil || !strings.Contains(err.Error(), "a chat works on it") {
		t.Errorf("a repair beside it: %v", err)
	}
	v.killed(server())
	v.until("it asks for the protected file", v.asks)
	if q := v.last("question"); !strings.Contains(q.GetText(), p.dir+"/engine/core.js") || !strings.Contains(q.GetText(), "protected") || p.read("engine/core.js") != "core\n" {
		t.Errorf("the question is %v, and the file %q", q, p.read("engine/core.js"))
	}
	if got := p.read("made.txt"); got != "ran\n" {
		t.Errorf("the command has made %q", got)
	}
	if got := p.read("other.txt"); got != "one\ntwo, which the user is about to write\nother\n" {
		t.Errorf("the command has made %q of other.txt", got)
	}
	v.killed(server())
	first := v.chat.GetQuestion()
	proctest.Must(t, v.answerTo(first, true))
	proctest.Must(t, v.answerTo(first, true)) // a client that repeats itself
	v.until("it asks for a command outside", func() bool {
		return v.asks() && strings.Contains(v.last("question").GetText(), "outside of its confinement")
	})
	proctest.Must(t, v.answerTo(first, true)) // and does so late
	if err := v.answerTo(first, false); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("another answer to what was answered: %v", err)
	}
	if got := p.read("engine/core.js"); got != "mended\n" {
		t.Errorf("what was allowed is %q", got)
	}
	proctest.Must(t, v.answer(false))
	v.until("it is over", v.over)
	v.until("nothing is being written, for one who comes back", func() bool { return v.words == "" })
	if _, err := os.Lstat(ran); err == nil || v.last("end").GetText() != "" || v.last("reply").GetText() != "It is mended." {
		t.Errorf("what was not allowed was run (%v), or the end is %v\n%s", err, v.last("end"), v.story())
	}
	if v.chat.GetTokensRead() == 0 || v.chat.GetCost() == 0 {
		t.Errorf("it has used %v", v.chat)
	}
	for what, want := range map[string]string{"the command's": "+ran", "the edit's": "+mended"} {
		if !strings.Contains(v.story(), want) {
			t.Errorf("%s diff is not there:\n%s", what, v.story())
		}
	}
	if !strings.Contains(v.story(), "other.txt: your uncommitted version") {
		t.Errorf("it is not said where the user's version is:\n%s", v.story())
	}
	// The worker dies, too: what it ran ends with it, and is not run again.
	v.say("and again")
	proctest.Eventually(t, "a command runs", func() bool { return labelled(t, d, "tend.heal.command") > 0 })
	proctest.Must(t, syscall.Kill(labelled(t, d, "tend.chat"), syscall.SIGKILL))
	v.until("it is over", func() bool { return v.over() && v.last("said").GetText() == "and again" })
	if got := p.read("made.txt"); got != "ran\n" || v.last("reply").GetText() != "I leave it." {
		t.Errorf("of a command that was broken off there is %q\n%s", got, v.story())
	}
	proctest.Eventually(t, "nothing of it lives", func() bool {
		return labelled(t, d, "tend.heal.command")+labelled(t, d, "tend.chat") == 0
	})
	points := filepath.Join(d.StateDir(), "healing", "chats", v.chat.GetId(), "points")
	taken := func() []string {
		return proctest.Value(filepath.Glob(filepath.Join(points, "*", checkpoint.StoreDir)))(t)
	}
	proctest.Eventually(t, "no checkpoint is left", func() bool { return len(taken()) == 0 })

	// Clearing it leaves nothing of what a worker that was killed has left, and the copy that was named.
	proctest.Must(t, proctest.Value(checkpoint.Take(t.Context(), checkpoint.Options{Root: p.dir, Dir: filepath.Join(points, "100"), ID: v.chat.GetId() + "-100"}))(t).Close())
	proctest.Value(v.c.Clear(t.Context(), connect.NewRequest(&tendv1.ClearChatRequest{})))(t)
	if left := taken(); len(left) > 0 {
		t.Errorf("these checkpoints are left: %s", left)
	}
	if list := proctest.Value(v.c.List(t.Context(), connect.NewRequest(&tendv1.ListChatsRequest{})))(t); len(list.Msg.GetChats()) != 0 {
		t.Errorf("there are %v", list.Msg)
	}
	copies := proctest.Value(filepath.Glob(filepath.Join(points, "*", checkpoint.KeptDir, "*", "other.txt")))(t)
	if len(copies) != 1 || !strings.Contains(v.story(), copies[0]) || !strings.HasSuffix(string(proctest.Value(os.ReadFile(copies[0]))(t)), "about to write\n") {
		t.Errorf("of the user's version there are the copies %q\n%s", copies, v.story())
	}
	if left := proctest.Value(os.ReadDir(filepath.Dir(points)))(t); len(left) != 2 {
		t.Errorf("of the chat there are %v", left)
	}
}

// What a model wants beyond its guards it gets from nobody but the person, keys from nobody at
// all; and what it does in one turn has an end.
func TestAHostileModelOfAChat(t *testing.T) {
	t.Parallel()
	url := model(t,
		m{"name": "never", "expect": []string{"hello"}, "reply": []any{
			call("edit", m{"path": ".git/config", "content": "x"}), call("read", m{"path": "key.pem"}), call("read", m{"path": "/proc/self/environ"}),
			call("edit", m{"path": "../../../../../../../../etc/passwd", "content": strings.Repeat("x", 40<<10)})}},
		m{"name": "escape", "expect": []string{"belongs to git", "keys and logins", "nobody can allow it", "make a smaller one"}, "reply": []any{call("read", m{"path": "../../../../../../../../etc/hostname"})}},
		m{"name": "endless 1", "expect": []string{"the person has not allowed it"}, "expect_not": []string{"zz"}, "reply": []any{call("list", m{"path": "."})}},
		m{"name": "endless 2", "expect": []string{"part.txt"}, "reply": []any{call("search", m{"pattern": "a"})}},
		m{"name": "endless 3", "repeat": true, "reply": []any{call("read", m{"path": "part.txt"})}},
	)
	d := serve(t)
	p := newProject(t, "true\n")
	p.write("key.pem", "secret\n")
	v := converse(t, d, p, url, ", steps: 5")
	config := p.read(".git/config")
	v.say("hello")
	v.until("it asks", v.asks)
	if q := v.last("question"); q.GetText() != "read /etc/hostname: it leads out of the project" {
		t.Errorf("it asks %v\n%s", q, v.story())
	}
	// One who says no with two voices is taken at the first word.
	proctest.Must(t, v.answer(false))
	if err := v.answer(true); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("another answer: %v", err)
	}
	v.until("it is over", v.over)
	if end := v.last("end"); !end.GetError() || !strings.Contains(end.GetText(), "one turn may use (steps)") {
		t.Errorf("it ends with %v\n%s", end, v.story())
	}
	if p.read(".git/config") != config || strings.Contains(v.story(), "secret\n") {
		t.Errorf("it got what it wanted\n%s", v.story())
	}
	v.say("hello again")
	v.until("the next turn has an end, too", func() bool { return v.over() && v.last("said").GetText() == "hello again" })
	if end := v.last("end"); !end.GetError() {
		t.Errorf("it ends with %v", end)
	}
}

// Whatever a client sends, the chat stays one, and what is refused says why.
func TestAHostileClientOfAChat(t *testing.T) {
	t.Parallel()
	url := model(t, m{"name": "long", "repeat": true, "faults": []any{m{"kind": "slow", "after": 1, "until": filepath.Join(t.TempDir(), "never"), "times": 1000}}, "reply": []any{m{"text": "I never end."}}})
	d := serve(t)
	v := converse(t, d, newProject(t, "true\n"), url, "")
	refused := func(what string, err error, code connect.Code, says string) {
		t.Helper()
		if connect.CodeOf(err) != code || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	send := func(m *tendv1.SendChatRequest) error {
		_, err := v.c.Send(t.Context(), connect.NewRequest(m))
		return err
	}
	refused("a giant message", send(&tendv1.SendChatRequest{Text: strings.Repeat("x", 1<<20)}), connect.CodeInvalidArgument, "text has 1048576 bytes; the limit is 32768")
	refused("no message", send(&tendv1.SendChatRequest{Text: " \n"}), connect.CodeInvalidArgument, "text")
	refused("another service", send(&tendv1.SendChatRequest{Service: "db", Text: "x"}), connect.CodeInvalidArgument, "service")
	refused("an ID that is none", send(&tendv1.SendChatRequest{Id: strings.Repeat("x", 65), Text: "x"}), connect.CodeInvalidArgument, "id")
	_, err := v.c.Answer(t.Context(), connect.NewRequest(&tendv1.AnswerChatRequest{Question: 7, Yes: true}))
	refused("an answer to nobody", err, connect.CodeNotFound, "no chat")

	var all sync.WaitGroup
	var taken, busy, other int
	var mu sync.Mutex
	for n := range 1000 {
		all.Go(func() {
			err := send(&tendv1.SendChatRequest{Text: "one of many", Id: fmt.Sprint(n)})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				taken++
			case connect.CodeOf(err) == connect.CodeFailedPrecondition:
				busy++
			default:
				other++
				t.Log(err)
			}
		})
	}
	all.Wait()
	if taken != 1 || busy != 999 {
		t.Errorf("of 1,000 messages at once %d were taken, %d refused, and of %d something else became", taken, busy, other)
	}
	v.until("it works", func() bool { return v.chat.GetState() == tendv1.ChatState_CHAT_STATE_WORKING && len(v.entries) > 0 })
	follow := func(m *tendv1.FollowChatRequest) error {
		s := proctest.Value(v.c.Follow(t.Context(), connect.NewRequest(m)))(t)
		defer s.Close()
		for s.Receive() {
			if s.Msg().GetChat() != nil {
				return nil
			}
		}
		return s.Err()
	}
	refused("a number beyond the end", follow(&tendv1.FollowChatRequest{Chat: v.chat.GetId(), After: 1 << 40}), connect.CodeInvalidArgument, "after")
	refused("a number before the beginning", follow(&tendv1.FollowChatRequest{After: -1}), connect.CodeInvalidArgument, "after")
	proctest.Must(t, follow(&tendv1.FollowChatRequest{Chat: "../../etc", After: 3})) // it is not there: the one that is
	_, err = v.c.Clear(t.Context(), connect.NewRequest(&tendv1.ClearChatRequest{}))
	refused("to clear it now", err, connect.CodeFailedPrecondition, "stop it first")

	for range 3 {
		proctest.Value(v.c.Stop(t.Context(), connect.NewRequest(&tendv1.StopChatRequest{})))(t)
	}
	v.until("it is stopped", v.over)
	if end := v.last("end"); end.GetText() != "stopped" || end.GetError() {
		t.Errorf("it ends with %v", end)
	}
	proctest.Value(v.c.Clear(t.Context(), connect.NewRequest(&tendv1.ClearChatRequest{Chat: v.chat.GetId()})))(t)
	v.until("whoever looks on sees that", func() bool { return v.chat.GetId() == "" })
	if list := proctest.Value(v.c.List(t.Context(), connect.NewRequest(&tendv1.ListChatsRequest{})))(t); len(list.Msg.GetChats()) != 0 {
		t.Errorf("there are %v", list.Msg)
	}
}
