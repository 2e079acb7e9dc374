//go:build linux

package cli

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
)

// Whatever lies in place of a file of the daemon's own, tend serve waits for none
// of it and reads no more than such a file has: it starts, or names the file.
func TestServeStartsWhateverLiesInPlaceOfItsFiles(t *testing.T) {
	t.Parallel()
	template := filepath.Join(t.TempDir(), "template")
	serveOnce(t, template, "", func() {
		if _, errs, status := poorTend(t, template, "run", "--", "true"); status != 0 {
			t.Fatal(errs)
		}
	})
	var names []string
	err := filepath.WalkDir(template, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(template, path)
		switch {
		case err != nil:
			return err
		case name == "spool":
			return fs.SkipDir
		case d.Type().IsRegular():
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, more := range []string{"run/server.argv", "run/server.argv.new", "run/roles.new", "run/orphans", "run/server.trouble", "identity.new", "url"} {
		if !slices.Contains(names, more) {
			names = append(names, more)
		}
	}
	for kind, put := range map[string]func(path, victim string) error{
		"fifo": func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
		"dir":  func(path, _ string) error { return os.Mkdir(path, 0o700) },
		"hole": func(path, _ string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
		},
		"link": func(path, victim string) error { return os.Symlink(victim, path) },
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			state, victim := filepath.Join(t.TempDir(), "state"), filepath.Join(t.TempDir(), "victim")
			for _, name := range names {
				path := filepath.Join(state, name)
				proctest.Must(t, errors.Join(os.RemoveAll(state), os.MkdirAll(filepath.Dir(path), 0o700), os.Chmod(state, 0o700), os.WriteFile(victim, []byte("kept"), 0o600), put(path, victim)))
				serveOnce(t, state, filepath.Base(name), nil)
				if b, err := os.ReadFile(victim); err != nil || string(b) != "kept" && !strings.HasSuffix(name, "lock") {
					t.Errorf("%s: what the link leads to holds %.40q, %v", name, b, err)
				}
			}
		})
	}
}

// serveOnce runs tend serve until it answers, or ends, or tend status names the file,
// and ends it.
func serveOnce(t *testing.T, state, name string, then func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(binaries, "tend"), "--state-dir", state, "serve", "--listen", "none")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.WaitDelay = time.Second
	proctest.Must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	late := time.After(time.Minute)
	for {
		select {
		case err := <-ended:
			if err == nil || name == "" || !strings.Contains(log.String(), name) {
				t.Errorf("%s: it ended with %v:\n%s", name, err, &log)
			}
			return
		case <-late:
			cmd.Process.Kill()
			<-ended
			t.Errorf("%s: it neither answers nor says why:\n%s", name, &log)
			return
		case <-time.After(10 * time.Millisecond):
		}
		_, errs, status := poorTend(t, state, "status")
		if status == 0 || name != "" && strings.Contains(errs, "cannot start") && strings.Contains(errs, name) {
			break
		}
	}
	if then != nil {
		then()
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := <-ended; err != nil {
		t.Errorf("%s: it ended with %v:\n%s", name, err, &log)
	}
}
