//go:build linux

package client_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// A start as another user shows nothing of what that user cannot see: what is
// there and what is not fails alike.
func TestAStartShowsNothingThatItsUserCannotSee(t *testing.T) {
	proctest.Root(t)
	m := testkeeper.Open(t, testkeeper.Start(t))
	top, err := os.MkdirTemp("", "closed-") // those of t.TempDir are closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	closed, shown := filepath.Join(top, "closed"), filepath.Join(top, "shown")
	for _, err := range []error{
		os.Chmod(top, 0o755), os.Mkdir(closed, 0o700), os.MkdirAll(filepath.Join(closed, "dir"), 0o755),
		os.WriteFile(filepath.Join(closed, "file"), []byte("#!/bin/sh\n"), 0o755),
		os.Mkdir(shown, 0o755), os.WriteFile(filepath.Join(shown, "file"), []byte("#!/bin/sh\nexit 3\n"), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	said := func(spec process.Spec) string {
		t.Helper()
		spec.User = "nobody"
		_, err := m.Start(t.Context(), spec)
		if _, ok := errors.AsType[*process.StartError](err); !ok {
			t.Fatalf("%+v: %v", spec, err)
		}
		return err.Error()
	}
	at := func(name string) process.Spec {
		return process.Spec{Argv: []string{"true"}, Dir: filepath.Join(closed, name)}
	}
	want := strings.ReplaceAll(said(at("dir")), "/dir", "/NAME")
	for _, name := range []string{"missing", "file", "missing/below", "file/below"} {
		if got := strings.ReplaceAll(said(at(name)), "/"+name, "/NAME"); got != want {
			t.Errorf("%s: %s; want %s, as of a directory", name, got, want)
		}
	}
	program := func(name string) process.Spec {
		return process.Spec{Argv: []string{name}, Env: map[string]string{"PATH": closed}}
	}
	if there, not := said(program("file")), said(program("none")); there != strings.ReplaceAll(not, "none", "file") {
		t.Errorf("%s; and of a program that is not there: %s", there, not)
	}
	// A directory of PATH that is closed to the user is passed over, as execvp does.
	p := proctest.Start(t, m, process.Spec{User: "nobody", Argv: []string{"file"}, Env: map[string]string{"PATH": closed + ":" + shown}})
	proctest.WantExit(t, p, 3)
	for name, c := range map[string]struct {
		spec process.Spec
		want string
	}{
		"no such directory": {process.Spec{Argv: []string{"true"}, Dir: filepath.Join(shown, "none")}, "no such file or directory"},
		"a file":            {process.Spec{Argv: []string{"true"}, Dir: filepath.Join(shown, "file")}, "not a directory"},
	} {
		if got := said(c.spec); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}
