//go:build linux

package testkeeper

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// endTime bounds the end of the roles. The launcher gives its anchor 26 seconds.
const endTime = time.Minute

// end ends the roles as a person does, by a signal to the launcher. It is an error if
// the launcher ends with a status, or if somebody still holds what the roles write to
// when the time is up: whoever is left is named, and killed.
func end(stateDir string, launcher *exec.Cmd, limit time.Duration) error {
	launcher.Process.Signal(syscall.SIGTERM)
	ended := make(chan error, 1)
	go func() { ended <- launcher.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			err = fmt.Errorf("the launcher ended with %w", err)
		}
		return err
	case <-time.After(limit):
	}
	names := map[int]string{}
	for {
		for pid, name := range left(stateDir) {
			names[pid] = name
			syscall.Kill(pid, syscall.SIGKILL)
		}
		select {
		case <-ended:
			return fmt.Errorf("the roles have not ended after %v; killed: %v", limit, names)
		case <-time.After(10 * time.Millisecond): // one that was just being started is found the next time
		}
	}
}

// mark is in the environment of all roles.
func mark(stateDir string) string { return "TEND_TEST_KEEPER=" + stateDir }

// left are the roles on a state directory, which have its mark, and the processes in
// their cgroups, by their pids.
func left(stateDir string) map[int]string {
	group := "\x00" // of none
	if text, err := os.ReadFile(filepath.Join(stateDir, "identity")); err == nil {
		if f := strings.Fields(string(text)); len(f) > 3 {
			group = "/" + f[3] + "/"
		}
	}
	found := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		env, _ := os.ReadFile(dir + "/environ") // empty: it has ended
		groups, _ := os.ReadFile(dir + "/cgroup")
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err == nil && (bytes.Contains(env, []byte(mark(stateDir)+"\x00")) || bytes.Contains(groups, []byte(group))) {
			line, _ := os.ReadFile(dir + "/cmdline")
			found[pid] = strings.ReplaceAll(strings.Trim(string(line), "\x00"), "\x00", " ")
		}
	}
	return found
}
