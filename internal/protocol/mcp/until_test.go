package mcp

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tend-run/tend/process"
)

// quietProcess runs on without a word, and reads input from a time on.
type quietProcess struct {
	process.Process
	reads time.Time
}

func (p quietProcess) Wait(ctx context.Context, u process.Until) (process.WaitResult, error) {
	if u.Input && !p.reads.IsZero() {
		select {
		case <-time.After(time.Until(p.reads) + 120*time.Millisecond):
			return process.WaitResult{Met: true, Input: process.InputCertain}, nil
		case <-ctx.Done():
		}
	}
	<-ctx.Done()
	return process.WaitResult{}, context.Cause(ctx)
}

func (p quietProcess) Info(context.Context) (process.Info, error) { return process.Info{}, nil }

// TestAnAnswerComesWhenTheTimeIsUp: an agent that gives a command half a second has its answer then, and not a second later.
func TestAnAnswerComesWhenTheTimeIsUp(t *testing.T) {
	for _, limit := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 900 * time.Millisecond} {
		for _, reads := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				p := quietProcess{}
				if reads {
					p.reads = time.Now()
				}
				begun := time.Now()
				out, err := await(t.Context(), &sdk.CallToolRequest{Params: &sdk.CallToolParamsRaw{}}, &call{}, p, process.Until{}, begun.Add(limit))
				if err != nil || !out.timeout {
					t.Fatalf("%+v %v", out, err)
				}
				if over := time.Since(begun) - limit; over > 50*time.Millisecond {
					t.Errorf("an answer for %v comes %v late", limit, over)
				}
				if known := limit >= 100*time.Millisecond; reads && known != (out.input == process.InputCertain) {
					t.Errorf("after %v its input is %v", limit, out.input)
				}
			})
		}
	}
}
