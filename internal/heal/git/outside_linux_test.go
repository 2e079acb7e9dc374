package git

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestOutsideIsInNoRepository: files are compared in a directory of their own, such as one in /tmp,
// above which anybody may have made a repository.
func TestOutsideIsInNoRepository(t *testing.T) {
	up := t.TempDir()
	mark := filepath.Join(t.TempDir(), "ran")
	for _, args := range [][]string{{"init", "-q"}, {"config", "diff.external", "touch " + mark}, {"config", "core.fsmonitor", "touch " + mark}, {"config", "core.pager", "touch " + mark}, {"config", "diff.noprefix", "nonsense"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = up
		proctest.Must(t, cmd.Run())
	}
	dir := filepath.Join(up, "dir")
	proctest.Must(t, os.Mkdir(dir, 0o755))
	for name, text := range map[string]string{"a": "1\n", "b": "2\n"} {
		proctest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	cmd := proctest.Value(Outside(t.Context(), dir, "diff", "--no-index", "--no-ext-diff", "--no-textconv", "--", "a", "b"))(t)
	out, err := cmd.Output()
	if ExitCode(err) != 1 || !strings.Contains(string(out), "-1\n+2\n") {
		t.Errorf("it is %q, %v", out, err)
	}
	if _, err := os.Lstat(mark); err == nil {
		t.Error("a program ran")
	}
}

// TestAConfigurationThatIsAFIFO: git waits for its other end for ever. It is not asked again.
func TestAConfigurationThatIsAFIFO(t *testing.T) {
	defer func(was time.Duration) { openTime = was }(openTime)
	openTime = time.Second
	root := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	for _, args := range [][]string{{"init", "-q"}, {"config", "include.path", "../fifo"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = root
		proctest.Must(t, cmd.Run())
	}
	proctest.Must(t, syscall.Mkfifo(filepath.Join(root, "fifo"), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := Open(ctx, root); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "stands still") {
		t.Errorf("it is %v, and the time of whoever asks: %v", err, ctx.Err())
	}
}
