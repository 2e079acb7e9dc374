package envd_test

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/support/proctest"
)

var update = flag.Bool("update", false, "write the answers into testdata/transcripts")

// TestTranscripts replays requests as clients send them ("> " lines) and
// compares the answers ("< " lines). Pids, dates and IDs stand as words; the
// body of a stream is shown as one line a message, after its flags. The
// exchanges of one file go to one server, in order.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text := proctest.Value(os.ReadFile(file))(t)
			s := serve(t, nil)
			var got strings.Builder
			for exchange := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
				var comment, request []string
				for line := range strings.SplitSeq(exchange, "\n") {
					switch {
					case strings.HasPrefix(line, "#"):
						comment = append(comment, line)
					case strings.HasPrefix(line, ">"):
						request = append(request, strings.TrimPrefix(strings.TrimPrefix(line, ">"), " "))
					}
				}
				for _, line := range comment {
					got.WriteString(line + "\n")
				}
				for _, line := range request {
					got.WriteString(strings.TrimRight("> "+line, " ") + "\n")
				}
				for _, line := range s.replay(request) {
					got.WriteString(strings.TrimRight("< "+line, " ") + "\n")
				}
				got.WriteString("\n")
			}
			if *update {
				proctest.Must(t, os.WriteFile(file, []byte(strings.TrimRight(got.String(), "\n")+"\n"), 0o644))
				return
			}
			if d := cmp.Diff(strings.TrimSpace(string(text)), strings.TrimSpace(got.String())); d != "" {
				t.Errorf("-recorded +got:\n%s", d)
			}
		})
	}
}

var variable = regexp.MustCompile(`"pid":\d+|pid \d+ `)

// replay sends one request and renders the answer.
func (s *server) replay(request []string) []string {
	s.t.Helper()
	method, path, _ := strings.Cut(request[0], " ")
	var headers []string
	var body []byte
	for i, line := range request[1:] {
		if line == "" {
			body = []byte(strings.Join(request[i+2:], "\n"))
			break
		}
		headers = append(headers, line)
	}
	framed := strings.Contains(strings.Join(headers, "\n"), "application/connect+")
	if framed && body != nil {
		body = envelope(body)
	}
	c := s.dial()
	c.send(method, path, headers, body)
	res := c.response()
	answer := proctest.Value(io.ReadAll(res.Body))(s.t)
	lines := []string{res.Status}
	for name, values := range res.Header {
		if name != "Date" {
			value := strings.Join(values, ", ")
			if name == "Tend-Id" {
				value = "ID"
			}
			lines = append(lines, name+": "+value)
		}
	}
	if len(res.TransferEncoding) > 0 {
		lines = append(lines, "Transfer-Encoding: "+strings.Join(res.TransferEncoding, ", "))
	}
	sort.Strings(lines[1:])
	if len(answer) > 0 {
		lines = append(lines, "")
	}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "application/connect+") {
		for len(answer) >= 5 {
			n := 5 + int(binary.BigEndian.Uint32(answer[1:]))
			lines = append(lines, fmt.Sprintf("%02x %s", answer[0], compact(string(answer[5:n]))))
			answer = answer[n:]
		}
	} else {
		for line := range bytes.Lines(answer) {
			lines = append(lines, compact(strings.TrimRight(string(line), "\n")))
		}
	}
	for i := range lines {
		lines[i] = variable.ReplaceAllStringFunc(lines[i], func(m string) string {
			if strings.Contains(m, "4194305") { // a pid no process has
				return m
			}
			return regexp.MustCompile(`\d+`).ReplaceAllString(m, "PID")
		})
	}
	return lines
}
