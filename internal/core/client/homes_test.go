//go:build linux

package client_test

import (
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// A home that is gone, or closed, is none, also right after it was there.
func TestAHomeInAContainerComesAndGoes(t *testing.T) {
	m, _ := containerManager(t)
	s := newContainerDirs(t).spec(t)
	s.Harden = hardened
	in, _ := inContainer(t, m, s)
	where := func(want string) {
		t.Helper()
		for range 3 {
			if out, exit := said(t, in, s.ID, process.Spec{Shell: "pwd"}); out != want || exit == nil || exit.Code != 0 {
				t.Errorf("it runs in %q, %+v; want %q", out, exit, want)
			}
		}
	}
	for range 2 {
		where("/root")
		said(t, in, s.ID, process.Spec{Shell: "mv /root /elsewhere", Dir: "/"})
		where("/")
		said(t, in, s.ID, process.Spec{Shell: "echo > /root", Dir: "/"})
		where("/")
		said(t, in, s.ID, process.Spec{Shell: "rm /root; mv /elsewhere /root", Dir: "/"})
	}
	where("/root")
	proctest.Must(t, m.Containers().End(t.Context(), s.ID))
}
