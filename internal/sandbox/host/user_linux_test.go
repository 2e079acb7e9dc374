package host

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/sandboxrecord"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// output runs a line in a sandbox as a user and returns all it wrote.
func output(t *testing.T, s driver.Sandbox, name, line string) string {
	t.Helper()
	p, err := s.Processes().Start(t.Context(), process.Spec{User: name, Shell: line + " 2>&1"})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for ev, err := range process.Events(t.Context(), p, process.ReadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		out.Write(ev.Data)
	}
	return out.String()
}

// others are the names of two other users that this test can be.
func others(t *testing.T) (string, string) {
	proctest.Root(t)
	return "nobody", "daemon"
}

// openBelow opens a driver in a directory that is closed to others, as a
// daemon's is.
func openBelow(t *testing.T) *Driver {
	dir := t.TempDir()
	return open(t, Config{Dir: filepath.Join(dir, "boxes"), Top: filepath.Dir(dir)})
}

func TestAnotherUserActsInTheSandbox(t *testing.T) {
	t.Parallel()
	guest, stranger := others(t)
	d := openBelow(t)
	s, err := d.Create(t.Context(), driver.Spec{Name: "shared"})
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	script := `umask 022; mkdir own && echo mine > own/file && echo old > old`
	if out := output(t, s, "", script); out != "" {
		t.Fatal(out)
	}
	if out, want := output(t, s, guest, `id -un; pwd -P; cat old; echo theirs > new && cat `+info.Dir+`/new`), guest+"\n"+info.Dir+"\nold\ntheirs\n"; out != want {
		t.Errorf("%s gets %q, want %q", guest, out, want)
	}
	if out := output(t, s, "", `cat new && echo more >> new && rm new && echo x > later`); out != "theirs\n" {
		t.Errorf("the owner gets %q", out)
	}
	if out := output(t, s, guest, `echo more >> later && cat later`); out != "x\nmore\n" {
		t.Errorf("%s gets %q of a file that was made after it was let in", guest, out)
	}
	u, err := user.Lookup(guest)
	if err != nil {
		t.Fatal(err)
	}
	if out := output(t, s, u.Uid+":"+u.Gid, `id -u; pwd -P`); out != u.Uid+"\n"+info.Dir+"\n" {
		t.Errorf("uid %s gets %q", u.Uid, out)
	}
	if guest == stranger {
		return
	}
	if out := output(t, s, "54321:54322", `id -u; id -g; pwd -P; touch here && stat -c '%u %g' here`); out != "54321\n54322\n"+info.Dir+"\n54321 54322\n" {
		t.Errorf("a uid without an account gets %q", out)
	}
	// Whoever was not named stays outside.
	p, err := d.cfg.Manager.Start(t.Context(), process.Spec{User: stranger, Dir: "/", Argv: []string{"/bin/ls", info.Dir}})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := p.Wait(t.Context(), process.Until{}); err != nil || res.Exit == nil || res.Exit.Code == 0 {
		t.Errorf("%s reads the sandbox: %+v, %v", stranger, res.Exit, err)
	}
}

func TestASandboxOfAnotherUserIsTheirs(t *testing.T) {
	t.Parallel()
	owner, _ := others(t)
	u, err := user.Lookup(owner)
	if err != nil {
		t.Fatal(err)
	}
	d := openBelow(t)
	for name, owner := range map[string]string{owner: owner, u.Uid: owner, "54321": "UNKNOWN"} {
		s, err := d.Create(t.Context(), driver.Spec{Run: driver.RunConfig{User: name}, Disposable: true})
		if err != nil {
			t.Fatal(err)
		}
		info, err := s.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if out, want := output(t, s, "", `pwd -P; touch a; stat -c %U . a`), strings.Join([]string{info.Dir, owner, owner, ""}, "\n"); out != want {
				t.Errorf("as %s: %q, want %q", name, out, want)
			}
			proctest.Must(t, errors.Join(s.Stop(t.Context()), s.Start(t.Context())))
		}
		fs, err := s.Files("", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fs.Write("b", strings.NewReader("b"), nil); err != nil {
			t.Fatal(err)
		}
		var st syscall.Stat_t
		if err := syscall.Stat(filepath.Join(info.Dir, "b"), &st); err != nil || owner != "UNKNOWN" && strconv.Itoa(int(st.Uid)) != u.Uid {
			t.Errorf("a file that was written belongs to %d, %v", st.Uid, err)
		}
	}
}

