package files

import (
	"io/fs"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// The directory "net" of a process that has ended and was not collected says
// "invalid argument". What is beside it is listed.
func TestADirectoryThatCannotBeReadIsLeftOut(t *testing.T) {
	cmd := exec.Command("cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	proctest.Must(t, cmd.Start())
	defer cmd.Wait()
	stdin.Close()
	stdout.Read(make([]byte, 1))
	dir := "/proc/" + strconv.Itoa(cmd.Process.Pid)
	for stat := ""; !strings.Contains(stat, "(cat) Z"); {
		b, err := readNow(dir + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		stat = string(b)
	}
	err = FS{}.Do(t.Context(), func(a *Actor) error {
		return a.Walk(dir, func(string, fs.FileMode) error { return nil })
	})
	if err != nil {
		t.Error(err)
	}
}
