package project

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/heal/checkpoint"
	"github.com/tend-run/tend/internal/lib/kernelfault"
	"github.com/tend-run/tend/internal/lib/lazyregexp"
	"github.com/tend-run/tend/internal/support/proctest"
)

// handsArgument makes the test binary the program that works on a project.
const handsArgument = "work-on-a-project"

func init() {
	kernelfault.Main(os.Environ())
	if len(os.Args) == 2 && os.Args[1] == handsArgument {
		if err := Serve(context.Background(), os.Environ(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// handsConn leads to such a process.
type handsConn struct {
	io.Reader
	io.WriteCloser
	wait func() error
}

func (c handsConn) Close() error {
	err := c.WriteCloser.Close()
	_, _ = io.Copy(io.Discard, c.Reader)
	if werr := c.wait(); err == nil {
		err = werr
	}
	return err
}

// changing are the calls of a process that change what is on the disk, but for writes: Go's
// and git's.
var changing = []uintptr{
	unix.SYS_OPENAT, unix.SYS_MKDIRAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINKAT, unix.SYS_LINKAT, unix.SYS_SYMLINKAT,
	unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FSYNC, unix.SYS_FLOCK,
}

// varies is what says nothing in the names of the healer's files: numbers, and sums of content.
var varies = lazyregexp.New(`[0-9]+|/store/.*`)

// tries are how many remedies are tried.
const tries = 2

// ofHealer are the paths of the healer in a project, with those beside the user's index.
func ofHealer(t *testing.T, root string) map[string]fs.FileMode {
	t.Helper()
	all := map[string]fs.FileMode{}
	proctest.Must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, path)
		if err == nil && (strings.HasPrefix(rel, ".tend") || strings.HasPrefix(rel, ".git/tend-heal-") || rel == ".git/index.lock") {
			all[rel] = d.Type()
		}
		return err
	}))
	return all
}

