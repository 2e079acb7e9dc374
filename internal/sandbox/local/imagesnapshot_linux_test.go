package local

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/oci/ocitest"
	"github.com/tend-run/tend/internal/support/proctest"
)

func TestASnapshotOfAnImage(t *testing.T) {
	d, _ := boxed(t)
	p, img := ocitest.NewRegistry(t), shellImage(t)
	p.Push("library/web", "1", img)
	d.cfg.Registry.Mirrors = map[string][]*url.URL{"docker.io": {{Scheme: "http", Host: p.Host}}}
	wait := func(pull driver.Pull, spec driver.SnapshotSpec) (s driver.Snapshot) {
		t.Helper()
		s = proctest.Value(d.SnapshotImage(t.Context(), pull, spec))(t)
		if s.State != driver.Starting || s.Name != spec.Name {
			t.Errorf("at first: %+v", s)
		}
		proctest.Eventually(t, "it is made", func() bool {
			s = proctest.Value(d.GetSnapshot(t.Context(), string(s.ID)))(t)
			return s.State != driver.Starting
		})
		return s
	}
	if s := wait(driver.Pull{Name: "web:1"}, driver.SnapshotSpec{Name: "web", Tag: "1"}); s.State != driver.Ready || s.Tag != "1" {
		t.Fatalf("%+v", s)
	}
	container, err := d.Create(t.Context(), driver.Spec{Snapshot: "web:1"})
	proctest.Must(t, err)
	if got := shOut(t, container, "echo $(id -u) $(pwd) $GREETING; cat /second"); got != "33 /srv/app hello\n2" {
		t.Errorf("it sees %q", got)
	}
	wait(driver.Pull{Name: "web:1"}, driver.SnapshotSpec{Name: "web", Tag: "2", Run: driver.RunConfig{User: "0", Env: map[string]string{"GREETING": "bye"}}})
	container, err = d.Create(t.Context(), driver.Spec{Snapshot: "web:2"})
	proctest.Must(t, err)
	if got := shOut(t, container, "echo $(id -u) $(pwd) $GREETING"); got != "0 /srv/app bye\n" {
		t.Errorf("with settings of its own it sees %q", got)
	}

	// One that cannot be made says why, takes no tag, and can be removed.
	for name, c := range map[string]struct {
		image, want string
		most        int64
	}{
		"none":     {"none:1", "not found", 0},
		"larger":   {"web:1", "were asked for", 1},
		"of ours":  {p.Host + "/library/web:1", "no address that a sandbox may reach", 0},
		"metadata": {"169.254.169.254/x:1", "no address that a sandbox may reach", 0},
	} {
		s := wait(driver.Pull{Name: c.image}, driver.SnapshotSpec{Name: "web", Tag: "1", MaxBytes: c.most})
		if s.State != driver.Failed || name != "none" && !strings.Contains(s.Reason, c.want) {
			t.Errorf("%s: %+v", name, s)
		}
		proctest.Must(t, d.DeleteSnapshot(t.Context(), string(s.ID)))
		if _, err := d.GetSnapshot(t.Context(), string(s.ID)); !errors.Is(err, driver.ErrNotFound) {
			t.Errorf("%s: removed: %v", name, err)
		}
	}
	if s := proctest.Value(d.GetSnapshot(t.Context(), "web:1"))(t); s.State != driver.Ready {
		t.Errorf("%+v", s)
	}
	for i := range 3 * mostMaking {
		_, err := d.SnapshotImage(t.Context(), driver.Pull{Name: "A B"}, driver.SnapshotSpec{Name: "bad", Tag: "1"})
		if err != nil && !errors.Is(err, driver.ErrLimit) {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if all := proctest.Value(d.Snapshots(t.Context()))(t); len(all) > 2+2*mostMaking {
		t.Errorf("%d are remembered", len(all))
	}
}
