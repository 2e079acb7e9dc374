package envd

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/tend-run/tend/process"
)

// Request headers. Those that begin with Tend- are ours and opt-in: without
// them the face behaves as the original does.
const (
	headerTimeout = "Connect-Timeout-Ms"

	// headerFrom on Connect replays output from offsets on.
	headerFrom = "Tend-From"
	// headerKillScope: "tree" makes SendSignal, and the timeout of Start,
	// reach all descendants.
	headerKillScope = "Tend-Kill-Scope"
	// headerSignal on SendSignal names any signal, in place of the message's.
	headerSignal = "Tend-Signal"
	// headerID on Start chooses the process's ID, which makes Start safe to
	// repeat; in the responses of Start and Connect it is the ID.
	headerID = "Tend-Id"
	// headerOffset in the response of Connect says where each stream starts.
	headerOffset = "Tend-Offset"
)

// timeoutOf parses Connect-Timeout-Ms. ok is false for what connect-go
// refuses; it then words the refusal.
func timeoutOf(h http.Header) (d time.Duration, ok bool) {
	v := h.Get(headerTimeout)
	if v == "" {
		return 0, true
	}
	if len(v) > 10 {
		return 0, false
	}
	n, err := strconv.ParseUint(v, 10, 63)
	if err != nil {
		return 0, false
	}
	return time.Duration(n) * time.Millisecond, true
}

// killScopeOf returns which processes a signal or a timeout reaches.
func killScopeOf(h http.Header) (process.Scope, error) {
	switch v := strings.ToLower(strings.TrimSpace(h.Get(headerKillScope))); v {
	case "", "leader":
		return process.ScopeLeader, nil
	case "group":
		return process.ScopeGroup, nil
	case "tree":
		return process.ScopeTree, nil
	default:
		return 0, errorf(connect.CodeInvalidArgument, "%s is %q; leader (the default), group and tree are allowed", headerKillScope, v)
	}
}

// signalOf parses a signal by number or by name, with or without SIG.
func signalOf(v string) (int, error) {
	v = strings.ToUpper(strings.TrimSpace(v))
	if n, err := strconv.Atoi(v); err == nil {
		if n < 1 || n > 64 {
			return 0, errorf(connect.CodeInvalidArgument, "%s is %d; 1 to 64 are allowed", headerSignal, n)
		}
		return n, nil
	}
	if sig := process.SignalNumber(v); sig != 0 {
		return sig, nil
	}
	return 0, errorf(connect.CodeInvalidArgument, "%s is %q; give a number or a name such as INT or SIGUSR1", headerSignal, v)
}

// fromOf parses Tend-From into the offsets at which each stream starts. now
// holds the streams' ends, where a stream that is not named starts.
//
//	Tend-From: 0                      all streams from their first byte
//	Tend-From: stdout=1234,stderr=0   each from its offset
func fromOf(v string, now [4]int64) ([4]int64, error) {
	v = strings.TrimSpace(v)
	if v == "" || v == "now" {
		return now, nil
	}
	if n, err := strconv.ParseInt(v, 10, 64); err == nil && n >= 0 {
		return [4]int64{0, n, n, n}, nil
	}
	from := now
	for part := range strings.SplitSeq(v, ",") {
		name, text, ok := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.ParseInt(text, 10, 64)
		s, known := streamNames[name]
		if !ok || err != nil || n < 0 || !known {
			return from, errorf(connect.CodeInvalidArgument,
				"%s has %q; give one offset for all streams (0), or stdout=N, stderr=N, pty=N with commas between", headerFrom, part)
		}
		from[s] = n
	}
	return from, nil
}

var streamNames = map[string]process.Stream{"stdout": process.Stdout, "stderr": process.Stderr, "pty": process.PTY}

// offsets is the value of Tend-Offset.
func offsets(info *process.Info, from [4]int64) string {
	var parts []string
	for _, s := range info.Streams {
		if int(s.Stream) < len(from) {
			parts = append(parts, fmt.Sprintf("%s=%d", s.Stream, from[s.Stream]))
		}
	}
	return strings.Join(parts, ",")
}