// What a kill may leave of a repair in a project, at whatever change of a file, goes with the
// process that comes next, but for copies that are kept: a project as it is before each call is
// the one that a kill leaves then.
func TestNothingIsLeftOfAKillAtAnyChange(t *testing.T) {
	root := filepath.Join(proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t), "app")
	proctest.Must(t, os.MkdirAll(filepath.Join(root, "made"), 0o755))
	proctest.Must(t, os.MkdirAll(filepath.Join(root, "node_modules"), 0o755))
	for name, text := range map[string]string{"part": "the user's", ".env": "KEY=of the user\n", "made/x": "x", "node_modules/old": "x"} {
		proctest.Must(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main", "--template="}, {"add", "part"}, {"-c", "user.name=dev", "-c", "user.email=dev@example.org", "commit", "-q", "-m", "base"}} {
		if out, err := exec.Command("git", append([]string{"-C", root}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	states := statesOf(t, root)
	if len(states) < 20 {
		t.Errorf("there are only %d states", len(states))
	}
	for _, s := range states {
		proctest.Must(t, os.RemoveAll(root))
		copyTree(t, s, root)
		before := installed(t, root)
		if before != "old" && before != "1" && before != "2" {
			t.Errorf("at a kill the packages are %q\nof %q", before, slices.Sorted(maps.Keys(ofHealer(t, s))))
		}
		next := served(t, root)
		for try := range tries {
			proctest.Value(next.Rollback(t.Context(), try+1, false))(t)
			proctest.Must(t, next.Drop(t.Context(), try+1))
		}
		proctest.Must(t, next.Close())
		// Of the first remedy they stay, if it was dropped, and not after a rollback of that state.
		if now := installed(t, root); now != "old" && (now != "1" || before == "old") {
			t.Errorf("packages that were %q at a kill are %q after a rollback\nof %q", before, now, slices.Sorted(maps.Keys(ofHealer(t, s))))
		}
		if left := leftIn(t, root); len(left) > 0 {
			t.Errorf("left are %q\nof %q", left, slices.Sorted(maps.Keys(ofHealer(t, s))))
		}
	}
}

// statesOf has a process repair a project, and returns copies of it as it was before each
// change that leaves other names of the healer's than all before.
func statesOf(t *testing.T, root string) (states []string) {
	t.Helper()
	world := kernelfault.World{}
	for _, call := range changing {
		world.Rules = append(world.Rules, kernelfault.Rule{Call: call, Arg: -1})
	}
	cmd := proctest.Value(kernelfault.Command(world, proctest.Value(os.Executable())(t), handsArgument))(t)
	cmd.Stderr = os.Stderr
	in, out := proctest.Value(cmd.StdinPipe())(t), proctest.Value(cmd.StdoutPipe())(t)
	l := proctest.Value(kernelfault.Listen(cmd, cmd.Start))(t)
	dir, seen := t.TempDir(), map[string]bool{}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		l.Each(func(c *kernelfault.Call) (held bool) {
			if c.Call == unix.SYS_OPENAT && c.Args[2]&unix.O_CREAT == 0 {
				return false
			}
			var names []string
			for path := range ofHealer(t, root) {
				names = append(names, varies.ReplaceAllString(path, "*"))
			}
			slices.Sort(names)
			state := strings.Join(slices.Compact(names), "\n")
			if seen[state] {
				return false
			}
			seen[state] = true
			to := filepath.Join(dir, strconv.Itoa(len(states)))
			copyTree(t, root, to)
			states = append(states, to)
			return false
		})
	}()
	defer func() { <-watched }()
	defer l.Close()
	r, _, err := Dial(t.Context(), handsConn{out, in, cmd.Wait}, Config{ID: "e1", Root: root, Cwd: root})
	proctest.Must(t, err)
	ctx := t.Context()
	for try := 1; try <= tries; try++ {
		proctest.Must(t, r.Take(ctx, try))
		proctest.Must(t, r.WriteFile(ctx, "part", []byte("of try "+strconv.Itoa(try))))
		proctest.Must(t, r.MoveAside(ctx, try, "made"))
		proctest.Must(t, r.Stage(ctx, try))
		staged, _ := Staged(root, "e1", try)
		for _, dir := range []string{"node_modules", "no%2Fnode_modules"} {
			proctest.Must(t, os.Mkdir(filepath.Join(staged, dir), 0o755))
			proctest.Must(t, os.WriteFile(filepath.Join(staged, dir, strconv.Itoa(try)), nil, 0o644))
		}
		proctest.Must(t, r.Swap(ctx, try, "node_modules"))
		if err := r.Swap(ctx, try, "no/node_modules"); err == nil {
			t.Error("packages came to where no directory is")
		}
		proctest.Must(t, r.Mark(ctx))
		if try == 1 {
			proctest.Value(r.Commit(ctx, try, &checkpoint.Commit{Message: "Repair"}))(t)
		} else {
			proctest.Must(t, r.WriteFile(ctx, "part", []byte("not marked")))
			proctest.Value(r.Rollback(ctx, try, false))(t)
		}
		proctest.Must(t, r.Drop(ctx, try))
	}
	proctest.Must(t, r.Close())
	return states
}

// installed are the names in the directory of installed packages.
func installed(t *testing.T, root string) string {
	var names []string
	all, err := os.ReadDir(filepath.Join(root, "node_modules"))
	if err != nil {
		return err.Error()
	}
	for _, e := range all {
		if e.Name() != newMark {
			names = append(names, e.Name())
		}
	}
	return strings.Join(names, " ")
}

// copyTree makes a copy of a directory with all its times.
func copyTree(t *testing.T, from, to string) {
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Errorf("cp: %v: %s", err, out)
	}
}

// leftIn are the paths of the healer that nobody needs: all but copies that are kept, with what
// leads to them.
func leftIn(t *testing.T, root string) (left []string) {
	t.Helper()
	now, needed := ofHealer(t, root), map[string]bool{}
	for path, mode := range now {
		if mode.IsRegular() && strings.Contains(path, "/"+checkpoint.KeptDir+"/") {
			for at := path; at != "."; at = filepath.Dir(at) {
				needed[at] = true
			}
			needed[filepath.Join(healDir, lockFile)], needed[filepath.Join(healDir, ignoreFile)] = true, true
		}
	}
	for path := range now {
		if !needed[path] {
			left = append(left, path)
		}
	}
	slices.Sort(left)
	return left
}
