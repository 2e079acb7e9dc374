//go:build linux

package limits

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// lay are what a file of the spool may be replaced by.
var lay = map[string]func(path string) error{
	"fifo":   func(path string) error { return unix.Mkfifo(path, 0o600) },
	"link":   func(path string) error { return os.Symlink("/dev/zero", path) },
	"dir":    func(path string) error { return os.MkdirAll(filepath.Join(path, "full"), 0o700) },
	"socket": func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
	"hole": func(path string) error {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		return f.Truncate(1 << 40)
	},
	"empty":   func(path string) error { return os.WriteFile(path, nil, 0o600) },
	"garbage": func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("garbage ", 500)), 0o600) },
	"locked":  func(path string) error { return os.WriteFile(path, []byte("secret"), 0) },
	"foreign": func(path string) error {
		err := os.WriteFile(path, []byte("theirs"), 0o644)
		if err == nil && os.Geteuid() == 0 {
			err = os.Chown(path, 12345, 12345)
		}
		return err
	},
}

// A process whose files are damaged is listed as damaged, and can be read and
// removed. It blocks neither the start of the daemon nor a list.
func TestDamagedFilesConcernTheirProcessAlone(t *testing.T) {
	root := filepath.Join(t.TempDir(), "spool")
	finish(t, root, 1, nil) // the one that is whole: old-00000
	at := time.Now().Add(-time.Minute)
	files := []string{spool.JournalName, spool.IndexName, spool.FileName(process.Stdout), spool.FileName(process.Stderr)}
	n := 0
	for _, name := range files {
		for damage, put := range lay {
			id := process.ID(fmt.Sprintf("%s-%s", name, damage))
			dir := proctest.Value(spool.CreateDir(root, id))(t)
			b := spool.AppendSpec(nil, at, &process.Spec{ID: id, Shell: "true"})
			b = spool.AppendStarted(b, at, spool.Started{PID: 1 << 22})
			b = spool.AppendExited(b, at, &process.Exit{Code: 3, Time: at})
			b = spool.AppendEOF(b, at, process.Stdout, 6)
			b = spool.AppendEOF(b, at, process.Stderr, 6)
			for file, data := range map[string][]byte{files[0]: b, files[2]: []byte("hello\n"), files[3]: []byte("error\n")} {
				proctest.Must(t, os.WriteFile(filepath.Join(dir, file), data, 0o600))
			}
			path := filepath.Join(dir, name)
			if damage != "hole" || name == spool.JournalName {
				proctest.Must(t, os.RemoveAll(path))
			}
			proctest.Must(t, put(path))
			n++
		}
	}
	d := serve(t, inSpool(root))
	tend := func(args ...string) (string, error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, bin, append([]string{"--url", d.URL}, args...)...).CombinedOutput()
		if ctx.Err() != nil {
			t.Fatalf("tend %v does not come back", args)
		}
		return string(out), err
	}
	out, err := tend("ps", "--all", "--json")
	if err != nil {
		t.Fatalf("tend ps: %v\n%s", err, out)
	}
	type facts struct {
		ID      process.ID `json:"id"`
		Damaged string     `json:"damaged"`
		Exit    *struct{ Status int }
	}
	known := map[process.ID]facts{}
	for dec := json.NewDecoder(strings.NewReader(out)); dec.More(); {
		var one facts
		var all []facts
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if json.Unmarshal(raw, &all) != nil {
			proctest.Must(t, json.Unmarshal(raw, &one))
			all = []facts{one}
		}
		for _, f := range all {
			known[f.ID] = f
		}
	}
	if len(known) != n+1 {
		t.Errorf("%d processes are shown; there are %d", len(known), n+1)
	}
	for _, name := range files {
		for damage := range lay {
			id := process.ID(fmt.Sprintf("%s-%s", name, damage))
			f, ok := known[id]
			if !ok {
				t.Errorf("%s is not shown", id)
				continue
			}
			// An index that says nothing is as good as none, and root opens what has
			// no mode: the bytes are all there.
			quiet := name == spool.IndexName && (damage == "empty" || damage == "garbage" || damage == "hole") ||
				name != spool.JournalName && damage == "locked" && os.Geteuid() == 0
			if (f.Damaged == "") != quiet {
				t.Errorf("%s is told as damaged: %q", id, f.Damaged)
			}
			if name != spool.JournalName && (f.Exit == nil || f.Exit.Status != 3) {
				t.Errorf("the exit of %s is %+v", id, f.Exit)
			}
			out, err := tend("logs", string(id))
			switch {
			case name == spool.JournalName:
				if err == nil {
					t.Errorf("logs of %s: nothing is wrong, and %q", id, out)
				}
			case name == spool.IndexName:
				if err != nil || !strings.Contains(out, "hello") || !strings.Contains(out, "error") {
					t.Errorf("logs of %s: %q, %v", id, out, err)
				}
			case name == spool.FileName(process.Stderr):
				if !strings.Contains(out, "hello") {
					t.Errorf("logs of %s: %q, %v", id, out, err)
				}
			}
			if out, err := tend("rm", string(id)); err != nil {
				t.Errorf("rm %s: %v, %s", id, err, out)
			}
		}
	}
	infos := proctest.Value(d.c.List(t.Context(), process.Filter{}))(t)
	wantOld(t, infos, 1)
	if p, err := d.c.Start(t.Context(), process.Spec{Shell: "echo on"}); err != nil {
		t.Error(err)
	} else if text, _, err := collect(t.Context(), p); err != nil || text != "on\n" {
		t.Errorf("a new process wrote %q, %v", text, err)
	}
}
