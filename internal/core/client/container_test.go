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

	"github.com/tend-run/tend/internal/core/client"
	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/lib/procfs"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// boxDirs are directories for containers of one test.
type containerDirs struct {
	dir string
	n   int
}

func newContainerDirs(t testing.TB) *containerDirs {
	t.Helper()
	dir := proctest.Value(os.MkdirTemp("", "tend-boxes-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &containerDirs{dir: dir}
}

// spec of the next container.
func (d *containerDirs) spec(t testing.TB) container.Spec {
	t.Helper()
	d.n++
	s := container.Spec{ID: container.ID(fmt.Sprintf("00000000-0000-4000-8000-%012x", d.n)), UIDBase: 100000, Volatile: true}
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
func containerManager(t testing.TB) (*client.Manager, string) {
	t.Helper()
	dir := testkeeper.Start(t)
	return testkeeper.Open(t, dir), dir
}

func makeContainer(t testing.TB, e container.Engine, s container.Spec) container.Info {
	t.Helper()
	info := proctest.Value(e.Make(t.Context(), s))(t)
	return info
}

// within runs a shell line in a container as its root, by util-linux.
func within(t testing.TB, i container.Info, line string) string {
	t.Helper()
	args := []string{"-t", fmt.Sprint(i.PID), "-a", "-S", "0", "-G", "0", "/bin/sh", "-c", line}
	if testkeeper.IsRootless() {
		// All but the namespace of time, which is not the container's own, and no change of ids.
		args = []string{"-t", fmt.Sprint(i.PID), "-U", "-m", "-u", "-i", "-n", "-p", "-C", "--preserve-credentials", "/bin/sh", "-c", line}
	}
	out, _ := exec.Command("nsenter", args...).CombinedOutput()
	return strings.TrimSpace(string(out))
}

func livesOn(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

func TestTheLifeOfAContainer(t *testing.T) {
	m, _ := containerManager(t)
	e, ctx := m.Containers(), t.Context()
	dirs := newContainerDirs(t)
	can, err := e.Can(ctx)
	if err != nil || can.Mode != container.ModeUser {
		t.Fatalf("%+v, %v", can, err)
	}
	for _, want := range []string{container.LayerPID, container.LayerMount, container.LayerUser, container.LayerNetwork, container.LayerBase, container.LayerFreeze, container.LayerMemory, container.LayerTasks, container.LayerCPU} {
		if !slices.Contains(can.Layers, want) {
			t.Errorf("the layer %q is missing: %+v", want, can.Missing)
		}
	}
	s := dirs.spec(t)
	s.Net, s.Hostname = container.NetOwn, "first"
	info := makeContainer(t, e, s)
	if info.ID != s.ID || info.PID <= 1 || info.Started == 0 || info.Mode != container.ModeUser || info.Group == "" || info.Frozen || info.Network {
		t.Errorf("made as %+v", info)
	}
	if again := makeContainer(t, e, s); again.PID != info.PID {
		t.Errorf("the same again is pid %d; it was %d", again.PID, info.PID)
	}
	other := s
	other.Hostname = "second"
	if _, err := e.Make(ctx, other); !errors.Is(err, container.ErrExists) {
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
	if _, err := e.Usage(ctx, s.ID); !errors.Is(err, container.ErrNotFound) {
		t.Errorf("usage of none: %v", err)
	}
	if second := makeContainer(t, e, s); second.PID == info.PID {
		t.Errorf("made anew it is pid %d again", info.PID)
	}
	proctest.Must(t, e.End(ctx, s.ID))
}

func TestWhatCannotBeMadeLeavesNothing(t *testing.T) {
	m, state := containerManager(t)
	e := m.Containers()
	dirs := newContainerDirs(t)
	for name, c := range map[string]struct {
		do   func(s *container.Spec)
		want error
	}{
		"a directory without up and wk": {func(s *container.Spec) { s.Dir = t.TempDir() }, nil},
		"a layer that is not there":     {func(s *container.Spec) { s.Layers = []string{"/nowhere/at/all"} }, nil},
		"a bind that is not there":      {func(s *container.Spec) { s.Binds = []container.Bind{{Source: "/nowhere", Target: "/x"}} }, nil},
		"ids of nobody":                 {func(s *container.Spec) { s.UIDBase = 0 }, nil},
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

func TestAContainerOutlivesTheKeeper(t *testing.T) {
	m, dir := containerManager(t)
	e := m.Containers()
	dirs := newContainerDirs(t)
	s := dirs.spec(t)
	s.Net = container.NetOwn
	info := makeContainer(t, e, s)
	dead := makeContainer(t, e, dirs.spec(t))
	proctest.Value(e.Network(t.Context(), s.ID))(t)
	proctest.Must(t, e.Freeze(t.Context(), s.ID, true))
	killKeeper(t, dir)
	list, err := e.List(t.Context())
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	i := slices.IndexFunc(list, func(i container.Info) bool { return i.ID == s.ID })
	if got := list[i]; got.PID != info.PID || !got.Frozen || !got.Network || got.Group != info.Group {
		t.Errorf("after the death of the keeper it is %+v; it was %+v", got, info)
	}
	if again := makeContainer(t, e, s); again.PID != info.PID {
		t.Errorf("the same again is %+v", again)
	}
	// Killed from outside while there is no keeper.
	proc, _ := os.FindProcess(dead.PID)
	proc.Kill()
	proctest.Eventually(t, "it has ended", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", dead.PID))
		st, ok := procfs.ParseStat(text)
		return err != nil || !ok || st.Dead()
	})
	killKeeper(t, dir)
	if list, err := e.List(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	for _, id := range []container.ID{s.ID, dead.ID} {
		if err := e.End(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	for _, i := range []container.Info{info, dead} {
		if _, err := os.Stat(i.Group); err == nil {
			t.Errorf("%s is there", i.Group)
		}
	}
}
