//go:build linux

package limits

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/lib/owner"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testdaemon"
	"github.com/tend-run/tend/sdk/go"
)

// TestAStateDirectoryElsewhereStaysClosed: a state directory has a second path, by a bind mount,
// which sandboxes see. The directory was made by an older tend, for which it is root's.
func TestAStateDirectoryElsewhereStaysClosed(t *testing.T) {
	proctest.Root(t)
	dir, other := twice(t)
	seen := testdaemon.StateDir(dir) // what sandboxes see
	proctest.Must(t, errors.Join(os.Mkdir(seen, 0o700), os.Mkdir(seen+"/spool", 0o700), os.Mkdir(seen+"/sandboxes", 0o700)))
	proctest.Must(t, os.WriteFile(seen+"/secret", []byte(strings.Repeat("s", 32)), 0o600))
	d := testdaemon.Serve(t, testdaemon.Config{Command: []string{bin}, Dir: other})
	c := d.Connect(t)
	create := func() *tend.Sandbox {
		return proctest.Value(c.CreateSandbox(t.Context(), tend.SandboxSpec{Isolation: tend.IsolationFull}))(t)
	}
	thief, victim := create(), proctest.Value(create().Info(t.Context()))(t).ID
	// The program tries what root may do that owns a directory.
	line := `cd ` + seen + `; cat secret; ls . run spool sandboxes sandboxes/` + victim + `; ` +
		`for f in . run spool sandboxes secret; do chown 0:0 $f; chgrp 0 $f; chmod 777 $f; setfacl -m u:0:rwx $f; done; ` +
		`cd ` + seen + `; cat secret; ls . run spool sandboxes sandboxes/` + victim + `; mv ` + seen + ` /tmp/it; find /tmp/it -maxdepth 3`
	out := proctest.Value(thief.Processes().Run(t.Context(), tend.Shell("exec 2>&1; id -u; "+line)))(t).Stdout
	if !strings.HasPrefix(out, "0\n") {
		t.Fatalf("the program inside: %s", out)
	}
	for _, secret := range []string{"ssss", victim + "\n", "up\n", "services\n", "keeper.sock"} {
		if strings.Contains(out, secret) {
			t.Errorf("a program inside reads %q: %s", secret, out)
		}
	}
	// What the first server has made late is closed by the next, and the sandboxes go on.
	proctest.Must(t, d.Replace(t.Context(), "server"))
	c = d.Connect(t)
	goesOn := proctest.Value(c.Sandbox(t.Context(), victim))(t).Processes()
	if res, err := goesOn.Run(t.Context(), tend.Shell("echo on > /root/mine; cat /root/mine")); err != nil || res.Stdout != "on\n" {
		t.Errorf("the sandbox after that: %q, %v", res.Stdout, err)
	}
	create()
	allClosed(t, seen)
	// An older tend demands these of root.
	for _, name := range []string{".", "run", "spool"} {
		info := proctest.Value(os.Stat(filepath.Join(seen, name)))(t)
		if st := info.Sys().(*syscall.Stat_t); st.Uid != 0 || info.Mode().Perm()&0o022 != 0 {
			t.Errorf("%s: uid %d, mode %v", name, st.Uid, info.Mode())
		}
	}
	if b, err := os.ReadFile(seen + "/secret"); err != nil || len(b) != 32 {
		t.Errorf("the secret: %q, %v", b, err)
	}
}

// allClosed fails if a directory in a state directory belongs to ids that sandboxes have.
func allClosed(t *testing.T, state string) {
	t.Helper()
	for _, e := range proctest.Value(os.ReadDir(state))(t) {
		info := proctest.Value(e.Info())(t)
		if st := info.Sys().(*syscall.Stat_t); e.IsDir() && st.Uid != owner.NoSandbox && st.Gid != owner.NoSandbox {
			t.Errorf("the directory %s is not closed", e.Name())
		}
	}
}
