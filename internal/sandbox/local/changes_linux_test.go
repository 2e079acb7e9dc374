package local

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

// TestAShareThatIsACopy is changed by programs inside alone, and what they change is told.
func TestAShareThatIsACopy(t *testing.T) {
	d := openReal(t, real(t))
	dir := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	proctest.Must(t, errors.Join(os.MkdirAll(dir+"/app/old", 0o755), os.Mkdir(dir+"/node_modules", 0o755), os.WriteFile(dir+"/app/a",
		[]byte("one"), 0o600),
		os.WriteFile(dir+"/app/gone", nil, 0o644), os.WriteFile(dir+"/app/old/x", nil, 0o644)))
	proctest.Must(t, os.Chmod(dir, 0o755))
	if os.Geteuid() == 0 && !testkeeper.IsRootless() {
		proctest.Must(t, os.Chown(dir+"/app/a", 1000, 1000))
	}
	_, err := d.Create(t.Context(), driver.Spec{Shares: []driver.Share{{Source: dir, Copy: true, ReadOnly: true}}})
	if invalid, ok := errors.AsType[*driver.InvalidError](err); !ok || invalid.Field != "shares.copy" {
		t.Errorf("a copy that is read-only: %v", err)
	}
	s, err := d.Create(t.Context(), driver.Spec{Shares: []driver.Share{{Source: dir, Copy: true}}})
	proctest.Must(t, err)
	id := infoOf(t, s).ID
	changes := func(at string, most int) ([]driver.FileChange, error) {
		return d.Changes(t.Context(), id, at, []string{"node_modules"}, most)
	}
	if all, err := changes(dir, 10); err != nil || len(all) > 0 {
		t.Errorf("before anything ran: %v, %v", all, err)
	}
	line := "cd " + dir + " && cat app/a && echo two > app/a && rm app/gone && rm -r app/old && mkdir app/old && ln -s a app/link && echo > node_modules/y"
	if got := runAs(t, s, "root", line); got != "one" {
		t.Fatalf("inside it is %q", got)
	}
	want := []driver.FileChange{{Path: "app", Kind: driver.ChangeDir}, {Path: "app/a", Kind: driver.ChangeFile}, {Path: "app/gone",
		Kind: driver.ChangeGone},
		{Path: "app/link", Kind: driver.ChangeSpecial}, {Path: "app/old", Kind: driver.ChangeGone}, {Path: "app/old", Kind: driver.ChangeDir}}
	if got := proctest.Value(changes(dir, 10))(t); !slices.Equal(got, want) {
		t.Errorf("it tells %v", got)
	}
	if got := proctest.Value(changes(dir+"/app", 10))(t); len(got) != 5 || got[0].Path != "a" {
		t.Errorf("of a directory in it it tells %v", got)
	}
	if _, err := changes(dir, 3); !errors.Is(err, driver.ErrLimit) {
		t.Errorf("more than are wanted: %v", err)
	}
	if all, err := changes(dir+"/app/link/..", 10); err != nil || len(all) != 5 {
		t.Errorf("a path with dots: %v, %v", all, err)
	}
	if all, err := changes(dir+"/app/link", 10); err != nil || len(all) > 0 {
		t.Errorf("a link that a program has made: %v, %v", all, err)
	}
	if b := proctest.Value(os.ReadFile(dir + "/app/a"))(t); string(b) != "one" {
		t.Errorf("on the machine it is %q", b)
	}
	if all := proctest.Value(os.ReadDir(dir + "/app"))(t); len(all) != 3 {
		t.Errorf("on the machine there are %v", all)
	}
	proctest.Must(t, s.Stop(t.Context()))
	proctest.Must(t, s.Start(t.Context()))
	if got := runAs(t, s, "root", "cat "+dir+"/app/a"); got != "two" {
		t.Errorf("after a start it has %q", got)
	}
	proctest.Must(t, s.Destroy(t.Context()))
}

// TestChangesOfAHostileTree are bounded, and programs that go on inside hold nobody up.
func TestChangesOfAHostileTree(t *testing.T) {
	up := t.TempDir()
	root := proctest.Value(os.OpenRoot(up))(t)
	defer root.Close()
	told := func(dir string, most int, skip ...string) (n int, err error) {
		c := &differ{root: root, up: up, skip: skip, most: most}
		err = c.look(t.Context(), dir, "")
		return len(c.all), err
	}
	proctest.Must(t, errors.Join(syscall.Mkfifo(up+"/fifo", 0o600), os.Mkdir(up+"/many", 0o700), os.MkdirAll(up+"/many/skipped/x", 0o700)))
	for _, dir := range []string{"fifo", "gone", "fifo/x"} { // each was a directory a moment ago
		if n, err := told(dir, 9); n != 0 || err != nil {
			t.Errorf("%s: %d, %v", dir, n, err)
		}
	}
	for _, name := range strings.Fields("a b c d e f g h i") {
		proctest.Must(t, os.WriteFile(up+"/many/"+name, nil, 0o600))
	}
	if n, err := told("many", 9, "skipped", "other"); n != 9 || err != nil {
		t.Errorf("as many as may be: %d, %v", n, err)
	}
	if n, err := told("many", 7, "skipped"); n != 0 || !errors.Is(err, driver.ErrLimit) {
		t.Errorf("a directory with more than may be: %d are looked at, %v", n, err)
	}
	deep, name := root, strings.Repeat("d", 255)
	for range 20 {
		proctest.Must(t, deep.Mkdir(name, 0o700))
		deep = proctest.Value(deep.OpenRoot(name))(t)
		defer deep.Close()
	}
	if n, err := told(".", 1000); n > 50 || !errors.Is(err, driver.ErrLimit) {
		t.Errorf("a path of %d bytes: %d, %v", 20*256, n, err)
	}
}
