package mcp

import (
	"context"
	"errors"
	"fmt"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tend-run/tend/process"
)

// until is what a call waits for; the fields of run, input and wait. No field: the exit.
type until struct {
	Match    string  `json:"match,omitempty" jsonschema:"wait for an output line matching this RE2 regexp"`
	Port     int     `json:"port,omitempty" jsonschema:"wait until it listens on this TCP port"`
	QuietMS  int     `json:"quiet_ms,omitempty" jsonschema:"wait until no output for this long"`
	ForInput bool    `json:"for_input,omitempty" jsonschema:"wait until it reads input (prompts)"`
	TimeoutS float64 `json:"timeout_s,omitempty" jsonschema:"stop waiting after this; it runs on. Default 30"`
	Tokens   int     `json:"max_tokens,omitempty" jsonschema:"most tokens of the answer. Default 2000"`
}

// maxPattern bounds a pattern in bytes: a program is made of it, which is larger by far.
const maxPattern = 4 << 10

// condition is what the arguments ask for. from is where output counts.
func (u *until) condition(from [4]int64) (c process.Until, err error) {
	n := 0
	for _, set := range []bool{u.Match != "", u.Port != 0, u.QuietMS != 0, u.ForInput} {
		if set {
			n++
		}
	}
	switch {
	case len(u.Match) > maxPattern:
		return c, &process.InvalidError{Field: "match", Reason: fmt.Sprintf("has %d bytes; the limit is %d", len(u.Match), maxPattern)}
	case n > 1:
		return c, &process.InvalidError{Field: "match, port, quiet_ms, for_input",
			Reason: "are given together; give one, or none to wait for the exit"}
	case u.Port < 0 || u.Port > 65535:
		return c, &process.InvalidError{Field: "port", Reason: fmt.Sprintf("is %d; 1 to 65535 are allowed", u.Port)}
	case u.QuietMS < 0 || u.QuietMS > int(maxWait.Milliseconds()):
		return c, &process.InvalidError{Field: "quiet_ms", Reason: fmt.Sprintf("is %d; 1 to %d are allowed", u.QuietMS, maxWait.Milliseconds())}
	}
	return process.Until{Match: u.Match, From: from, Port: u.Port, Quiet: time.Duration(u.QuietMS) * time.Millisecond, Input: u.ForInput}, nil
}

// patience is how long the call waits.
func (u *until) patience(n *notes) time.Duration {
	if u.TimeoutS == 0 {
		return defaultWait
	}
	most := maxWait.Seconds()
	if !(u.TimeoutS >= 0 && u.TimeoutS <= most) { // not a number, too
		n.add("timeout_s was %g; 0 to %g are allowed, and the nearest was used.", u.TimeoutS, most)
	}
	return time.Duration(min(max(u.TimeoutS, 0), most) * float64(time.Second))
}

// outcome is how a wait ended.
type outcome struct {
	res     process.WaitResult
	met     bool
	timeout bool
	// input is what the process is seen to do when the time is up.
	input process.InputState
}

// await waits until the condition holds, the process has exited or the time is up, and
// tells the client meanwhile how far it is. The error is that of the call's context.
func await(ctx context.Context, req *sdk.CallToolRequest, c *call, p process.Process, cond process.Until,
	deadline time.Time) (out outcome, err error) {
	waiting, stop := context.WithDeadline(ctx, deadline)
	type answer struct {
		res process.WaitResult
		err error
	}
	done := make(chan answer, 1)
	go func() {
		for {
			res, err := p.Wait(waiting, cond)
			if errors.Is(err, process.ErrUnavailable) && pause(waiting) == nil {
				continue // a role is being replaced
			}
			done <- answer{res, err}
			return
		}
	}()
	defer func() { stop(); <-done }()
	begin := time.NewTimer(time.Until(deadline) - lookAhead)
	defer begin.Stop()
	var looked <-chan outcome
	looking, enough := context.WithDeadline(ctx, deadline.Add(lookAfter))
	defer func() {
		enough()
		if looked != nil {
			<-looked
		}
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for beats := 1; ; beats++ {
		select {
		case got := <-done:
			done <- got
			switch {
			case got.err == nil:
				return outcome{res: got.res, met: got.res.Met}, nil
			case ctx.Err() != nil:
				return out, context.Cause(ctx)
			case errors.Is(got.err, context.DeadlineExceeded):
				if looked == nil {
					looked = look(looking, p)
				}
				out = <-looked
				looked, out.timeout = nil, true
				return out, nil
			}
			return out, got.err
		case <-begin.C:
			looked = look(looking, p)
		case <-tick.C:
			progress(ctx, req, p)
			if beats%15 == 0 {
				c.beat()
			}
		}
	}
}

// It takes some looks to be sure of what reads its input, so they begin before the time is up, and go on a little where it was
// short: an answer comes within 50 ms of its timeout_s.
const (
	lookAhead = 300 * time.Millisecond
	lookAfter = 30 * time.Millisecond
)

// look tells once what a process is like that may be waited for no longer.
func look(ctx context.Context, p process.Process) <-chan outcome {
	told := make(chan outcome, 1)
	go func() {
		res, err := p.Wait(ctx, process.Until{Input: true})
		if err != nil {
			res = process.WaitResult{}
		}
		told <- outcome{res: process.WaitResult{Exit: res.Exit}, input: res.Input}
	}()
	return told
}

// pause lets a role come back.
func pause(ctx context.Context) error {
	select {
	case <-time.After(50 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// retried makes a call again while no keeper answers. It must be safe to repeat.
func retried[T any](ctx context.Context, do func(context.Context) (T, error)) (T, error) {
	ctx, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	for {
		v, err := do(ctx)
		if !errors.Is(err, process.ErrUnavailable) || pause(ctx) != nil {
			return v, err
		}
	}
}

// progress tells a client that asked for it how far a process is.
func progress(ctx context.Context, req *sdk.CallToolRequest, p process.Process) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return
	}
	info, err := p.Info(process.Brief(ctx))
	if err != nil {
		return
	}
	text := ""
	for _, s := range info.Streams {
		text += fmt.Sprintf(", %s %d bytes", s.Stream, s.End)
	}
	age := time.Since(info.Started)
	_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ // a client that left is noticed elsewhere
		ProgressToken: token, Progress: age.Seconds(), Message: fmt.Sprintf("running %.0f s%s", age.Seconds(), text),
	})
}
