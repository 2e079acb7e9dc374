package local

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/oci/ocitest"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
	"github.com/tend-run/tend/process"
)

// TestRootless runs what holds also where the daemon is an ordinary user, as one.
func TestRootless(t *testing.T) {
	t.Parallel()
	testkeeper.Rootless(t, "^(TestDriver|TestAProgramInsideCannotGetOut|TestManySandboxesLeaveNothing|TestTheWayOutFollowsTheSandbox|TestASandboxOutlivesKeeperAndServer|TestASandboxOfAnImage|TestAnImageOfManyLayersIsASandbox|"+
		"TestAVolumeIsInSeveralSandboxesAndOutlivesThem|TestALimitedVolumeIsFullForAll)$")
}

// TestSnapshotsWithOneID: of a sandbox whose files all belong to the daemon's user, also of files that nobody may read.
func TestSnapshotsWithOneID(t *testing.T) {
	if os.Geteuid() == 0 {
		testkeeper.Rootless(t, "^TestSnapshotsWithOneID$")
		return
	}
	d, _ := boxed(t)
	s, err := d.Create(t.Context(), driver.Spec{Template: "base"})
	proctest.Must(t, err)
	names := func(dir string) []os.DirEntry { return proctest.Value(os.ReadDir(dir))(t) }
	files := func() int { return len(names(filepath.Join(d.cfg.Dir, layersName))) }
	before := files()
	inSandbox(t, s, "echo 1 > ~/f; rm /usr/local/bin -r; mkdir -p ~/d/e; mv ~/.bashrc ~/d/; rm ~/.profile; ln ~/f ~/g; echo s > ~/d/secret; chmod 0 ~/d/secret ~/d")
	const look = "cat ~/f; ls -A ~/d 2>/dev/null; stat -c %a ~/d; ls -d /usr/local/bin ~/.profile 2>/dev/null; stat -c %h ~/f"
	want := inSandbox(t, s, look)
	if want != "1\n0\n2\n" {
		t.Fatalf("it has %q", want)
	}
	proctest.Must(t, justErr(d.Snapshot(t.Context(), s.(*sandbox).id, driver.SnapshotSpec{Name: "one"})))
	p := proctest.Start(t, s.Processes(), process.Spec{Argv: []string{"/bin/bash", "-c", "echo 2 > ~/f; echo wrote; read x"}, Stdin: process.StdinPipe})
	proctest.Wait(t, p, process.Until{Match: "wrote"})
	_, err = d.Snapshot(t.Context(), s.(*sandbox).id, driver.SnapshotSpec{Name: "two"})
	if frozen := !errors.Is(s.(*sandbox).d.needs("freeze", "snapshot"), driver.ErrUnsupported); (err == nil) != frozen || err != nil && !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("of one in which something runs: %v", err)
	}
	proctest.Must(t, justErr(p.Kill(t.Context())))
	proctest.Wait(t, p, process.Until{})
	forks, err := d.Fork(t.Context(), s.(*sandbox).id, driver.ForkSpec{Count: 2})
	proctest.Must(t, err)
	for _, f := range forks {
		proctest.Must(t, f.Err)
		if got := inSandbox(t, f.Sandbox, "cat ~/f; stat -c %a ~/d; chmod 700 ~/d; stat -c %a ~/d/secret; ls -A ~/d; echo its own > ~/f"); got != "2\n0\n0\n.bashrc\ne\nsecret\n" {
			t.Errorf("a fork has %q", got)
		}
	}
	for range 2 { // what one has changed is its own
		of, err := d.Create(t.Context(), driver.Spec{Snapshot: "one"})
		proctest.Must(t, err)
		if got := inSandbox(t, of, look); got != want {
			t.Errorf("the snapshot has %q, want %q", got, want)
		}
		inSandbox(t, of, "chmod 700 ~/d; rm -r ~/d; echo 3 > ~/f; mkdir /usr/local/bin")
	}
	proctest.Must(t, d.DeleteSnapshot(t.Context(), "one"))
	for _, s := range d.containers.All() {
		proctest.Must(t, s.Destroy(t.Context()))
	}
	proctest.Eventually(t, "nothing of its files is left", func() bool {
		return files() == before && len(names(d.trash())) == 0 && len(names(filepath.Join(d.cfg.Dir, layersName, ".trash"))) == 0
	})
}

// TestBuildsWithOneID: RUN, COPY and ENV; what is copied for another user is root's, as all is.
func TestBuildsWithOneID(t *testing.T) {
	if os.Geteuid() == 0 {
		testkeeper.Rootless(t, "^TestBuildsWithOneID$")
		return
	}
	d, _ := boxed(t)
	name := filepath.Join(t.TempDir(), "blob")
	proctest.Must(t, os.WriteFile(name, ocitest.Tar(t, ocitest.File{Name: "a", Text: "A"}), 0o600))
	spec := driver.BuildSpec{Name: "app", Blob: func(string) (io.ReadCloser, error) { return os.Open(name) }, Steps: []driver.Step{
		step("ENV", "N", "1"), step("RUN", "echo $N > /made; rm -r /usr/local/share"), {Kind: "COPY", Args: []string{"a", "/srv/a"}, Hash: "h"}, step("RUN", "cat /srv/a >> /made"),
	}}
	if b, log := built(t, d, spec); b.Status != driver.BuildReady {
		t.Fatalf("%+v\n%s", b, log)
	}
	s, err := d.Create(t.Context(), driver.Spec{Template: "app"})
	proctest.Must(t, err)
	if got := inSandbox(t, s, "cat /made; ls -d /usr/local/share 2>/dev/null; stat -c %u /srv/a"); got != "1\nA0\n" {
		t.Errorf("it sees %q", got)
	}
	spec.Name, spec.Steps = "owned", []driver.Step{{Kind: "COPY", Args: []string{"a", "/srv/a", "user"}, Hash: "h"}}
	b, log := built(t, d, spec)
	if b.Status != driver.BuildReady {
		t.Fatalf("%+v\n%s", b, log)
	}
	s, err = d.Create(t.Context(), driver.Spec{Template: "owned"})
	proctest.Must(t, err)
	if got := inSandbox(t, s, "stat -c %u:%a /srv/a; cat /srv/a"); got != "0:644\nA" {
		t.Errorf("of a file of a user's it sees %q", got)
	}
}
