//go:build linux

package dist

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestARelease builds one, and uses it: each part of the test needs what the one before
// has made.
func TestARelease(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1790000000")
	first := build(t, former, "archive,deb,image,sbom")
	unpacked := t.TempDir()
	unpack(t, proctest.Value(os.ReadFile(first.file(".tar.gz")))(t), unpacked)
	unpacked = filepath.Join(unpacked, strings.TrimSuffix(filepath.Base(first.file(".tar.gz")), ".tar.gz"))
	program := filepath.Join(unpacked, "tend")

	t.Run("the checksums are those of all files", func(t *testing.T) {
		files := proctest.Value(filepath.Glob(first.dir + "/tend-*"))(t)
		sums := string(proctest.Value(os.ReadFile(first.dir + "/SHA256SUMS"))(t))
		for _, path := range files {
			line := fmt.Sprintf("%x  %s\n", sha256.Sum256(proctest.Value(os.ReadFile(path))(t)), filepath.Base(path))
			if !strings.Contains(sums, line) {
				t.Errorf("SHA256SUMS has not the line %s", line)
			}
		}
		if n := strings.Count(sums, "\n"); n != len(files) || n != 4 {
			t.Errorf("%d lines for %d files", n, len(files))
		}
	})
	t.Run("the archive has a program that works, its pages and completions", func(t *testing.T) {
		if out := proctest.Value(exec.Command(program, "version").Output())(t); !strings.Contains(string(out), former) {
			t.Errorf("tend version says %s", out)
		}
		for path, want := range map[string]string{"man1/tend-run.1": ".TH TEND", "completions/bash": "complete", "completions/zsh": "#compdef tend", "completions/fish": "complete", "LICENSE": "Apache License"} {
			if text := proctest.Value(os.ReadFile(filepath.Join(unpacked, path)))(t); !bytes.Contains(text, []byte(want)) {
				t.Errorf("%s has no %q", path, want)
			}
		}
	})
	t.Run("make install puts the same below a prefix, over a program that runs", func(t *testing.T) {
		tree, to := t.TempDir(), t.TempDir()
		command(t, nil, "install", "-D", "scripts/make-install", tree+"/scripts/make-install")
		command(t, nil, "install", "-D", program, tree+"/bin/tend")
		command(t, nil, "install", "-D", "/bin/sleep", to+"/opt/tend/bin/tend")
		running := exec.CommandContext(t.Context(), to+"/opt/tend/bin/tend", "600")
		proctest.Must(t, running.Start())
		command(t, nil, tree+"/scripts/make-install", to, "/opt/tend")
		if err := running.Process.Signal(syscall.Signal(0)); err != nil {
			t.Error(err)
		}
		for _, path := range []string{"bin/tend", "share/man/man1/tend-run.1", "share/bash-completion/completions/tend", "share/zsh/site-functions/_tend", "share/fish/vendor_completions.d/tend.fish"} {
			if info, err := os.Stat(to + "/opt/tend/" + path); err != nil || info.Size() == 0 {
				t.Errorf("%s: %v", path, err)
			}
		}
		if out := proctest.Value(exec.Command(to+"/opt/tend/bin/tend", "version").Output())(t); !strings.Contains(string(out), former) {
			t.Errorf("it is %s", out)
		}
		if out, err := exec.Command(tree+"/scripts/make-install", to, "opt").CombinedOutput(); err == nil || !strings.Contains(string(out), "give an absolute path") {
			t.Errorf("a prefix that is relative: %v %s", err, out)
		}
	})
	t.Run("what is on the way to a release comes before it", func(t *testing.T) {
		dev := pack(t, unpacked, program, "0.1.0-dev+abc123", "1790000000", "deb")
		version := strings.TrimSpace(string(proctest.Value(exec.Command("dpkg-deb", "-f", dev.file(".deb"), "Version").Output())(t)))
		if version != "0.1.0~dev.20260921141320.abc123" {
			t.Errorf("its package is %s", version)
		}
		command(t, nil, "dpkg", "--compare-versions", version, "lt", "0.1.0")
	})
	t.Run("each module that is linked in is listed", func(t *testing.T) {
		var bom struct {
			BOMFormat, SerialNumber string
			Components              []struct{ Name, Version, PURL string }
		}
		proctest.Must(t, json.Unmarshal(proctest.Value(os.ReadFile(first.file(".cdx.json")))(t), &bom))
		listed := map[string]bool{}
		for _, c := range bom.Components {
			listed[c.Name+" "+c.Version] = c.PURL != ""
		}
		info := proctest.Value(buildinfo.ReadFile(program))(t)
		for _, m := range info.Deps {
			if !listed[m.Path+" "+m.Version] {
				t.Errorf("%s %s is not listed", m.Path, m.Version)
			}
		}
		if !listed["std "+info.GoVersion] || bom.BOMFormat != "CycloneDX" || !strings.HasPrefix(bom.SerialNumber, "urn:uuid:") || len(info.Deps) < 20 {
			t.Errorf("%d modules; the list is %+v", len(info.Deps), bom)
		}
	})
	t.Run("what is packed again has the same bytes", func(t *testing.T) {
		again := pack(t, unpacked, program, former, "1790000000", "archive,deb,image,sbom")
		for _, ending := range []string{".tar.gz", ".deb", ".oci.tar", ".cdx.json"} {
			if !bytes.Equal(proctest.Value(os.ReadFile(first.file(ending)))(t), proctest.Value(os.ReadFile(again.file(ending)))(t)) {
				t.Errorf("%s differs", ending)
			}
		}
	})
	t.Run("the package loses nothing", func(t *testing.T) {
		// The same program, with another version written in it.
		text := proctest.Value(os.ReadFile(program))(t)
		next := filepath.Join(t.TempDir(), "tend")
		proctest.Must(t, os.WriteFile(next, bytes.ReplaceAll(text, []byte(former), []byte(latest)), 0o755))
		second := pack(t, unpacked, next, latest, "1790000060", "deb")
		packageLife(t, enter(t, overlay, t.TempDir()), first.file(".deb"), second.file(".deb"), "dpkg", "--no-triggers", "--force-unsafe-io", "--force-depends")
	})
	t.Run("the recipes of the document work", func(t *testing.T) { recipesWork(t, program) })
	t.Run("the image runs", func(t *testing.T) { imageRuns(t, first.file(".oci.tar")) })
}
