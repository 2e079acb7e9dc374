package project

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/heal/playbook"
	"github.com/tend-run/tend/internal/support/proctest"
)

// TestAProjectBehindALink: rules find the cause in a project whose directory is configured by
// a symbolic link, whether a program writes its paths with the link or without.
func TestAProjectBehindALink(t *testing.T) {
	base := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	real, link := filepath.Join(base, "real"), filepath.Join(base, "link")
	proctest.Must(t, os.MkdirAll(filepath.Join(real, "web"), 0o755))
	proctest.Must(t, os.MkdirAll(filepath.Join(real, ".next"), 0o755))
	proctest.Must(t, os.Symlink(real, link))
	for _, root := range []string{real, link} {
		l, _, err := Open(Config{ID: "e1", Root: root, Cwd: filepath.Join(root, "web"), StateDir: t.TempDir()})
		proctest.Must(t, err)
		for _, named := range []string{real, root} {
			plans, err := l.Match(t.Context(), playbook.Evidence{
				Dir: filepath.Join(root, "web"), Service: "web", Argv: []string{"next", "dev"}, Signal: "exit",
				Log: "Error: Cannot find module '" + named + "/.next/server/pages/index.js'\n",
			})
			proctest.Must(t, err)
			if len(plans) != 1 || plans[0].Book != "stale-cache" {
				t.Errorf("with the root %s and a log of %s: %+v", filepath.Base(root), filepath.Base(named), plans)
			}
		}
		proctest.Must(t, l.Close())
	}
}
