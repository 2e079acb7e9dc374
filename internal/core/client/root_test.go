//go:build linux

package client_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// toyRoot is a place with one account and one program.
type toyRoot struct{ home string }

func (r toyRoot) User(name string) (files.User, error) {
	if name != "" && name != "guest" {
		return files.User{}, files.ErrUnknownUser
	}
	u, err := files.Account("")
	u.Name, u.Home = "guest", r.home
	return u, err
}

func (r toyRoot) Look(_ context.Context, _ files.User, look func(func(string) (fs.FileInfo, error))) error {
	look(func(path string) (fs.FileInfo, error) {
		if path == r.home || path == "/bin/sh" {
			return os.Stat(path)
		}
		return nil, &fs.PathError{Op: "stat", Path: path, Err: fs.ErrNotExist}
	})
	return nil
}

// TestAStartLooksWhereItsProcessRuns: user, directory and program are those of the
// root, whatever this machine has.
func TestAStartLooksWhereItsProcessRuns(t *testing.T) {
	m := testkeeper.Open(t, testkeeper.Start(t))
	home := t.TempDir()
	inside := m.In(toyRoot{home})
	path := map[string]string{"PATH": "/usr/bin:/bin"}
	for name, c := range map[string]struct {
		spec process.Spec
		want process.StartReason
	}{
		"a user of the machine":      {process.Spec{User: "root", Argv: []string{"sh"}, Env: path}, process.StartBadUser},
		"a program of the machine":   {process.Spec{Argv: []string{"ls"}, Env: path}, process.StartNotFound},
		"a directory of the machine": {process.Spec{Argv: []string{"sh"}, Env: path, Dir: "/usr"}, process.StartBadDir},
	} {
		_, err := inside.Start(t.Context(), c.spec)
		if failed, ok := errors.AsType[*process.StartError](err); !ok || failed.Reason != c.want {
			t.Errorf("%s: %v; want the reason %v", name, err, c.want)
		}
	}
	p := proctest.Start(t, inside, process.Spec{User: "guest", Argv: []string{"sh", "-c", `test "$USER $HOME $PWD" = "guest $0 $0"`, home}, Env: path})
	if res, err := p.Wait(t.Context(), process.Until{}); err != nil || res.Exit == nil || res.Exit.Code != 0 {
		t.Errorf("the account of the root: %+v, %v", res.Exit, err)
	}
	if _, err := m.Get(t.Context(), process.Selector{ID: p.ID()}); err != nil {
		t.Errorf("a process of the root, asked for from outside: %v", err)
	}
}

// boxedRoot is toyRoot in a container.
type boxedRoot struct{ toyRoot }

const someContainer = "0b8f7f9e-4f1c-4f6b-9a51-0d9d6f6f2a10"

func (boxedRoot) Container() container.ID { return someContainer }

// TestNothingMeantForAContainerStartsOutside: a keeper that has no such container must not start
// the program anywhere else.
func TestNothingMeantForAContainerStartsOutside(t *testing.T) {
	m := testkeeper.Open(t, testkeeper.Start(t))
	inside := m.In(boxedRoot{toyRoot{t.TempDir()}})
	left := filepath.Join(t.TempDir(), "ran")
	spec := process.Spec{Shell: "touch " + left}
	var invalid *process.InvalidError
	if _, err := inside.Start(t.Context(), spec); !errors.As(err, &invalid) || invalid.Field != "labels" {
		t.Errorf("without its label: %v", err)
	}
	spec.Labels = map[string]string{"tend.sandbox": someContainer}
	if _, err := inside.Start(t.Context(), spec); !errors.Is(err, process.ErrUnsupported) && !errors.Is(err, container.ErrNotFound) {
		t.Errorf("in a container that there is not: %v", err)
	}
	if all, err := m.List(t.Context(), process.Filter{}); err != nil || len(all) != 0 {
		t.Errorf("there is %+v, %v", all, err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("it ran")
	}
}
