package envd_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestInputByPIDAnswersAsByTag: a process that is remembered by its pid answers
// as one that is looked up each time, which a tag always is.
func TestInputByPIDAnswersAsByTag(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, c := range []struct{ name, process string }{
		{"a pipe", `{"process":{"cmd":"cat"},"stdin":true,"tag":"x"}`},
		{"a terminal", `{"process":{"cmd":"cat"},"pty":{"size":{"cols":80,"rows":24}},"tag":"x"}`},
		{"no input", `{"process":{"cmd":"sleep","args":["60"]},"tag":"x"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := s.stream("Start", c.process).started()
			send := func(selector, input string) string {
				status, text := s.call("SendInput", `{"process":`+selector+`,"input":`+input+`}`)
				return fmt.Sprint(status, " ", text)
			}
			pid := fmt.Sprintf(`{"pid":%d}`, p.pid)
			for _, input := range []string{`{"stdin":"aGk="}`, `{"pty":"aGk="}`, `{"stdin":""}`, `{"pty":""}`, `{}`, `null`} {
				want := send(`{"tag":"x"}`, input)
				for range 2 {
					if d := cmp.Diff(want, send(pid, input)); d != "" {
						t.Errorf("%s: -by tag +by pid\n%s", input, d)
					}
				}
			}
			if status, text := s.call("SendSignal", `{"process":`+pid+`,"signal":"SIGNAL_SIGKILL"}`); status != 200 {
				t.Fatalf("SendSignal: %d %s", status, text)
			}
			p.rest()
			want := fmt.Sprintf(`404 {"code":"not_found","message":"process with pid %d not found"}`, p.pid)
			for _, input := range []string{`{"stdin":"aGk="}`, `{"pty":"aGk="}`, `{"stdin":""}`, `{}`} {
				if d := cmp.Diff(want, send(pid, input)); d != "" {
					t.Errorf("%s after the end: -want +got\n%s", input, d)
				}
			}
		})
	}
}
