package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Script is the whole file given with -script.
type Script struct {
	Mode        string            `json:"mode"`         // "sequence" (default) or "match"
	OnExhausted string            `json:"on_exhausted"` // "error" (default), "repeat_last", "end_turn"
	Vars        map[string]string `json:"vars"`         // defaults for {{NAME}}; -var overrides
	Turns       []Turn            `json:"turns"`
}

// Turn is one reply of the model.
type Turn struct {
	Name         string            `json:"name"`
	Expect       []string          `json:"expect"`        // substrings that the last user message must hold
	ExpectNot    []string          `json:"expect_not"`    // substrings that it must not hold
	ExpectSystem []string          `json:"expect_system"` // substrings of the system prompt
	ExpectTools  []string          `json:"expect_tools"`  // names that the request must offer as tools
	Forbid       []string          `json:"forbid"`        // substrings that must appear nowhere in the request body
	Capture      map[string]string `json:"capture"`       // NAME -> regexp over the last user message; group 1 (or 0)
	Reply        []Block           `json:"reply"`
	StopReason   string            `json:"stop_reason"` // default: tool_use if a tool is called, else end_turn
	Usage        *Usage            `json:"usage"`
	Faults       []Fault           `json:"faults"` // each is spent, in order, before the reply is given
	Repeat       bool              `json:"repeat"` // mode match: may answer more than once
}

// Block is one content block of a reply: exactly one of Text, Thinking, Tool.
type Block struct {
	Text     string          `json:"text"`
	Thinking string          `json:"thinking"`
	Tool     string          `json:"tool"`
	ID       string          `json:"id"`
	Input    json.RawMessage `json:"input"`
	RawInput string          `json:"raw_input"` // sent as it stands: malformed tool input
}

// Usage is the token count a reply claims.
type Usage struct {
	Input  int `json:"input_tokens"`
	Output int `json:"output_tokens"`
}

// Fault is one deliberate misbehaviour.
type Fault struct {
	Kind       string `json:"kind"`        // status, rate_limit, overloaded, server_error, slow, cut, truncate, stream_error, hang, drop, garbage
	Times      int    `json:"times"`       // default 1; slow does not count as an answer
	Status     int    `json:"status"`      // kind status
	RetryAfter string `json:"retry_after"` // header, kinds status, rate_limit and overloaded
	DelayMS    int    `json:"delay_ms"`    // slow: before each event; hang: how long (default 60000)
	After      int    `json:"after"`       // cut, truncate, stream_error: events sent first (at least 1)
	Until      string `json:"until"`       // slow, streaming: after `after` events it waits until this file is there
	Message    string `json:"message"`
}

// pick chooses the turn that answers. The turn is not spent until its reply
// has been sent, so a client's retry after a fault meets the same turn.
func (s *server) pick(req *asked, body []byte) (int, *apiErr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ts := s.script.Turns
	if s.script.Mode == "match" {
		var why []string
		for i := range ts {
			if s.used[i] && !ts[i].Repeat {
				continue
			}
			if m := s.mismatch(ts[i], req, body); m != "" {
				why = append(why, fmt.Sprintf("turn %d (%s): %s", i, ts[i].Name, m))
				continue
			}
			return i, nil
		}
		if s.script.OnExhausted == "end_turn" {
			return -1, nil
		}
		return 0, bad("fakellm script: no turn matches: %s", strings.Join(why, "; "))
	}
	i := s.next
	if i >= len(ts) {
		switch {
		case s.script.OnExhausted == "repeat_last" && len(ts) > 0:
			i = len(ts) - 1
		case s.script.OnExhausted == "end_turn":
			return -1, nil
		default:
			return 0, bad("fakellm script: all %d turns are spent", len(ts))
		}
	}
	if m := s.mismatch(ts[i], req, body); m != "" {
		return 0, bad("fakellm script: turn %d (%s): %s; the last user message was: %s", i, ts[i].Name, m, clip(req.last, 600))
	}
	return i, nil
}

func (s *server) mismatch(t Turn, req *asked, body []byte) string {
	sub := func(x string) string { return expand(x, s.vars) }
	for _, x := range t.Expect {
		if !strings.Contains(req.last, sub(x)) {
			return fmt.Sprintf("wanted %q in the last user message", sub(x))
		}
	}
	for _, x := range t.ExpectNot {
		if strings.Contains(req.last, sub(x)) {
			return fmt.Sprintf("did not want %q in the last user message", sub(x))
		}
	}
	for _, x := range t.ExpectSystem {
		if !strings.Contains(req.system, sub(x)) {
			return fmt.Sprintf("wanted %q in the system prompt", sub(x))
		}
	}
	for _, x := range t.ExpectTools {
		if !slices.Contains(req.tools, x) {
			return fmt.Sprintf("wanted a tool named %q on offer", x)
		}
	}
	for _, x := range t.Forbid {
		if strings.Contains(string(body), sub(x)) {
			return fmt.Sprintf("found forbidden %q in the request", sub(x))
		}
	}
	return ""
}

// fault gives the fault to inject this time, or nil when all are spent.
func (s *server) fault(ti int, t Turn) *Fault {
	if ti < 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faultPos[ti] >= len(t.Faults) {
		return nil
	}
	f := t.Faults[s.faultPos[ti]]
	s.faultHit[ti]++
	if s.faultHit[ti] >= max(1, f.Times) {
		s.faultPos[ti]++
		s.faultHit[ti] = 0
	}
	return &f
}

func (s *server) bind(t Turn, last string) (map[string]string, *apiErr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := maps.Clone(s.vars)
	maps.Copy(v, s.seen)
	for k, re := range t.Capture {
		rx, err := regexp.Compile(re)
		if err != nil {
			return nil, bad("fakellm script: capture %s: %v", k, err)
		}
		m := rx.FindStringSubmatch(last)
		if m == nil {
			return nil, bad("fakellm script: capture %s: %q matches nothing in: %s", k, re, clip(last, 600))
		}
		v[k] = m[len(m)-1]
		s.seen[k] = v[k]
	}
	return v, nil
}

func (s *server) advance(ti int, m *reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.usage.Input += m.usage.Input
	s.usage.Output += m.usage.Output
	if ti < 0 {
		return
	}
	s.used[ti] = true
	if s.script.Mode == "sequence" && ti == s.next {
		s.next++
	}
}

func expand(s string, vars map[string]string) string {
	for k, v := range vars {
		s = strings.ReplaceAll(s, "{{"+k+"}}", v)
	}
	return s
}

func expandJSON(s string, vars map[string]string) string {
	for k, v := range vars {
		q, _ := json.Marshal(v)
		s = strings.ReplaceAll(s, "{{"+k+"}}", string(q[1:len(q)-1]))
	}
	return s
}
