//go:build linux

package cli

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/creack/pty"
	"google.golang.org/protobuf/types/known/timestamppb"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/support/proctest"
)

// answers runs "tend complete" as a script does.
func answers(t *testing.T, words ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	inv := &invocation{out: &out, errs: &errs, getenv: func(string) string { return "" }}
	if status := execute(t.Context(), inv, append([]string{"--state-dir", t.TempDir(), "complete", "bash", "--"}, words...)); status != 0 {
		t.Fatalf("tend complete %q: %d %s", words, status, errs.String())
	}
	return out.String()
}

func TestCompletionKnowsTheGrammar(t *testing.T) {
	for _, tt := range []struct {
		words []string // the last one is being typed
		want  []string // among the answers
		never []string
	}{
		{[]string{"st"}, []string{"status\t", "stop\t"}, []string{"serve"}},
		{[]string{""}, []string{"run\t", "ps\t", "logs\t", "man\t"}, []string{"server\t", "payload", "complete\t"}},
		{[]string{"run", "--na"}, []string{"--name\t"}, []string{"--no-input"}},
		{[]string{"--url", "x", "logs", "--ta"}, []string{"--tail\t"}, nil},
		{[]string{"--url=x", "logs", "-"}, []string{"--tail\t", "-n\t", "--json\t"}, nil},
		{[]string{"completion", ""}, []string{"bash\t", "zsh\t", "fish\t"}, nil},
		{[]string{"run", "--cwd", ""}, []string{":dirs"}, []string{"--"}},
		{[]string{"run", "--env-file=", ""}, []string{":program"}, nil},
		{[]string{"run", "--env-file", "x"}, []string{":files"}, nil},
		{[]string{"run", "-d", "--name", "x", ""}, []string{":program\t4"}, nil},
		{[]string{"run", "--", "npm", "ru"}, []string{":program\t2"}, nil},
		{[]string{"run", "npm", "--ver"}, []string{":program\t1"}, []string{"--version"}},
		{[]string{"distant", "li"}, []string{"lines\t", "listen\t"}, nil},
		{[]string{"distant", "listen", "--sh"}, []string{"--shutdown\t"}, nil},
		{[]string{"wait", "--until", "m"}, []string{"match=\t", ":nospace"}, []string{"exit"}},
		{[]string{"wait", "--until=m"}, []string{"--until=match=\t", ":nospace"}, nil},
		{[]string{"ls", "--filter", ""}, []string{"name=\t", "status=\t"}, nil},
		{[]string{"nonsense", ""}, nil, []string{"\t"}},
		{[]string{"version", ""}, nil, []string{"\t"}},
	} {
		got := answers(t, tt.words...)
		for _, w := range tt.want {
			if !strings.Contains("\n"+got, "\n"+w) {
				t.Errorf("tend %q: got %q; want %q among them", tt.words, got, w)
			}
		}
		for _, w := range tt.never {
			if strings.Contains("\n"+got, "\n"+w) {
				t.Errorf("tend %q: got %q, with %q among them", tt.words, got, w)
			}
		}
	}
}

// hostile is a daemon that says what it should not.
type hostile struct {
	tendv1connect.UnimplementedProcessServiceHandler
	ids, names []string
}

func (h *hostile) Hello(context.Context, *connect.Request[tendv1.HelloRequest]) (*connect.Response[tendv1.HelloResponse], error) {
	return connect.NewResponse(&tendv1.HelloResponse{}), nil
}

func (h *hostile) List(context.Context, *connect.Request[tendv1.ListRequest]) (*connect.Response[tendv1.ListResponse], error) {
	resp := &tendv1.ListResponse{}
	for i := range max(len(h.ids), len(h.names)) {
		info := &tendv1.Info{
			Id: fmt.Sprintf("01kaha0000aaaaaaaaaaaaaa%02d", i), Pid: uint32(100 + i), Started: timestamppb.Now(),
			Spec: &tendv1.Spec{Argv: []string{"sleep\x1b]0;title\x07\u009b31m", "\x1b[2J\r\nx"}},
		}
		if i < len(h.ids) {
			info.Id = h.ids[i]
		}
		if i < len(h.names) {
			info.Spec.Name = h.names[i]
		}
		resp.Processes = append(resp.Processes, info)
	}
	return connect.NewResponse(resp), nil
}

func (h *hostile) Get(context.Context, *connect.Request[tendv1.GetRequest]) (*connect.Response[tendv1.GetResponse], error) {
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("gone\x1b[31m\u202e\ntend: all is well"))
}

