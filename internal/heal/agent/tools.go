package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"
)

// Hands do the work of the tools. They contain all guards: which paths may be read and
// changed, where commands run, and what those may see. Their errors are shown to the model.
type Hands interface {
	Files
	Service
}

// Files of the project. Paths are relative to its root, with slashes.
type Files interface {
	// ReadFile returns fs.ErrNotExist for a file that is not there, and the size of the
	// whole file.
	ReadFile(path string, off, max int64) (data []byte, size int64, err error)
	// WriteFile makes directories that are missing.
	WriteFile(path string, data []byte) error
	List(dir string, max int) (files []File, more bool, err error)
	// Search looks for a regular expression in the files that a glob matches; ""
	// stands for all.
	Search(ctx context.Context, re, glob string, max int) (hits []Hit, more bool, err error)
}

// File is an entry of a directory.
type File struct {
	Path string // from the root
	Dir  bool
	Size int64
}

// Hit is a matching line. Text is the whole line: in a part of a line, a part of a secret
// would not be recognised.
type Hit struct {
	Path string
	Line int // from 1
	Text string
}

// Service is the service under repair, and the place where commands run.
type Service interface {
	// Exec runs a shell command to its end, for 120 s at most. The error says why it
	// could not be run, or what of it was taken back; a command that fails is none.
	Exec(ctx context.Context, command string) (Exec, error)
	// Restart starts the service anew and waits until it is healthy, for 30 s at most.
	Restart(ctx context.Context) (Restarted, error)
	// SetEnv adds a variable to the service's file of variables, and returns the names
	// of all that are in it. It refuses to change one that has a value.
	SetEnv(ctx context.Context, name, value string) (names []string, err error)
}

// Exec is the result of a command.
type Exec struct {
	Output   string // stdout and stderr, as they came, at most 256 KiB
	Code     int
	Signal   string // that ended it, or ""
	TimedOut bool
}

// Restarted is the result of a restart.
type Restarted struct {
	Healthy bool
	Message string // what the health check says
	Log     string // of this start, at most 64 KiB
}

const (
	maxFile   = 1 << 20 // that is read or written
	maxLines  = 2000    // of one read
	someLines = 500     // unless more are asked for
	maxList   = 500
	maxHits   = 100
	maxWait   = 120 // seconds
)

// tools are those of [Tools].
type tools struct {
	hands  Hands
	redact func(string) string
}

// Tools returns read, list, search, edit, exec, restart, wait, set_env and finish. Text is
// redacted before lines are taken from it; redact may be nil.
func Tools(h Hands, redact func(string) string) []Tool {
	if redact == nil {
		redact = func(s string) string { return s }
	}
	t := tools{h, redact}
	path := text("Path relative to the root of the project, with slashes.", 1, 1000)
	return []Tool{
		{Name: "read", Description: fmt.Sprintf("Show lines of a text file: %d from the first, unless asked for otherwise.", someLines),
			Run: decode(t.read),
			Schema: input(props{"path": path, "from": number("First line, counted from 1.", 1, 1e9), "lines": number("How many.", 1, maxLines)},
				"path")},
		{Name: "list", Description: "List a directory.", Run: decode(t.list),
			Schema: input(props{"path": text("Directory, relative to the root of the project. Default: the root.", 0, 1000)})},
		{Name: "search", Description: fmt.Sprintf("Find lines in files. At most %d are shown.", maxHits), Run: decode(t.search),
			Schema: input(props{"pattern": text("Regular expression (RE2).", 1, 1000),
				"glob": text("Which files, for instance src/**/*.ts. Default: all.", 0, 1000)}, "pattern")},
		{Name: "edit", Description: "Change a file. Give old and new to replace a text that is in the file exactly once, or content to write a whole file.", Changes: true, Run: decode(t.edit),
			Schema: input(props{"path": path, "old": text("What is to be replaced, exactly as it is in the file, long enough to be there once.",
				1, maxFile), "new": text("What to put there.", 0, maxFile), "content": text("The whole new file, in place of old and new.",
				0, maxFile)}, "path")},
		{Name: "exec", Description: "Run a shell command in the root of the project and wait for its end, 120 s at most. It runs confined: it sees the project and installed programs, has no network, and what it leaves running is ended. What it changes in the project is taken over at its end, but for what is protected, not committed or installed; what was left is said.", Noisy: true, Changes: true, Run: decode(t.exec),
			Schema: input(props{"command": text("A line for sh.", 1, 8000)}, "command")},
		{Name: "restart", Description: "Restart the service and wait until it is healthy, 30 s at most. If it is not, its new log is shown.",
			Noisy: true, Run: decode(t.restart),
			Schema: input(props{})},
		{Name: "wait", Description: "Wait, for instance for something that is still starting.", Run: decode(t.wait),
			Schema: input(props{"seconds": number("How long.", 1, maxWait)}, "seconds")},
		{Name: "set_env", Description: "Add a variable that is missing to the service's file of variables. The error, an example of variables " +
			"or a source must name it; an address, a key or what decides what is loaded needs the example's value. A value that is there is not " +
			"changed. Values are never shown.", Changes: true, Run: decode(t.setEnv),
			Schema: input(props{"name": map[string]any{"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,127}$",
				"description": "Name of the variable."}, "value": text("Its value, one line.", 0, 4000)}, "name", "value")},
		{Name: "finish", Description: "End your work: the service is healthy, or you cannot repair it.", Last: true, Run: decode(t.finish),
			// The one that is not strict: who only says it wrongly has finished all the same.
			Schema: map[string]any{"type": "object",
				"properties": props{"summary": text("What was wrong and what you changed, or why you could not repair it; one or two sentences.",
					0, 4000)}}},
	}
}

