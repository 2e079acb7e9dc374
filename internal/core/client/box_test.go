//go:build linux

package client_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/core/box"
	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// boxDirs are directories for boxes of one test.
type boxDirs struct {
	dir string
	n   int
}

func newBoxDirs(t testing.TB) *boxDirs {
	t.Helper()
	dir := proctest.Value(os.MkdirTemp("", "tend-boxes-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &boxDirs{dir: dir}
}

// spec of the next box.
func (d *boxDirs) spec(t testing.TB) box.Spec {
	t.Helper()
	d.n++
	s := box.Spec{ID: box.ID(fmt.Sprintf("00000000-0000-4000-8000-%012x", d.n)), UIDBase: 100000, Volatile: true}
	if testkeeper.IsRootless() {
		s.UIDBase = 0
	}
	s.Dir = filepath.Join(d.dir, string(s.ID))
	for _, sub := range []string{"up", "wk"} {
		proctest.Must(t, os.MkdirAll(filepath.Join(s.Dir, sub), 0o755))
	}
	return s
}

// manager is one over a keeper of the test's own.
func boxManager(t testing.TB) (*client.Manager, string) {
	t.Helper()
	dir := testkeeper.Start(t)
	return testkeeper.Open(t, dir), dir
}

func makeBox(t testing.TB, e box.Engine, s box.Spec) box.Info {
	t.Helper()
	info := proctest.Value(e.Make(t.Context(), s))(t)
	return info
}

// within runs a shell line in a box as its root, by util-linux.
func within(t testing.TB, i box.Info, line string) string {
	t.Helper()
	args := []string{"-t", fmt.Sprint(i.PID), "-a", "-S", "0", "-G", "0", "/bin/sh", "-c", line}
	if testkeeper.IsRootless() {
		// All but the namespace of time, which is not the box's own, and no change of ids.
		args = []string{"-t", fmt.Sprint(i.PID), "-U", "-m", "-u", "-i", "-n", "-p", "-C", "--preserve-credentials", "/bin/sh", "-c", line}
	}
	out, _ := exec.Command("nsenter", args...).CombinedOutput()
	return strings.TrimSpace(string(out))
}

func livesOn(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

func TestTheLifeOfABox(t *testing.T) {
	m, _ := boxManager(t)
	e, ctx := m.Boxes(), t.Context()
	dirs := newBoxDirs(t)
	can, err := e.Can(ctx)
	if err != nil || can.Mode != box.ModeUser {
		t.Fatalf("%+v, %v", can, err)
	}
	for _, want := range []string{box.LayerPID, box.LayerMount, box.LayerUser, box.LayerNetwork, box.LayerBase, box.LayerFreeze, box.LayerMemory, box.LayerTasks, box.LayerCPU} {
		if !slices.Contains(can.Layers, want) {
			t.Errorf("the layer %q is missing: %+v", want, can.Missing)
		}
	}
	s := dirs.spec(t)
	s.Net, s.Hostname = box.NetOwn, "first"
	info := makeBox(t, e, s)
	if info.ID != s.ID || info.PID <= 1 || info.Started == 0 || info.Mode != box.ModeUser || info.Group == "" || info.Frozen || info.Network {
		t.Errorf("made as %+v", info)
	}
	if again := makeBox(t, e, s); again.PID != info.PID {
		t.Errorf("the same again is pid %d; it was %d", again.PID, info.PID)
	}
	other := s
	other.Hostname = "second"
	if _, err := e.Make(ctx, other); !errors.Is(err, box.ErrExists) {
		t.Errorf("another spec: %v", err)
	}
	if got := within(t, info, "hostname"); got != "first" {
		t.Errorf("the host name is %q", got)
	}
	was, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", info.PID))
	if info, err = e.Network(ctx, s.ID); err != nil || !info.Network {
		t.Errorf("network: %+v, %v", info, err)
	}
	is, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", info.PID))
	if own, _ := os.Readlink("/proc/self/ns/net"); is == was || is == own {
		t.Errorf("its network is %s; it was %s, and ours is %s", is, was, own)
	}
	if again, err := e.Network(ctx, s.ID); err != nil || !again.Network {
		t.Errorf("network again: %+v, %v", again, err)
	}
	if list, err := e.List(ctx); err != nil || len(list) != 1 || list[0].PID != info.PID {
		t.Errorf("list: %+v, %v", list, err)
	}
	proctest.Must(t, e.Freeze(ctx, s.ID, true))
	if list, _ := e.List(ctx); len(list) != 1 || !list[0].Frozen {
		t.Errorf("frozen: %+v", list)
	}
	proctest.Must(t, e.Freeze(ctx, s.ID, false))
	if u, err := e.Usage(ctx, s.ID); err != nil || u.Tasks < 1 {
		t.Errorf("usage: %+v, %v", u, err)
	}
	proctest.Must(t, e.End(ctx, s.ID))
	if livesOn(info.PID) {
		t.Error("its pid 1 lives")
	}
	if _, err := os.Stat(info.Group); err == nil {
		t.Errorf("%s is there", info.Group)
	}
	if err := e.End(ctx, s.ID); err != nil {
		t.Errorf("ended again: %v", err)
	}
	if _, err := e.Usage(ctx, s.ID); !errors.Is(err, box.ErrNotFound) {
		t.Errorf("usage of none: %v", err)
	}
	if second := makeBox(t, e, s); second.PID == info.PID {
		t.Errorf("made anew it is pid %d again", info.PID)
	}
	proctest.Must(t, e.End(ctx, s.ID))
}

func TestWhatCannotBeMadeLeavesNothing(t *testing.T) {
	m, state := boxManager(t)
	e := m.Boxes()
	dirs := newBoxDirs(t)
	for name, c := range map[string]struct {
		do   func(s *box.Spec)
		want error
	}{
		"a directory without up and wk": {func(s *box.Spec) { s.Dir = t.TempDir() }, nil},
		"a layer that is not there":     {func(s *box.Spec) { s.Layers = []string{"/nowhere/at/all"} }, nil},
		"a bind that is not there":      {func(s *box.Spec) { s.Binds = []box.Bind{{Source: "/nowhere", Target: "/x"}} }, nil},
		"ids of nobody":                 {func(s *box.Spec) { s.UIDBase = 0 }, nil},
	} {
		s := dirs.spec(t)
		c.do(&s)
		var invalid *process.InvalidError
		if _, err := e.Make(t.Context(), s); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := dirs.spec(t)
	up := filepath.Join(s.Dir, "up")
	proctest.Must(t, os.MkdirAll(filepath.Join(up, "proc", "x"), 0o755))
	if list, err := e.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("there is %+v, %v", list, err)
	}
	if left, _ := os.ReadDir(filepath.Join(state, "cells")); len(left) != 0 {
		t.Errorf("files are left: %v", left)
	}
}

func TestABoxOutlivesTheKeeper(t *testing.T) {
	m, dir := boxManager(t)
	e := m.Boxes()
	dirs := newBoxDirs(t)
	s := dirs.spec(t)
	s.Net = box.NetOwn
	info := makeBox(t, e, s)
	dead := makeBox(t, e, dirs.spec(t))
	proctest.Value(e.Network(t.Context(), s.ID))(t)
	proctest.Must(t, e.Freeze(t.Context(), s.ID, true))
	killKeeper(t, dir)
	list, err := e.List(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	i := slices.IndexFunc(list, func(i box.Info) bool { return i.ID == s.ID })
	if got := list[i]; got.PID != info.PID || !got.Frozen || !got.Network || got.Group != info.Group {
		t.Errorf("after the death of the keeper it is %+v; it was %+v", got, info)
	}
	if again := makeBox(t, e, s); again.PID != info.PID {
		t.Errorf("the same again is %+v", again)
	}
	// Killed from outside while there is no keeper.
	proc, _ := os.FindProcess(dead.PID)
	proc.Kill()
	killKeeper(t, dir)
	if list, err := e.List(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	for _, id := range []box.ID{s.ID, dead.ID} {
		if err := e.End(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	for _, i := range []box.Info{info, dead} {
		if _, err := os.Stat(i.Group); err == nil {
			t.Errorf("%s is there", i.Group)
		}
	}
}