// serveHostile serves h and returns its URL.
func serveHostile(t *testing.T, h *hostile) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(tendv1connect.NewProcessServiceHandler(h))
	l := proctest.Value(net.Listen("tcp", "127.0.0.1:0"))(t)
	srv := &http.Server{Handler: mux, Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() { defer close(done); srv.Serve(l) }()
	t.Cleanup(func() { srv.Close(); <-done })
	return "http://" + l.Addr().String()
}

// attacks are words that some shell executes, expands, or takes for a flag or a
// line of its own; %s is a file that then appears.
var attacks = []string{
	"$(touch %s)", "`touch %s`", "x;touch %s", "x|touch %s", "x&touch %s", "a$(touch${IFS}%s)", "'$(touch %s)'", "\"$(touch %s)\"",
	"x\ntouch %s", "a[$(touch %s)]", "${x:=$(touch %s)}", "(touch %s)", "<(touch %s)", "=(touch %s)", "{a,$(touch %s)}", "*", "~", "--url=evil",
	":files", ":program\t1", "x\t$(touch %s)", "\x1b[31mred", "a\x07b", "\u009b2J", "a\u202eb", "x\\$(touch %s)", "%%(e:touch %s:)", "x(touch %s)",
}

func attacksOn(file string) (all []string) {
	for _, a := range attacks {
		if strings.Contains(a, "%s") {
			a = fmt.Sprintf(a, file)
		}
		all = append(all, a)
	}
	return all
}

// shells that complete here. scripts/test installs those that are missing, and
// then sets TEND_TEST_TOOLS, by which each has to be there.
func shells(t *testing.T) (found []string) {
	for _, name := range []string{"bash", "zsh", "fish"} {
		if _, err := exec.LookPath(name); err == nil {
			found = append(found, name)
		} else if name == "bash" || os.Getenv("TEND_TEST_TOOLS") == "all" {
			t.Errorf("%s is not installed: scripts/install %s=%s", name, name, name)
		}
	}
	return found
}

// session is a shell on a terminal, as a person has it, with completion.
func session(t *testing.T, shell, path string, env ...string) (typed func(keys string), shown func() string) {
	t.Helper()
	var cmd *exec.Cmd
	switch shell {
	case "bash":
		cmd = exec.Command("bash", "--norc", "--noprofile", "-i")
	case "zsh":
		cmd = exec.Command("zsh", "-f", "-i")
	case "fish":
		cmd = exec.Command("fish", "--no-config", "-i")
	}
	cmd.Env = append([]string{"PATH=" + path, "HOME=" + t.TempDir(), "TERM=dumb", "PS1=$ ", "LANG=C.UTF-8"}, env...)
	keys := proctest.Value(pty.StartWithSize(cmd, &pty.Winsize{Cols: 200, Rows: 50}))(t)
	x := &terminal{cmd: cmd, keys: keys, end: make(chan struct{})}
	x.start(t)
	t.Cleanup(func() {
		x.close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	return func(keys string) { x.typeKeys(t, keys) }, x.text
}

// TestNothingThatADaemonSendsIsExecutedByTheTabKey: in no shell, whether the
// words come by a daemon, or, past all that tend itself checks, from the program
// that the scripts ask.
func TestNothingThatADaemonSendsIsExecutedByTheTabKey(t *testing.T) {
	for _, shell := range shells(t) {
		for _, from := range []string{"ids of a daemon", "names of a daemon", "words of the program"} {
			t.Run(shell+": "+from, func(t *testing.T) {
				dir := t.TempDir()
				file := filepath.Join(dir, "executed")
				path := binaries + string(os.PathListSeparator) + os.Getenv("PATH")
				h := &hostile{}
				switch words := append(attacksOn(file), "xgood1", "xgood2"); from {
				case "ids of a daemon":
					h.ids = words
				case "names of a daemon":
					h.names = words
				default:
					// A tend that has none of tend's care.
					fake := filepath.Join(dir, "bin")
					proctest.Must(t, os.Mkdir(fake, 0o755))
					script := "#!/bin/sh\n[ \"$1\" = complete ] || exec " + filepath.Join(binaries, "tend") + " \"$@\"\ncat <<'EOF'\n" +
						strings.Join(slices.DeleteFunc(words, func(w string) bool { return w[0] == ':' }), "\n") + "\nEOF\n"
					proctest.Must(t, os.WriteFile(filepath.Join(fake, "tend"), []byte(script), 0o755))
					path = fake + string(os.PathListSeparator) + path
				}
				typed, shown := session(t, shell, path, "TEND_URL="+serveHostile(t, h))
				loadCompletion(t, shell, typed, shown)
				// What is offered may be printed, inserted, or cycled through.
				for range 3 {
					typed("tend kill \t\t\t\t")
					typed("\x15") // take the line away
				}
				typed("tend kill x\t\t\t")
				if from == "names of a daemon" {
					waitShown(t, shown, "xgood")
				}
				typed("\x15echo sta''ys\n")
				waitShown(t, shown, "stays")
				if _, err := os.Stat(file); err == nil {
					t.Errorf("a word was executed; the terminal shows %q", shown())
				}
			})
		}
	}
}

// loadCompletion loads tend's completion into a shell.
func loadCompletion(t *testing.T, shell string, typed func(string), shown func() string) {
	t.Helper()
	load := "source <(tend completion " + shell + ")"
	switch shell {
	case "zsh":
		load = "autoload -Uz compinit && compinit -D -u; " + load
	case "fish":
		load = "tend completion fish | source"
	}
	typed(load + "; echo lo''aded\n")
	waitShown(t, shown, "loaded")
}

// waitShown waits until a terminal has shown a text.
func waitShown(t *testing.T, shown func() string, text string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the terminal shows %q", shown())
		}
	}()
	proctest.Eventually(t, fmt.Sprintf("%q is shown", text), func() bool { return strings.Contains(shown(), text) })
}