func TestAnIDWinsOverARecordOfOldWithItAsName(t *testing.T) {
	t.Parallel()
	cfg := Config{Dir: t.TempDir()}
	d := open(t, cfg)
	var ids []driver.ID
	for _, name := range []string{"victim", "thief"} {
		s, err := d.Create(t.Context(), driver.Spec{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		info, err := s.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, info.ID)
	}
	var rec record
	proctest.Must(t, sandboxrecord.Read(filepath.Join(cfg.Dir, string(ids[1])), &rec))
	rec.Name = string(ids[0])
	proctest.Must(t, rec.write(filepath.Join(cfg.Dir, string(ids[1]))))
	found, err := open(t, cfg).Get(t.Context(), string(ids[0]))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := found.Info(t.Context()); err != nil || info.Name != "victim" {
		t.Errorf("the id finds %+v, %v", info, err)
	}
}

func TestAccessLists(t *testing.T) {
	t.Parallel()
	base := []aclEntry{{aclOwner, 7, aclNobody}, {aclGroups, 5, aclNobody}, {aclOther, 0, aclNobody}}
	one := withUser(base, 7, 1)
	two := withUser(withUser(one, 3, 6), 7, 4)
	want := []aclEntry{{aclOwner, 7, aclNobody}, {aclUser, 6, 3}, {aclUser, 5, 7}, {aclGroups, 5, aclNobody}, {aclMask, 7, aclNobody}, {aclOther, 0, aclNobody}}
	again, err := decodeList(encodeList(two))
	if err != nil || len(again) != len(want) {
		t.Fatal(again, err)
	}
	for i := range want {
		if again[i] != want[i] {
			t.Errorf("entry %d is %+v, want %+v", i, again[i], want[i])
		}
	}
	for _, b := range [][]byte{nil, {2, 0, 0}, {3, 0, 0, 0}, {2, 0, 0, 0, 1}} {
		if _, err := decodeList(b); err == nil {
			t.Errorf("%v is taken for a list", b)
		}
	}
}

// TestASandboxAtHomeIsRemovedAsItsUser: the way to its directory is the
// user's, who may have put a link to root's files there.
func TestASandboxAtHomeIsRemovedAsItsUser(t *testing.T) {
	proctest.Root(t)
	t.Parallel()
	d := openBelow(t)
	s, err := d.Create(t.Context(), driver.Spec{Name: "box", Run: driver.RunConfig{User: "nobody"}})
	if err != nil {
		t.Fatal(err)
	}
	b := s.(*sandbox)
	home, err := os.MkdirTemp("", "home-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	nobody, err := lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	roots := filepath.Join(t.TempDir(), "boxes", string(b.id))
	for _, err := range []error{
		os.Chown(home, nobody.UID, nobody.GID), os.MkdirAll(roots, 0o755), os.Symlink(filepath.Dir(filepath.Dir(roots)), filepath.Join(home, ".tend")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	b.mu.Lock()
	b.rec.Work = filepath.Join(home, ".tend", "boxes", string(b.id)) // as where access lists are missing
	b.mu.Unlock()
	if err := s.Destroy(t.Context()); err != nil {
		t.Errorf("destroy: %v", err)
	}
	if _, err := os.Stat(roots); err != nil {
		t.Errorf("root's directory was removed: %v", err)
	}
}
