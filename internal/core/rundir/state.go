//go:build linux

package rundir

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// A role that cannot work says why in files beside the sockets, which can be read
// whatever else does not answer: its last words (ROLE.error), written by itself
// before it ends; and, by whoever starts it, that it cannot start (ROLE.trouble).

// maxWords bounds what is kept of such a text, in bytes.
const maxWords = 2000

// SetLastWords writes down why a role ends; nil: it begins.
func (d *Dir) SetLastWords(role string, err error) {
	d.setText(role+".error", err)
}

// LastWords of a role; "" if it ended without any.
func (d *Dir) LastWords(role string) string { return d.text(role + ".error") }

// SetTrouble writes down why a role cannot start; nil: it works.
func (d *Dir) SetTrouble(role string, err error) { d.setText(role+".trouble", err) }

// Trouble returns why a role cannot start; "" if no reason is recorded.
func (d *Dir) Trouble(role string) string { return d.text(role + ".trouble") }

func (d *Dir) setText(name string, err error) {
	if err == nil {
		if rerr := os.Remove(d.Path(name)); rerr == nil || errors.Is(rerr, fs.ErrNotExist) {
			return
		}
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	_ = d.WriteFile(name, []byte(text[:min(len(text), maxWords)])) // on a full disk it is in the log alone
}

func (d *Dir) text(name string) string {
	b, err := d.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b[:min(len(b), maxWords)]))
}

// Describe says in one sentence why a role may not answer, and what to do: it does not
// run, cannot start, or is stopped. It sends nothing to the role.
func (d *Dir) Describe(role string) string {
	pid := d.Holder(role)
	if text := d.Trouble(role); text != "" {
		return text
	}
	if pid == 0 {
		return fmt.Sprintf("the %s is not running", role)
	}
	is := fmt.Sprintf("the %s (pid %d) ", role, pid)
	switch state, tracer := stateOf(pid); state {
	case 'T':
		return is + fmt.Sprintf("is stopped; kill -CONT %d lets it go on", pid)
	case 't':
		return is + fmt.Sprintf("is held by a debugger (pid %d)", tracer)
	case 'D':
		return is + "hangs in the kernel, as on a disk that does not answer"
	case 'Z', 'X', 0:
		return is + "has just ended"
	}
	return is + "does not answer"
}

// Stands reports whether a role is there and cannot move.
func (d *Dir) Stands(role string) bool {
	pid := d.Holder(role)
	if pid == 0 {
		return d.Trouble(role) != ""
	}
	state, _ := stateOf(pid)
	return state == 'T' || state == 't'
}

// stateOf reads state and tracer from /proc/PID/status; 0 if it is gone.
func stateOf(pid int) (state byte, tracer int) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, 0
	}
	for line := range bytes.Lines(b) {
		if v, ok := bytes.CutPrefix(line, []byte("State:\t")); ok && len(v) > 0 {
			state = v[0]
		}
		if v, ok := bytes.CutPrefix(line, []byte("TracerPid:\t")); ok {
			tracer, _ = strconv.Atoi(string(bytes.TrimSpace(v)))
		}
	}
	return state, tracer
}
