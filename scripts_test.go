package tend_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/scene"
)

// fake puts a program of this name, which prints a line and ends with a status,
// first into the PATH of the environment that it returns.
func fake(t *testing.T, name, body string) []string {
	t.Helper()
	dir := t.TempDir()
	scene.Must(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o700))
	return append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

func TestMakeSaysWhichGoItNeeds(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		want       string // in the message; "" if this Go will do
	}{
		{"Debian's old Go is refused", "echo go1.19.8", "is Go 1.19.8"},
		{"the release before is refused", "echo go1.25.9", "is Go 1.25.9"},
		{"two digits are compared as numbers", "echo go1.9", "is Go 1.9"},
		{"the first that will do", "echo go1.26.0", ""},
		{"a later one", "echo go1.100.1", ""},
		{"one with an experiment in its name", "echo go1.26.8-X:nodwarf5", ""},
		{"one that does not work", "echo broken >&2; exit 1", "does not work here"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "scripts/need-go")
			cmd.Env = fake(t, "go", tt.body)
			out, err := cmd.CombinedOutput()
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("refused: %s", out)
			case tt.want != "" && err == nil:
				t.Errorf("accepted")
			case tt.want != "" && (!strings.Contains(string(out), tt.want) || !strings.Contains(string(out), "go.dev/dl")):
				t.Errorf("the message is %q, want %q and where to get a Go", out, tt.want)
			}
		})
	}
}

func TestInstallNamesWhatIsMissing(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want string // packages that are missing
	}{
		{"a command and a file that are there", []string{"sh=dash", "/etc/passwd=base-passwd"}, ""},
		{"a command", []string{"sh=dash", "no-such-command-x=some-package"}, "some-package"},
		{"a file", []string{"/no/such/header.h=libsome-dev", "sh=dash"}, "libsome-dev"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "scripts/install", tt.args...)
			cmd.Env = fake(t, "id", "echo 1000") // nothing is installed for this test
			out, err := cmd.CombinedOutput()
			if tt.want == "" && (err != nil || len(out) > 0) {
				t.Errorf("%v: %s", err, out)
			}
			if tt.want != "" && (err == nil || !strings.Contains(string(out), "apt-get install "+tt.want+"\n")) {
				t.Errorf("%v: %q does not ask for %s alone", err, out, tt.want)
			}
		})
	}
}
