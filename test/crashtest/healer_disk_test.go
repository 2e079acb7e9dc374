//go:build linux

package crashtest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/sdk/go"
)

// onFullDisk makes a project on a small disk of its own, which the log of its service has
// filled. after is what the service does once it has written to its log.
func onFullDisk(t *testing.T, after string) *project {
	t.Helper()
	proctest.Root(t)
	dir := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	p := &project{t: t, at: machine{}, dir: dir, addr: fmt.Sprintf("127.0.0.1:%d", proctest.FreePort(t))}
	proctest.Must(t, syscall.Mount("tmpfs", p.dir, "tmpfs", 0, "size=8m"))
	t.Cleanup(func() { _ = syscall.Unmount(p.dir, syscall.MNT_DETACH) })
	p.write("server.sh", "{ head -c 65536 /dev/zero >> logs/app.log; } 2>&1 || exit 1\n"+after+"exec "+self+"\n")
	p.write("part.txt", "good\n")
	p.write(".gitignore", "logs/\n")
	p.git("init", "-q", "-b", "main")
	p.git("add", "-A")
	p.git("commit", "-q", "-m", "base")
	p.write("mine.txt", "not committed\n")
	p.write("logs/app.log", "")
	f := proctest.Value(os.OpenFile(filepath.Join(p.dir, "logs/app.log"), os.O_APPEND|os.O_WRONLY, 0))(t)
	if _, err := io.Copy(f, strings.NewReader(strings.Repeat("a line of the log\n", 1<<20))); err == nil {
		t.Fatal("the disk is not full")
	}
	proctest.Must(t, f.Close())
	return p
}

// The log of a service has filled the disk that its project and its repository are on. So
// no checkpoint can be written there until there is space; what is cut is a log alone.
func TestADiskThatIsFullOfLogsIsRepaired(t *testing.T) {
	t.Parallel()
	p := onFullDisk(t, "")
	c := serve(t).Connect(t)
	p.up(c, "")
	e := repaired(t, c)
	if e.Status != tend.HealReady || e.Dirty {
		t.Fatalf("it is %+v", e.Episode)
	}
	service(t, c, "web", "ready", isReady)
	if got := p.git("status", "--porcelain"); got != "?? mine.txt\n" || p.read("mine.txt") != "not committed\n" {
		t.Errorf("the project is %q with %q", got, p.read("mine.txt"))
	}
}

// A playbook that changes no file of the project has no checkpoint. So none that would change
// one is carried out in its wake, though the service fails for that now.
func TestNoPlaybookChangesFilesWithoutACheckpoint(t *testing.T) {
	t.Parallel()
	p := onFullDisk(t, `[ -e part.txt ] || { echo "FileNotFoundError: [Errno 2] No such file or directory: 'part.txt'"; exit 1; }`+"\n")
	proctest.Must(t, os.Remove(filepath.Join(p.dir, "part.txt")))
	c := serve(t).Connect(t)
	p.up(c, "")
	e := repaired(t, c)
	if len(e.Tries) == 0 || e.Tries[0].Name != "disk-full" || strings.Contains(e.Tries[0].Text, "deleted-file") {
		t.Fatalf("it is %+v", e.Episode)
	}
	if got := p.git("status", "--porcelain"); got != " D part.txt\n?? mine.txt\n" {
		t.Errorf("the project is %q", got)
	}
	// It is a repair of its own, with one.
	proctest.Value(c.Heal(t.Context(), "web", false))(t)
	proctest.Eventually(t, "another repair is over", func() bool { return repaired(t, c).ID != e.ID })
	if next := repaired(t, c); next.Status != tend.HealReady || p.read("part.txt") != "good\n" {
		t.Errorf("then it is %+v", next.Episode)
	}
}