// TestOnlyPlainWordsAreOffered of what a daemon sends.
func TestOnlyPlainWordsAreOffered(t *testing.T) {
	words := append(attacksOn("file"), "good")
	for _, h := range []*hostile{{ids: words}, {names: words}} {
		var out bytes.Buffer
		inv := &invocation{out: &out, errs: &out, getenv: func(string) string { return "" }}
		execute(t.Context(), inv, []string{"--url", serveHostile(t, h), "complete", "bash", "--", "kill", ""})
		for line := range strings.Lines(out.String()) {
			word, _, _ := strings.Cut(line, "\t")
			if strings.Trim(word, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
				t.Errorf("%q is offered", word)
			}
		}
		if h.names != nil && !strings.Contains(out.String(), "good\t") {
			t.Errorf("a plain name is not offered: %q", out.String())
		}
	}
}

// TestEachShellCompletes: a name that only one process has is put in.
func TestEachShellCompletes(t *testing.T) {
	for _, shell := range shells(t) {
		t.Run(shell, func(t *testing.T) {
			url := serveHostile(t, &hostile{names: []string{"lighthouse"}})
			typed, shown := session(t, shell, binaries+string(os.PathListSeparator)+os.Getenv("PATH"))
			loadCompletion(t, shell, typed, shown)
			typed("tend --url " + url + " logs li\t")
			waitShown(t, shown, "lighthouse")
			typed("\x15tend compl\t")
			waitShown(t, shown, "completion")
		})
	}
}

// TestNothingThatADaemonSaysActsOnTheTerminal: tables, errors and facts.
func TestNothingThatADaemonSaysActsOnTheTerminal(t *testing.T) {
	url := serveHostile(t, &hostile{names: []string{"a\x1b[31m\u202e\nb", "c\u009b2J\x7f"}})
	for _, args := range [][]string{
		{"ps"}, {"ps", "-q"}, {"ps", "--json"}, {"events"}, {"events", "--json"}, {"top"}, {"top", "--json"}, {"kill", "x"}, {"kill", "--json", "x"},
		{"logs", "x"}, {"wait", "x"}, {"status"}, {"status", "--json"}, {"ps", "--filter", "name=*"}, {"complete", "fish", "--", "logs", ""},
	} {
		var out, errs bytes.Buffer
		inv := &invocation{out: &out, errs: &errs, getenv: func(string) string { return "" }}
		execute(t.Context(), inv, append([]string{"--url", url}, args...))
		all := out.String() + errs.String()
		if all == "" {
			t.Errorf("tend %q prints nothing", args)
		}
		if i := strings.IndexFunc(all, func(r rune) bool {
			return r != '\n' && r != '\t' && (r < 0x20 || r >= 0x7f && r < 0xa0) || r == 0x202e && !slices.Contains(args, "--json")
		}); i >= 0 {
			t.Errorf("tend %q prints a control character: %q", args, all)
		}
		if strings.Contains(all, "\ntend: all is well") {
			t.Errorf("tend %q prints a message of the daemon as its own: %q", args, all)
		}
	}
}