type props = map[string]any

func input(p props, required ...string) map[string]any {
	s := map[string]any{"type": "object", "properties": p, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

func text(doc string, least, most int) map[string]any {
	return map[string]any{"type": "string", "minLength": least, "maxLength": most, "description": doc}
}

func number(doc string, least, most int) map[string]any {
	return map[string]any{"type": "integer", "minimum": least, "maximum": most, "description": doc}
}

// decode makes a tool's function of one whose input has a type.
func decode[In any](do func(context.Context, In) (string, error)) func(context.Context, json.RawMessage) (string, error) {
	return func(ctx context.Context, raw json.RawMessage) (string, error) {
		var in In
		if err := json.Unmarshal(raw, &in); err != nil {
			return "", fmt.Errorf("the input was not understood: %w", err)
		}
		return do(ctx, in)
	}
}

// load reads a whole text file.
func (t tools) load(path string) (string, error) {
	data, size, err := t.hands.ReadFile(path, 0, maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%s: there is no such file", path)
	case err != nil:
		return "", err
	case size > int64(len(data)):
		return "", fmt.Errorf("%s: %d bytes are too many: at most %d can be read; use search, or exec with head and tail", path, size, maxFile)
	case strings.ContainsRune(string(data), 0):
		return "", fmt.Errorf("%s: it is no text, and has %d bytes", path, size)
	}
	return string(data), nil
}

func (t tools) read(_ context.Context, in struct {
	Path        string
	From, Lines int
}) (string, error) {
	s, err := t.load(in.Path)
	if err != nil {
		return "", err
	}
	if s == "" {
		return "", fmt.Errorf("%s: the file is empty", in.Path)
	}
	lines := strings.SplitAfter(t.redact(s), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	from := max(in.From, 1) - 1
	if in.Lines == 0 {
		in.Lines = someLines
	}
	if from >= len(lines) {
		return "", fmt.Errorf("%s: it has %d lines", in.Path, len(lines))
	}
	to := min(from+in.Lines, len(lines))
	out := strings.Join(lines[from:to], "")
	if from > 0 || to < len(lines) {
		out += fmt.Sprintf("\n[lines %d to %d of %d]", from+1, to, len(lines))
	}
	return out, nil
}

func (t tools) list(_ context.Context, in struct{ Path string }) (string, error) {
	if in.Path == "" {
		in.Path = "."
	}
	files, more, err := t.hands.List(in.Path, maxList)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, f := range files {
		if f.Dir {
			fmt.Fprintf(&b, "%s/\n", f.Path)
		} else {
			fmt.Fprintf(&b, "%s (%d bytes)\n", f.Path, f.Size)
		}
	}
	if more {
		b.WriteString("[there are more]\n")
	}
	if b.Len() == 0 {
		return "the directory is empty", nil
	}
	return b.String(), nil
}

func (t tools) search(ctx context.Context, in struct{ Pattern, Glob string }) (string, error) {
	hits, more, err := t.hands.Search(ctx, in.Pattern, in.Glob, maxHits)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, h := range hits {
		fmt.Fprintf(&b, "%s:%d: %s\n", h.Path, h.Line, strings.TrimRight(h.Text, "\r\n"))
	}
	if more {
		b.WriteString("[there are more]\n")
	}
	if b.Len() == 0 {
		return "nothing was found", nil
	}
	return b.String(), nil
}

func (t tools) exec(ctx context.Context, in struct{ Command string }) (string, error) {
	if strings.ContainsRune(in.Command, 0) {
		return "", errors.New("a command holds no NUL")
	}
	return shownExec(t.hands.Exec(ctx, in.Command))
}

// shownExec is what became of a command, for a model.
func shownExec(res Exec, err error) (string, error) {
	if err != nil { // what it has written may say why
		return res.Output, err
	}
	end := fmt.Sprintf("[exit %d]", res.Code)
	switch {
	case res.TimedOut:
		end = "[ended: it took too long]"
	case res.Signal != "":
		end = "[ended by " + res.Signal + "]"
	}
	if res.Output != "" && !strings.HasSuffix(res.Output, "\n") {
		res.Output += "\n"
	}
	return res.Output + end, nil
}

func (t tools) restart(ctx context.Context, _ struct{}) (string, error) {
	res, err := t.hands.Restart(ctx)
	switch {
	case err != nil:
		return res.Log, err
	case res.Healthy:
		return strings.TrimSpace("healthy. " + res.Message), nil
	}
	return res.Message + "\n" + res.Log, errors.New("the service is not healthy. What its check says, and its log since this start, follow")
}

func (t tools) wait(ctx context.Context, in struct{ Seconds int }) (string, error) {
	select {
	case <-time.After(time.Duration(min(max(in.Seconds, 1), maxWait)) * time.Second):
		return fmt.Sprintf("waited %d s", in.Seconds), nil
	case <-ctx.Done():
		return "", errors.New("the time of this attempt is up")
	}
}

func (t tools) setEnv(ctx context.Context, in struct{ Name, Value string }) (string, error) {
	if err := placeholder(in.Value, ""); err != nil {
		return "", err
	}
	if strings.ContainsAny(in.Value, "\x00\r\n") {
		return "", errors.New("a value is one line")
	}
	names, err := t.hands.SetEnv(ctx, in.Name, in.Value)
	if err != nil {
		return "", err
	}
	return "added. The variables are now: " + strings.Join(names, ", "), nil
}

func (t tools) finish(_ context.Context, in struct{ Summary string }) (string, error) {
	if blank(in.Summary) {
		return "it has said nothing", nil
	}
	return in.Summary, nil
}
