package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tend-run/tend/process"
)

// answer is what a tool says: text for the model, and facts for programs, which models
// are not shown.
type answer struct {
	text  string
	facts map[string]any
	more  []sdk.Content // after the text
}

func text(format string, args ...any) *answer { return &answer{text: fmt.Sprintf(format, args...)} }

// result is the answer in the form of the protocol.
func (a *answer) result() *sdk.CallToolResult {
	r := &sdk.CallToolResult{Content: append([]sdk.Content{&sdk.TextContent{Text: a.text}}, a.more...)}
	if a.facts != nil {
		r.Meta = sdk.Meta{"tend": a.facts}
	}
	return r
}

// report says what became of a process, and shows its output from an offset on.
func (f *Face) report(ctx context.Context, p process.Process, out *outcome, cond process.Until, from [4]int64, head int,
	n notes, tokens int) (*answer, error) {
	info, err := retried(ctx, p.Info)
	if err != nil {
		return nil, err
	}
	if info.Exit == nil {
		info.Exit = out.res.Exit
	}
	title := fmt.Sprintf("%s %s\n", info.ID, state(&info, out, cond))
	if info.Exit != nil && !info.TreeGone && open(&info) {
		n.add("A process that it has started holds its output open.")
	}
	end := ""
	if len(n) > 0 {
		end = "Note: " + strings.Join(n, " ") + "\n"
	}
	body, err := streamsText(ctx, p, &info, from, 0, head, false, tokens*3-cost(title)-cost(end))
	if err != nil {
		return nil, err
	}
	return &answer{title + body + end, facts(&info, out), nil}, nil
}

func open(info *process.Info) bool {
	for _, s := range info.Streams {
		if !s.EOF {
			return true
		}
	}
	return false
}

// state says in a few words what a process does, or how it ended.
func state(info *process.Info, out *outcome, cond process.Until) string {
	age := time.Since(info.Started)
	if e := info.Exit; e != nil {
		age = e.Time.Sub(info.Started)
		s := fmt.Sprintf("exited with code %d", e.Code)
		switch {
		case e.Lost():
			s = "was lost: how it ended is not known (" + e.Cause.String() + ")"
		case e.Signal != 0:
			s = "was ended by " + process.SignalName(e.Signal)
		}
		switch e.Cause {
		case process.CauseTimeout:
			s += ", killed at kill_after_s"
		case process.CauseOOM:
			s += ", killed by the kernel for want of memory"
		case process.CauseKilled:
			s += ", as it was told to"
		}
		if s += " after " + short(age); out.met || cond == (process.Until{}) || cond.Input {
			return s
		}
		return s + ", before " + awaited(cond)
	}
	s := "runs (pid " + fmt.Sprint(info.PID) + ", " + short(age) + ")"
	if info.State == process.Stopped {
		s = "is stopped by a signal (pid " + fmt.Sprint(info.PID) + ")"
	}
	switch {
	case out.met && cond.Match != "":
		s += fmt.Sprintf(", and its %s matches at %d: %.200q", out.res.Stream, out.res.Offset, out.res.Match)
	case out.met && cond.Port != 0:
		for _, l := range out.res.Listening {
			s += fmt.Sprintf(", listens on %s", l.Address)
		}
	case out.met && cond.Quiet != 0:
		s += ", quiet for " + short(cond.Quiet)
	case out.met && cond.Input:
		s += ", " + reading(out.res.Input)
	case out.timeout:
		s += "; the time to wait for " + awaited(cond) + " is up, and it runs on"
		if out.input != process.InputNone {
			s += "; it " + reading(out.input)
		}
		s += ". Use wait, output, input or stop with its id"
	}
	return s
}

func reading(in process.InputState) string {
	switch in {
	case process.InputPassword:
		return "waits for a password"
	case process.InputCertain:
		return "waits for input"
	}
	return "seems to wait for input"
}

func awaited(c process.Until) string {
	switch {
	case c.Match != "":
		return fmt.Sprintf("a line that matches %.100q", c.Match)
	case c.Port != 0:
		return fmt.Sprintf("port %d", c.Port)
	case c.Quiet != 0:
		return "quiet of " + short(c.Quiet)
	case c.Input:
		return "its exit, or for it to read input,"
	}
	return "its exit"
}

// short is a duration with the digits that matter.
func short(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 100*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// facts are for programs.
func facts(info *process.Info, out *outcome) map[string]any {
	m := map[string]any{"id": info.ID, "pid": info.PID, "state": info.State.String()}
	if e := info.Exit; e != nil {
		m["state"] = process.Exited.String()
		m["exit"] = map[string]any{"code": e.Code, "signal": e.Signal, "cause": e.Cause.String()}
	}
	if out != nil {
		m["met"], m["timeout"] = out.met, out.timeout
		if in := max(out.input, out.res.Input); in != process.InputNone {
			m["input"] = in.String()
		}
	}
	for _, s := range info.Streams {
		m[s.Stream.String()] = map[string]any{"base": s.Base, "end": s.End, "eof": s.EOF}
	}
	return m
}
