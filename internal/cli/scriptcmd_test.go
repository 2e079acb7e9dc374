//go:build linux

package cli

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/tend-run/tend/internal/lib/backoff"
)

// scriptCommands are the words that the scripts have besides testscript's.
func scriptCommands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"allexamples": allExamplesCmd, "example": exampleCmd, "fetch": fetchCmd, "gone": goneCmd, "killpid": killpidCmd, "roles": rolesCmd, "running": runningCmd,
		"saved": savedCmd, "term": termCmd, "until": untilCmd,
	}
}

// fetch [-H name:value] [-d body] URL: prints the status, then the body.
func fetchCmd(ts *testscript.TestScript, neg bool, args []string) {
	method, body, header := "GET", "", http.Header{}
	for len(args) > 2 {
		switch args[0] {
		case "-H":
			k, v, _ := strings.Cut(args[1], ":")
			header.Set(k, v)
		case "-d":
			method, body = "POST", args[1]
		}
		args = args[2:]
	}
	if neg || len(args) != 1 {
		ts.Fatalf("usage: fetch [-H name:value] [-d body] URL")
	}
	req, err := http.NewRequest(method, args[0], strings.NewReader(body))
	ts.Check(err)
	req.Header = header
	res, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer res.Body.Close()
	fmt.Fprintln(ts.Stdout(), res.StatusCode)
	_, err = io.Copy(ts.Stdout(), res.Body)
	ts.Check(err)
}

// until command args…: runs it until it succeeds, for what no event reports.
func untilCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: until command args…")
	}
	for start := time.Now(); ; time.Sleep(5 * backoff.Next(start)) { // each look is a program
		err := ts.Exec(args[0], args[1:]...)
		if err == nil {
			return
		}
		if time.Since(start) > 2*time.Minute {
			ts.Fatalf("%s never succeeded: %v", strings.Join(args, " "), err)
		}
	}
}

// roles: puts the pids of the roles into $anchor, $keeper and $server.
func rolesCmd(ts *testscript.TestScript, _ bool, _ []string) {
	pids := roles(ts.Getenv("TEND_STATE_DIR"), ts.Getenv("TEND_URL"))
	for _, name := range []string{"anchor", "keeper", "server"} {
		if pids[name] == 0 {
			ts.Fatalf("the daemon has no %s: %v", name, pids)
		}
		ts.Setenv(name, fmt.Sprint(pids[name]))
	}
}

// killpid PID: SIGKILL to a role of the script's own daemon.
func killpidCmd(ts *testscript.TestScript, _ bool, args []string) {
	pid, err := strconv.Atoi(args[0])
	ts.Check(err)
	ts.Check(syscall.Kill(pid, syscall.SIGKILL))
}

// term: SIGTERM to the background commands of the script.
func termCmd(ts *testscript.TestScript, _ bool, _ []string) {
	for _, cmd := range ts.BackgroundCmds() {
		ts.Check(cmd.Process.Signal(syscall.SIGTERM))
	}
}

// saved NAME: puts the last stdout, without the space around it, into $NAME.
func savedCmd(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// gone PID: waits until the process has ended. Nobody tells of the end of a
// process that is not our child.
func goneCmd(ts *testscript.TestScript, _ bool, args []string) {
	var pid int
	_, err := fmt.Sscan(args[0], &pid)
	ts.Check(err)
	for start := time.Now(); alive(pid); time.Sleep(backoff.Next(start)) {
		if time.Since(start) > 2*time.Minute {
			ts.Fatalf("process %d does not end", pid)
		}
	}
}

// running WORD…: a process of this machine has exactly this command line.
func runningCmd(ts *testscript.TestScript, neg bool, args []string) {
	want := []byte(strings.Join(args, "\x00") + "\x00")
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	ts.Check(err)
	found := false
	for _, f := range files {
		line, err := os.ReadFile(f)
		found = found || err == nil && bytes.Equal(line, want)
	}
	if found == neg {
		ts.Fatalf("a process %q exists: %v", args, found)
	}
}
