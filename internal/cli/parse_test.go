package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/view"
	"github.com/tend-run/tend/process"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "16KiB": 16 << 10, "16k": 16 << 10, "64MB": 64e6, "1.5GiB": 3 << 29, "2 MiB": 2 << 20, "7b": 7,
	} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "k", "-1", "1x", "1e9", "9999999TiB", "0x10", "1.2.3"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("parseSize(%q) = %d; want an error", text, got)
		}
	}
}

func TestParseAmountTellsLinesFromBytes(t *testing.T) {
	for text, want := range map[string]view.Amount{"10": {Lines: 10}, "0": {}, "16KiB": {Bytes: 16 << 10}, "10b": {Bytes: 10}} {
		if got, err := parseAmount(text); err != nil || got != want {
			t.Errorf("parseAmount(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"-1", "many"} {
		if _, err := parseAmount(text); err == nil {
			t.Errorf("parseAmount(%q) succeeded", text)
		}
	}
}

func TestParseSignal(t *testing.T) {
	for text, want := range map[string]int{"TERM": 15, "sigterm": 15, "9": 9, "SIGHUP": 1, "usr1": 10, "64": 64} {
		if got, err := parseSignal(text); err != nil || got != want {
			t.Errorf("parseSignal(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "-9", "65", "FOO"} {
		if _, err := parseSignal(text); err == nil {
			t.Errorf("parseSignal(%q) succeeded", text)
		}
	}
}

func TestParseUntil(t *testing.T) {
	for text, want := range map[string]process.Until{
		"exit": {}, "eof": {EOF: true}, "tree": {TreeGone: true}, "input": {Input: true},
		"quiet=2s": {Quiet: 2 * time.Second}, "quiet=0.5": {Quiet: 500 * time.Millisecond}, "port=3000": {Port: 3000},
		"match=a=b.*": {Match: "a=b.*"},
	} {
		if got, err := parseUntil(text); err != nil || got != want {
			t.Errorf("parseUntil(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "ready", "exit=1", "quiet", "quiet=-1s", "quiet=-1", "quiet=0", "quiet=NaN", "quiet=1e99", "port=0", "port=65536", "port=x", "match=", "match=("} {
		if _, err := parseUntil(text); err == nil {
			t.Errorf("parseUntil(%q) succeeded", text)
		}
	}
}

func TestFailuresOfRunHaveTheStatusesOfEnvAndNohup(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{&process.StartError{Reason: process.StartNotFound}, 127},
		{fmt.Errorf("start: %w", &process.StartError{Reason: process.StartPermission}), 126},
		{&process.StartError{Reason: process.StartFormat}, 126},
		{&process.StartError{Reason: process.StartBadDir}, 125},
		{process.ErrUnavailable, 125},
	} {
		var failed *runError
		if !errors.As(runFailure(tt.err), &failed) || failed.status != tt.want {
			t.Errorf("runFailure(%v) = %+v; want status %d", tt.err, failed, tt.want)
		}
	}
}

func TestStateTextSaysHowAProcessEnded(t *testing.T) {
	for want, exit := range map[string]*process.Exit{
		"running": nil, "exited 3": {Code: 3}, "exited SIGKILL": {Signal: 9, Cause: process.CauseKilled},
		"timeout": {Signal: 9, Cause: process.CauseTimeout}, "oom": {Signal: 9, Cause: process.CauseOOM}, "lost": {Code: -1, Cause: process.CauseShutdown},
	} {
		if got := stateText(&process.Info{Exit: exit}); got != want {
			t.Errorf("stateText(%+v) = %q; want %q", exit, got, want)
		}
	}
}

func TestIDPrefixTellsAllIDsApart(t *testing.T) {
	infos := func(ids ...process.ID) (all []process.Info) {
		for _, id := range ids {
			all = append(all, process.Info{ID: id})
		}
		return all
	}
	for _, tt := range []struct {
		infos []process.Info
		want  int
	}{
		{nil, 12},
		{infos("01kaha0000aaaaaaaaaaaaaaaa"), 12},
		{infos("01kaha0000aaaaaaaaaaaaaaaa", "web", "01kaha0000aaaaaaaabbbbbbbb"), 19},
	} {
		if got := idPrefix(tt.infos); got != tt.want {
			t.Errorf("idPrefix of %d ids = %d; want %d", len(tt.infos), got, tt.want)
		}
	}
}

func TestControlCharactersOfACommandDoNotReachTheTerminal(t *testing.T) {
	if got, want := printable("a\x1b[2Jb\nc\u009bd é"), `a\x1b[2Jb\nc\x9bd é`; got != want {
		t.Errorf("printable = %q; want %q", got, want)
	}
}

func TestServePlan(t *testing.T) {
	dir := t.TempDir()
	token := writeFile(t, dir, "token", "s3cret\n")
	plan := func(c serveCmd, passed ...string) (*plan, error) {
		if c.KeepFinished == 0 {
			c.KeepFinished = time.Hour // the parser sets a default
		}
		inv := &invocation{flags: &globals{StateDir: dir}, getenv: func(string) string { return "" }}
		return c.plan(inv, passed...)
	}
	for _, tt := range []struct {
		name string
		cmd  serveCmd
		want []string
	}{
		{"loopback and the socket in the state directory", serveCmd{Listen: []string{"127.0.0.1:0"}}, []string{"127.0.0.1:0", "unix:" + dir + "/tend.sock"}},
		{"the socket alone", serveCmd{Listen: []string{"none"}}, []string{"unix:" + dir + "/tend.sock"}},
		{"TCP alone", serveCmd{Listen: []string{"[::1]:8080"}, serveFlags: serveFlags{Socket: "none"}}, []string{"[::1]:8080"}},
		{"several addresses", serveCmd{Listen: []string{"127.0.0.1:1", "127.0.0.2:2"}, serveFlags: serveFlags{Socket: "/run/x.sock"}}, []string{"127.0.0.1:1", "127.0.0.2:2", "unix:/run/x.sock"}},
		{"everywhere with a token", serveCmd{Listen: []string{":80"}, serveFlags: serveFlags{TokenFile: token, Socket: "none"}}, []string{"0.0.0.0:80"}},
		{"everywhere, insecure", serveCmd{Listen: []string{"0.0.0.0:80"}, serveFlags: serveFlags{Insecure: true, Socket: "none"}}, []string{"0.0.0.0:80"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := proctest.Value(plan(tt.cmd))(t)
			if diff := cmp.Diff(tt.want, p.listen); diff != "" {
				t.Error(diff)
			}
		})
	}
	own := []string{"unix:/run/own.sock", "127.0.0.1:7"}
	if diff := cmp.Diff(own, proctest.Value(plan(serveCmd{}, own...))(t).listen); diff != "" {
		t.Errorf("what systemd passes is not served alone: %s", diff)
	}
	if diff := cmp.Diff(append(own, "127.0.0.1:8"), proctest.Value(plan(serveCmd{Listen: []string{"127.0.0.1:7", "127.0.0.1:8"}}, own...))(t).listen); diff != "" {
		t.Errorf("what is asked for beside it: %s", diff)
	}
	if p, err := plan(serveCmd{}, "0.0.0.0:80"); err == nil {
		t.Errorf("what systemd passes is served everywhere without a token: %+v", p)
	}
	for name, c := range map[string]serveCmd{
		"everywhere without a token":  {Listen: []string{":80"}},
		"no port":                     {Listen: []string{"127.0.0.1"}},
		"nobody could call":           {Listen: []string{"none"}, serveFlags: serveFlags{Socket: "none"}},
		"a missing token file":        {Listen: []string{"none"}, serveFlags: serveFlags{TokenFile: dir + "/none"}},
		"an empty token file":         {Listen: []string{"none"}, serveFlags: serveFlags{TokenFile: writeFile(t, dir, "empty", " \n")}},
		"two words of token":          {Listen: []string{"none"}, serveFlags: serveFlags{TokenFile: writeFile(t, dir, "two", "a b")}},
		"a relative workdir":          {Listen: []string{"none"}, serveFlags: serveFlags{DefaultWorkdir: "x"}},
		"a mirror that is no address": {Listen: []string{"none"}, serveFlags: serveFlags{ImageMirror: []string{"docker.io=mirror"}}},
		"no pattern of images":        {Listen: []string{"none"}, serveFlags: serveFlags{ImageShare: []string{"[a"}}},
		"showing the root":            {Listen: []string{"none"}, serveFlags: serveFlags{BasePath: []string{"/"}}},
		"showing what is not there":   {Listen: []string{"none"}, serveFlags: serveFlags{BasePath: []string{dir + "/none"}}},
		"showing a file":              {Listen: []string{"none"}, serveFlags: serveFlags{BasePath: []string{writeFile(t, dir, "shown", "x")}}},
		"a disk below the least":      {Listen: []string{"none"}, serveFlags: serveFlags{SandboxDisk: "15MiB"}},
		"images below the least":      {Listen: []string{"none"}, serveFlags: serveFlags{ImagesMax: "15MiB"}},
		"a volume below the least":    {Listen: []string{"none"}, serveFlags: serveFlags{VolumeDisk: "15MiB"}},
		"a disk beyond the most":      {Listen: []string{"none"}, serveFlags: serveFlags{SandboxDisk: "65TiB"}},
		"a budget of nothing":         {Listen: []string{"none"}, serveFlags: serveFlags{SpoolBudget: "0"}},
		"a budget below the least":    {Listen: []string{"none"}, serveFlags: serveFlags{SpoolBudget: "63MiB"}},
		"a budget beyond the most":    {Listen: []string{"none"}, serveFlags: serveFlags{SpoolBudget: "2000TiB"}},
		"a budget that is no size":    {Listen: []string{"none"}, serveFlags: serveFlags{SpoolBudget: "1GiBi"}},
		"keeping for less than none":  {Listen: []string{"none"}, serveFlags: serveFlags{KeepFinished: -time.Second}},
		"keeping for centuries":       {Listen: []string{"none"}, serveFlags: serveFlags{KeepFinished: 20 * 365 * 24 * time.Hour}},
		"a long socket path":          {Listen: []string{"none"}, serveFlags: serveFlags{Socket: "/" + string(make([]byte, 120))}},
	} {
		if p, err := plan(c); err == nil {
			t.Errorf("%s: the plan is %+v; want an error", name, p)
		}
	}
}

func TestSignalsThatEndTheWaitForALock(t *testing.T) {
	path := t.TempDir() + "/lock"
	unlock := proctest.Value(atomicfile.Lock(t.Context(), path))(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := atomicfile.Lock(ended, path); !errors.Is(err, context.Canceled) {
		t.Errorf("lock of a held file under an ended context = %v", err)
	}
	unlock()
	again := proctest.Value(atomicfile.Lock(t.Context(), path))(t)
	again()
}
