//go:build linux

package cli

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// The scripts run the examples of the help texts with two words: example runs
// one, and allexamples fails unless all were run.

// example [-later FILE] LINE: runs a line of some help text in the shell. With
// -later it only becomes a file, for what has to run in the background.
func exampleCmd(ts *testscript.TestScript, neg bool, args []string) {
	file := "example.sh"
	later := len(args) == 3 && args[0] == "-later"
	if later {
		file, args = args[1], args[2:]
	}
	if len(args) != 1 || later && neg {
		ts.Fatalf("usage: example [-later FILE] LINE")
	}
	done, err := os.OpenFile(filepath.Join(ts.Getenv("WORK"), "examples.done"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	ts.Check(err)
	_, err = io.WriteString(done, args[0]+"\n")
	ts.Check(err)
	ts.Check(done.Close())
	line := args[0]
	if later {
		line = "exec " + line // signals are for tend, not for the shell
	}
	ts.Check(os.WriteFile(ts.MkAbs(file), []byte(line+"\n"), 0o600))
	if later {
		return
	}
	if err := ts.Exec("sh", file); (err != nil) != neg {
		ts.Fatalf("%s: %v", args[0], err)
	}
}

// allexamples: what was run is what the help texts show.
func allExamplesCmd(ts *testscript.TestScript, _ bool, _ []string) {
	done := strings.Split(strings.TrimSpace(ts.ReadFile("examples.done")), "\n")
	shown := shownExamples(ts)
	for _, line := range shown {
		if !slices.Contains(done, line) {
			ts.Logf("not run: %s", line)
		}
	}
	for _, line := range done {
		if !slices.Contains(shown, line) {
			ts.Logf("in no help text: %s", line)
		}
	}
	slices.Sort(done)
	slices.Sort(shown)
	if !slices.Equal(slices.Compact(done), slices.Compact(shown)) {
		ts.Fatalf("%d examples were run, %d are shown", len(done), len(shown))
	}
}

// shownExamples returns the command lines of all help texts, as a terminal of
// 80 columns has them, without the remarks.
func shownExamples(ts *testscript.TestScript) (lines []string) {
	var visit func(n *node, path []string)
	visit = func(n *node, path []string) {
		if n.has("hidden") || n.name == "completion" { // its lines are of three shells; the script completion_live runs them
			return
		}
		cmd := exec.Command(filepath.Join(binaries, "tend"), append(slices.Clone(path), "--help")...)
		help, err := cmd.Output()
		ts.Check(err)
		found := 0
		for line := range strings.Lines(string(help)) {
			line = strings.TrimSuffix(line, "\n")
			text, ok := strings.CutPrefix(line, "    tend ")
			if !ok {
				continue
			}
			if len(line) > 80 {
				ts.Fatalf("longer than 80 columns: %s", line)
			}
			found++
			text, _, _ = strings.Cut(text, "  ") // two spaces begin a remark
			lines = append(lines, "tend "+strings.TrimSuffix(text, " "))
		}
		if found == 0 {
			ts.Fatalf("tend %s --help shows no example", strings.Join(path, " "))
		}
		for _, c := range n.open().verbs {
			visit(c, append(slices.Clone(path), c.name))
		}
	}
	visit(program(new(grammar)), nil)
	return lines
}
