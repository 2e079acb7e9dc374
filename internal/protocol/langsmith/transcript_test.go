package langsmith_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/support/proctest"
)

var update = flag.Bool("update", false, "write the answers into testdata/transcripts")

// TestTranscripts sends again what each SDK was recorded to send ("> " lines)
// and compares the answers ("< " lines). test/conformance/langsmith/record records.
// Ids of boxes, pids, times, addresses and directories stand as words.
// Neighbouring pieces of one stream are one line: how output is cut is no
// promise.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			b := proctest.Value(os.ReadFile(file))(t)
			text := strings.TrimSpace(string(b))
			r := &replay{server: serve(t, nil)}
			r.t = t
			var got []string
			for exchange := range strings.SplitSeq(text, "\n\n") {
				lines := strings.Split(exchange, "\n")
				if path, ok := strings.CutPrefix(lines[0], "> WS "); ok {
					got = append(got, strings.Join(r.ws(path, lines), "\n"))
				} else {
					got = append(got, strings.Join(r.http(lines), "\n"))
				}
			}
			if *update {
				proctest.Must(t, os.WriteFile(file, []byte(strings.Join(got, "\n\n")+"\n"), 0o644))
				return
			}
			if d := cmp.Diff(strings.Split(text, "\n"), strings.Split(strings.Join(got, "\n\n"), "\n")); d != "" {
				t.Errorf("-recorded +got:\n%s", d)
			}
		})
	}
}

// replay is a server to which a transcript is sent.
type replay struct {
	*server
	id string // of the box that the transcript has made
}

var variables = []struct {
	re *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`"pid":\d+`), `"pid":PID`},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`), "TIME"},
	{regexp.MustCompile(`/[^" ]*/boxes/BOX/work`), "WORK"},
	{regexp.MustCompile(`http://127\.0\.0\.1:\d+`), "URL"},
}

// words replaces what differs from run to run.
func (r *replay) words(s string) string {
	if r.id != "" {
		s = strings.ReplaceAll(s, r.id, "BOX")
	}
	for _, v := range variables {
		s = v.re.ReplaceAllString(s, v.to)
	}
	return s
}

func (r *replay) http(lines []string) []string {
	r.t.Helper()
	var request []string
	for _, line := range lines {
		if rest, ok := strings.CutPrefix(line, ">"); ok {
			request = append(request, strings.TrimPrefix(rest, " "))
		}
	}
	method, path, _ := strings.Cut(request[0], " ")
	var headers []string
	body, form := "", false
	for i, line := range request[1:] {
		if line == "" {
			end := "\n"
			if form {
				end = "\r\n"
			}
			body = strings.Join(request[i+2:], end)
			break
		}
		form = form || strings.Contains(line, "multipart/form-data")
		headers = append(headers, line)
	}
	status, answer := r.call(method, strings.ReplaceAll(path, "BOX", r.id), body, headers...)
	if method == "POST" && strings.HasSuffix(path, "/boxes") {
		var box struct {
			ID string `json:"id"`
		}
		proctest.Must(r.t, json.Unmarshal([]byte(answer), &box))
		r.id = box.ID
	}
	got := []string{}
	for _, line := range request {
		got = append(got, strings.TrimRight("> "+line, " "))
	}
	got = append(got, fmt.Sprintf("< %d", status))
	if answer != "" {
		got = append(got, "<", "< "+r.words(answer))
	}
	return got
}

// piece is a frame as far as it can be joined with the next.
type piece struct {
	Type   string `json:"type"`
	Offset int64  `json:"offset"`
	Data   string `json:"data"`
}

func (p piece) output() bool { return p.Type == "stdout" || p.Type == "stderr" }

// ws sends the client's lines and reads as far as the recorded answers go
// before it sends the next.
func (r *replay) ws(path string, lines []string) []string {
	r.t.Helper()
	ws, _, err := websocket.Dial(r.t.Context(), r.url+strings.ReplaceAll(path, "BOX", r.id), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { ws.CloseNow() })
	c := &wsConn{ws, r.t}
	got := []string{lines[0]}
	for _, line := range joined(lines[1:]) {
		if sent, ok := strings.CutPrefix(line, "> "); ok {
			c.send(sent)
			got = append(got, line)
			continue
		}
		var want piece
		wanted := strings.TrimPrefix(line, "< ")
		_ = json.Unmarshal([]byte(wanted), &want) // "close 1000" is none
		frame, text := r.frame(c)
		for want.output() && frame.Type == want.Type && len(frame.Data) < len(want.Data) {
			next, _ := r.frame(c)
			if next.Type != frame.Type {
				r.t.Fatalf("%+v came within %s", next, wanted)
			}
			frame.Data += next.Data
			text = encode(frame)
		}
		got = append(got, "< "+r.words(text))
	}
	return got
}

// frame reads a frame, or the close.
func (r *replay) frame(c *wsConn) (piece, string) {
	r.t.Helper()
	_, rd, err := c.Reader(r.t.Context())
	if err != nil {
		return piece{}, fmt.Sprintf("close %d", websocket.CloseStatus(err))
	}
	b := proctest.Value(io.ReadAll(rd))(r.t)
	var p piece
	proctest.Must(r.t, json.Unmarshal(b, &p))
	if p.output() {
		return p, encode(p)
	}
	return p, string(b)
}

func encode(p piece) string {
	b, err := json.Marshal(p)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// joined joins neighbouring pieces of one stream among the recorded lines.
func joined(lines []string) (out []string) {
	var last piece
	for _, line := range lines {
		var p piece
		if text, ok := strings.CutPrefix(line, "< "); !ok || json.Unmarshal([]byte(text), &p) != nil || !p.output() {
			last = piece{}
			out = append(out, line)
			continue
		}
		if p.Type == last.Type {
			last.Data += p.Data
			out[len(out)-1] = "< " + encode(last)
			continue
		}
		last = p
		out = append(out, "< "+encode(p))
	}
	return out
}
