//go:build linux

package limits

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// finish writes what n finished processes leave in a spool.
func finish(t *testing.T, root string, n int, labels map[string]string) {
	t.Helper()
	proctest.Must(t, os.Mkdir(root, 0o700))
	begun := time.Now().Add(-time.Hour)
	for i := range n {
		s := process.Spec{ID: process.ID(fmt.Sprintf("old-%05d", i)), Argv: []string{"/bin/sh", "-c", "echo " + strings.Repeat("x", 50)}, Labels: labels}
		at := begun.Add(time.Duration(i) * time.Millisecond)
		dir := proctest.Value(spool.CreateDir(root, s.ID))(t)
		b := spool.AppendSpec(nil, at, &s)
		b = spool.AppendStarted(b, at, spool.Started{PID: 1 << 22})
		b = spool.AppendExited(b, at, &process.Exit{Code: 3, Time: at})
		b = spool.AppendTreeGone(b, at)
		proctest.Must(t, os.WriteFile(filepath.Join(dir, spool.JournalName), b, 0o600))
	}
}

// inSpool is a shell line that takes a spool which was made before.
func inSpool(root string) string { return "mkdir -p $state; mv " + root + " $state/spool" }

func wantOld(t *testing.T, infos []process.Info, n int) {
	t.Helper()
	if len(infos) != n {
		t.Fatalf("List shows %d processes, want %d", len(infos), n)
	}
	for i := range infos {
		if want := fmt.Sprintf("old-%05d", i); string(infos[i].ID) != want || infos[i].Exit == nil || infos[i].Exit.Code != 3 {
			t.Fatalf("at %d: %s with exit %v, want %s", i, infos[i].ID, infos[i].Exit, want)
		}
	}
}

func TestTenThousandFinishedProcessesAreListed(t *testing.T) {
	const n = 10_000
	root := filepath.Join(t.TempDir(), "spool")
	finish(t, root, n, nil)
	begun := time.Now()
	d := serve(t, inSpool(root))
	t.Logf("serving after %v", time.Since(begun))
	for range 3 {
		begun = time.Now()
		infos := proctest.Value(d.c.List(t.Context(), process.Filter{}))(t)
		t.Logf("native List: %v", time.Since(begun))
		wantOld(t, infos, n)
	}
	begun = time.Now()
	out, err := exec.CommandContext(t.Context(), bin, "--url", d.URL, "ps", "--all", "--quiet").Output()
	if err != nil || bytes.Count(out, []byte("\n")) != n {
		t.Errorf("tend ps shows %d lines, %v", bytes.Count(out, []byte("\n")), err)
	}
	t.Logf("tend ps: %v", time.Since(begun))
	// Twice what was measured.
	const most = 200 << 20
	if got := d.memory("server", "VmHWM"); got > most {
		t.Errorf("the server took %d MiB; at most %d", got>>20, most>>20)
	} else {
		t.Logf("server: at most %d MiB", got>>20)
	}
}

// Specs may be large; answers are not.
func TestAnAnswerOfListIsBounded(t *testing.T) {
	const n, label = 24, 64 << 10
	labels := map[string]string{}
	for i := range 30 {
		labels[fmt.Sprint("large-", i)] = strings.Repeat("y", label)
	}
	root := filepath.Join(t.TempDir(), "spool")
	finish(t, root, n, labels)
	d := serve(t, inSpool(root))
	infos := proctest.Value(d.c.List(t.Context(), process.Filter{}))(t)
	wantOld(t, infos, n)
	for i := range infos {
		if len(infos[i].Spec.Labels) != len(labels) {
			t.Fatalf("%s has %d labels, want %d", infos[i].ID, len(infos[i].Spec.Labels), len(labels))
		}
	}
	seen, answers := 0, 0
	for after := ""; ; answers++ {
		size, ids, next := d.list(after)
		if most := 4<<20 + 64<<10; size > most {
			t.Fatalf("an answer of %d bytes; at most %d", size, most)
		}
		if answers == 1 {
			// The place is found though its process is removed.
			p, err := d.c.Get(t.Context(), process.Selector{ID: process.ID(ids[len(ids)-1])})
			if err == nil {
				err = p.Remove(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range ids {
			if want := fmt.Sprintf("old-%05d", seen); id != want {
				t.Fatalf("%s, want %s", id, want)
			}
			seen++
		}
		if after = next; next == "" {
			break
		}
	}
	if seen != n || answers < 5 {
		t.Errorf("%d processes in %d answers", seen, answers)
	}
	if status, text := d.Post(t, "/tend.v1.ProcessService/List", `{"after":"nowhere"}`); status != http.StatusBadRequest {
		t.Errorf("a place that no answer gave is answered with %d %s", status, text)
	}
}

// list asks for one answer, in JSON, and returns its length too.
func (d *daemon) list(after string) (size int, ids []string, next string) {
	d.t.Helper()
	status, text := d.Post(d.t, "/tend.v1.ProcessService/List", fmt.Sprintf(`{"after":%q}`, after))
	var m struct {
		Processes []struct{ ID string }
		Next      string
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil || status != http.StatusOK {
		d.t.Fatalf("%d: %v: %.200s", status, err, text)
	}
	for _, p := range m.Processes {
		ids = append(ids, p.ID)
	}
	return len(text), ids, m.Next
}
