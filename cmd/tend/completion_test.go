package main

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func completionScript(t *testing.T, shell string) string {
	t.Helper()
	var out, errs bytes.Buffer
	inv := &invocation{out: &out, errs: &errs, getenv: func(string) string { return "" }}
	if status := execute(t.Context(), inv, []string{"completion", shell}); status != 0 {
		t.Fatalf("tend completion %s: %d %s", shell, status, errs.String())
	}
	return out.String()
}

func TestBashCompletes(t *testing.T) {
	script := completionScript(t, "bash")
	for _, tt := range []struct {
		words []string // the last one is being typed
		want  []string // among the answers
		never []string
	}{
		{[]string{"tend", "st"}, []string{"status"}, []string{"start", "server"}},
		{[]string{"tend", ""}, []string{"run", "ps", "logs"}, []string{"server"}},
		{[]string{"tend", "run", "--na"}, []string{"--name"}, []string{"--no-input"}},
		{[]string{"tend", "--url", "x", "logs", "--ta"}, []string{"--tail"}, nil},
		{[]string{"tend", "completion", ""}, []string{"bash", "zsh", "fish"}, nil},
		{[]string{"tend", "logs", "w"}, []string{"web"}, nil},
	} {
		t.Run(strings.Join(tt.words, " "), func(t *testing.T) {
			// Ids come from tend ps, which is a function here.
			program := script + "\ntend() { echo web; }\nCOMP_WORDS=(\"$@\"); COMP_CWORD=$(( $# - 1 )); _tend; printf '%s\\n' \"${COMPREPLY[@]}\""
			out, err := exec.CommandContext(t.Context(), "bash", append([]string{"-c", program, "bash"}, tt.words...)...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			got := strings.Fields(string(out))
			for _, w := range tt.want {
				if !slices.Contains(got, w) {
					t.Errorf("got %q; want %q among them", got, w)
				}
			}
			for _, w := range tt.never {
				if slices.Contains(got, w) {
					t.Errorf("got %q, with %q among them", got, w)
				}
			}
		})
	}
}

func TestCompletionScriptsKnowEveryVisibleCommand(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script := completionScript(t, shell)
		for _, name := range []string{"run", "ps", "logs", "attach", "input", "signal", "kill", "wait", "rm", "events", "top", "serve", "status", "upgrade", "completion", "version"} {
			if !strings.Contains(script, name) {
				t.Errorf("the %s script lacks %s", shell, name)
			}
		}
		if strings.Contains(script, "listeners") {
			t.Errorf("the %s script shows the hidden server role", shell)
		}
	}
}
