package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tend-run/tend/process"
)

type waitArgs struct {
	ID string `json:"id"`
	until
	inSandbox
}

func (f *Face) wait(ctx context.Context, req *sdk.CallToolRequest, c *call, a waitArgs) (*answer, error) {
	var n notes
	cond, err := a.condition([4]int64{})
	if err != nil {
		return nil, err
	}
	p, err := f.processOf(ctx, c, a.Sandbox, a.ID)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(a.patience(&n))
	tokens := allowance(&n, a.Tokens)
	out, err := await(ctx, req, c, p, cond, deadline)
	if err != nil {
		return nil, err
	}
	return f.report(ctx, p, &out, cond, [4]int64{}, 0, n, tokens)
}

type stopArgs struct {
	ID     string  `json:"id"`
	Signal string  `json:"signal,omitempty" jsonschema:"only send this (INT, HUP, ...); KILL kills at once. Default: TERM, then KILL what is left after grace_s"`
	GraceS float64 `json:"grace_s,omitempty" jsonschema:"default 5"`
	inSandbox
}

// maxGrace bounds how long stop waits before it kills.
const maxGrace = 300 * time.Second

func (f *Face) stop(ctx context.Context, req *sdk.CallToolRequest, c *call, a stopArgs) (*answer, error) {
	var n notes
	if !(a.GraceS >= 0 && a.GraceS <= maxGrace.Seconds()) {
		return nil, &process.InvalidError{Field: "grace_s", Reason: fmt.Sprintf("is %g; 0 to %g are allowed", a.GraceS, maxGrace.Seconds())}
	}
	sig := int(15)
	if a.Signal != "" {
		if sig = process.SignalNumber(a.Signal); sig == 0 {
			return nil, &process.InvalidError{Field: "signal", Reason: fmt.Sprintf("is %.40q; give a name as INT, TERM, HUP or KILL", a.Signal)}
		}
	}
	p, err := f.processOf(ctx, c, a.Sandbox, a.ID)
	if err != nil {
		return nil, err
	}
	if a.Signal != "" && sig != 9 {
		if err := p.Signal(ctx, sig, process.ScopeTree); err != nil && !(c.again && errors.Is(err, process.ErrExited)) {
			return nil, err
		}
		return text("%s was sent %s.\n", p.ID(), process.SignalName(sig)), nil
	}
	if sig != 9 {
		err := p.Signal(ctx, sig, process.ScopeTree)
		if err == nil {
			grace := 5 * time.Second
			if a.GraceS > 0 {
				grace = time.Duration(a.GraceS * float64(time.Second))
			}
			_, err = await(ctx, req, c, p, process.Until{TreeGone: true}, time.Now().Add(grace))
		}
		if err != nil && !errors.Is(err, process.ErrExited) {
			return nil, err
		}
	}
	killed, err := retried(ctx, p.Kill)
	if err != nil && !errors.Is(err, process.ErrExited) {
		return nil, err
	}
	if err == nil && sig != 9 {
		n.add("Something was left of it, and was killed.")
	}
	if len(killed.Survivors) > 0 {
		n.add("Still there, in the kernel: pids %v.", killed.Survivors)
	}
	if len(killed.Strays) > 0 {
		n.add("May have been of it and were not killed: pids %v.", killed.Strays)
	}
	info, err := retried(ctx, p.Info)
	if err != nil {
		return nil, err
	}
	return &answer{fmt.Sprintf("%s %s\n%s", info.ID, state(&info, &outcome{met: true}, process.Until{}), strings.Join(append(n, ""), "\n")),
		facts(&info, nil), nil}, nil
}

type listArgs struct {
	All    bool `json:"all,omitempty" jsonschema:"also those that have exited"`
	Tokens int  `json:"max_tokens,omitempty"`
	inSandbox
}

func (f *Face) list(ctx context.Context, _ *sdk.CallToolRequest, c *call, a listArgs) (*answer, error) {
	var n notes
	left := allowance(&n, a.Tokens)*3 - 150 - cost(strings.Join(n, " "))
	at, err := f.placeOf(ctx, c, a.Sandbox)
	if err != nil {
		return nil, err
	}
	infos, err := retried(ctx, func(ctx context.Context) ([]process.Info, error) {
		return at.access.Processes().List(ctx, process.Filter{Live: !a.All})
	})
	if err != nil {
		return nil, err
	}
	return listing{
		lines: len(infos),
		line: func(i int) string {
			info := &infos[len(infos)-1-i] // the newest first
			name := ""
			if info.Spec.Name != "" {
				name = " " + info.Spec.Name
			}
			return fmt.Sprintf("%s%s %s: %s\n", info.ID, name, state(info, &outcome{met: true}, process.Until{}), oneLine(info.Spec.Command(), 120))
		},
		none: "(none)\n", more: "%d older ones are left out; give more max_tokens.",
	}.answer(n, left), nil
}

// oneLine is the beginning of a text, without what would be another line.
func oneLine(s string, most int) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "�")), " ")
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
