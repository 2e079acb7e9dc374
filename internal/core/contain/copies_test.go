//go:build linux && (amd64 || arm64)

package contain

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// ofMachine is a directory of the machine, with a file that is not for everybody.
func ofMachine(t *testing.T) string {
	dir := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	proctest.Must(t, errors.Join(os.Mkdir(dir+"/sub", 0o755), os.WriteFile(dir+"/sub/a", []byte("one"), 0o644),
		os.WriteFile(dir+"/gone", nil, 0o644), os.WriteFile(dir+"/closed", []byte("secret"), 0o600)))
	return dir
}

// TestACopyIsChangedInsideAlone, also below /tmp, of which the container has its own; over a layer, and with one in another.
func TestACopyIsChangedInsideAlone(t *testing.T) {
	if !testkeeper.IsRootless() {
		proctest.Root(t)
	}
	w := newWorld(t)
	s, dir := w.spec(t), ofMachine(t)
	if testkeeper.IsRootless() {
		s.UIDBase = 0
	}
	s.Copies = []container.Copy{{Source: dir + "/sub", Target: dir + "/inner"}, {Source: dir, Target: dir}}
	c := w.container(t, s)
	line := "cd " + dir + " && echo two > sub/a && rm gone && mkdir new && echo x > new/b && cat closed inner/a && echo 3 > inner/c && stat -c %a /tmp"
	if got := inside(t, c, line); got != "secretone1777" {
		t.Errorf("inside: %q", got)
	}
	if b := proctest.Value(os.ReadFile(dir + "/sub/a"))(t); string(b) != "one" {
		t.Errorf("the machine's file is %q", b)
	}
	all := proctest.Value(os.ReadDir(dir))(t)
	if len(all) != 3 {
		t.Errorf("the machine has %v", all)
	}
	up := s.Dir + "/up" + dir
	if b := proctest.Value(os.ReadFile(up + "/sub/a"))(t); string(b) != "two\n" {
		t.Errorf("what was written is %q", b)
	}
	var st unix.Stat_t
	proctest.Must(t, unix.Lstat(up+"/gone", &st))
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
		t.Errorf("what was removed is %o", st.Mode)
	}
	w.end(t, c)
	next := w.spec(t)
	next.UIDBase, next.Layers, next.Copies = s.UIDBase, []string{s.Dir + "/up"}, s.Copies[1:]
	if got := inside(t, w.container(t, next), "cd "+dir+" && cat sub/a new/b; test -e gone || echo none"); got != "two\nx\nnone" {
		t.Errorf("over a layer: %q", got)
	}
}

func TestACopyOfAnOrdinaryUser(t *testing.T) {
	testkeeper.Rootless(t, "^TestACopyIsChangedInsideAlone$")
}

// TestACopyThatCannotBeHad says which, and why.
func TestACopyThatCannotBeHad(t *testing.T) {
	proctest.Root(t)
	w := newWorld(t)
	dir := ofMachine(t)
	proctest.Must(t, os.Symlink(dir, dir+"/link"))
	for source, why := range map[string]string{dir + "/closed": "is no directory", dir + "/none": "does not exist",
		dir + "/link": "symbolic link"} {
		s := w.spec(t)
		s.Copies = []container.Copy{{Source: source, Target: dir}}
		_, err := w.Make(&s)
		var invalid *process.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "copies" || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", source, err)
		}
	}
}
