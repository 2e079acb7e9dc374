//go:build linux

package heal

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestHostileFilesOfARepository: whoever looks at what a repository declares, before they run
// anything of it, gets an answer, and no program of it runs.
func TestHostileFilesOfARepository(t *testing.T) {
	t.Parallel()
	bomb := "x: &a [x, x, x, x, x, x, x, x, x]\ny: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nz: &c [*b, *b, *b, *b, *b, *b, *b, *b]\nw: &d " +
		"[*c, *c, *c, *c, *c, *c, *c, *c]\nservices: [*d, *d, *d, *d, *d, *d]\n"
	for name, c := range map[string]struct {
		won  string
		args []string
		make func(dir string) error
	}{
		"a Procfile is a FIFO": {
			"it never ends", []string{"import", "Procfile"}, func(dir string) error { return syscall.Mkfifo(dir+"/Procfile", 0o644) },
		},
		"a Procfile is a device": {
			"memory", []string{"import", "Procfile"}, func(dir string) error { return os.Symlink("/dev/zero", dir+"/Procfile") },
		},
		"a Procfile has lines of escapes": {
			"a terminal obeys it", []string{"import", "Procfile"}, file("Procfile", "web\x1b[2J: true\x1b]0;owned\x07\nb: \u009b2J\n"),
		},
		"a process-compose file is a bomb": {
			"memory", []string{"import", "process-compose.yaml"},
			file("process-compose.yaml", strings.Replace(bomb, "services", "processes", 1)),
		},
		"a pm2 file is deep": {
			"the stack", []string{"import", "process.json"}, file("process.json", strings.Repeat(`{"apps":[`, 100_000)),
		},
		"a tend.yaml is a bomb": {"memory", []string{"config", "check"}, file("tend.yaml", bomb)},
		"a tend.yaml names a FIFO": {
			"it never ends", []string{"config", "check"},
			both(file("tend.yaml", "services:\n  web: {command: 'true', env_file: "+
				"fifo}\n"), func(dir string) error { return syscall.Mkfifo(dir+"/fifo", 0o644) }),
		},
		"a tend.yaml names a device": {
			"memory", []string{"config", "check"}, file("tend.yaml", "services:\n  web: {command: 'true', env_file: /dev/zero}\n"),
		},
		"a tend.yaml has names of escapes": {
			"a terminal obeys it", []string{"config", "check"},
			file("tend.yaml", "services:\n  \"web\\e[2J\": {command: \"true\\e]0;x\\a\", \"n\\u009b2J\": 1}\n"),
		},
		"a tend.yaml is a directory": {
			"a panic", []string{"config", "check"}, func(dir string) error { return os.Mkdir(dir+"/tend.yaml", 0o755) },
		},
		"a .env of it names programs": {
			"code, by looking", []string{"config", "check"},
			both(file("tend.yaml", "services:\n  web: {command: 'true', env_file: .env}\n"), file(".env", "A=$(touch ran)\nB=`touch "+
				"ran`\nLD_PRELOAD=./evil.so\n")),
		},
		"a package.json of it has programs": {
			"code, by looking", []string{"init"}, file("package.json", `{"scripts":{"dev":"touch ran","preinstall":"touch ran"}}`),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			proctest.Must(t, c.make(dir))
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			// No more memory than this, so that a bomb is seen.
			cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `ulimit -v 4000000; exec ` +
				`"$@"`, "sh", bin, "--state-dir", filepath.Join(dir, "state")}, c.args...)...)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			status := cmd.ProcessState.ExitCode()
			ended := ctx.Err() == nil && (err == nil || errors.As(err, &exit)) && status >= 0 && status <= 120
			if !ended || strings.Contains(string(out), "goroutine ") {
				t.Errorf("won: %s. %v: %.2000s", c.won, err, out)
			}
			for _, r := range string(out) {
				if unicode.IsControl(r) && r != '\n' && r != '\t' {
					t.Fatalf("won: %s. It writes %U: %q", c.won, r, out)
				}
			}
			if _, err := os.Lstat(filepath.Join(dir, "ran")); err == nil {
				t.Errorf("won: %s. A program of it ran", c.won)
			}
		})
	}
}

// file makes a file.
func file(name, text string) func(dir string) error {
	return func(dir string) error { return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644) }
}

func both(one, two func(dir string) error) func(dir string) error {
	return func(dir string) error { return errors.Join(one(dir), two(dir)) }
}
