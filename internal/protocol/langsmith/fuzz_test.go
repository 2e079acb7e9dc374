package langsmith

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/process"
)

// exchange is what an SDK sent at once, as it was recorded: a request, or the
// messages of a WebSocket (method WS).
type exchange struct {
	method, path, kind string // kind is the content type
	bodies             []string
}

// recorded returns the exchanges of testdata/transcripts, which begin the search
// of the fuzz targets. paths are with "box" for the id of a box.
func recorded(f *testing.F) (all []exchange) {
	f.Helper()
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatal("no transcripts", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for block := range strings.SplitSeq(string(text), "\n\n") {
			var sent []string
			for line := range strings.Lines(block) {
				if line, ok := strings.CutPrefix(line, ">"); ok {
					sent = append(sent, strings.Trim(line, " \n"))
				}
			}
			var x exchange
			x.method, x.path, _ = strings.Cut(strings.ReplaceAll(strings.ReplaceAll(sent[0], "BOX", "box"), "/recorded", "/box"), " ")
			if x.bodies = sent[1:]; x.method != "WS" {
				end := max(0, slices.Index(x.bodies, ""))
				for _, header := range x.bodies[:end] {
					if kind, ok := strings.CutPrefix(header, "content-type: "); ok {
						x.kind = kind
					}
				}
				x.bodies = []string{strings.Join(x.bodies[min(end+1, len(x.bodies)):], "\r\n")}
			}
			all = append(all, x)
		}
	}
	return all
}

// FuzzBodies sends bodies to each path that takes one: what is wrong is told as
// such in the form of the protocol, and is nobody's fault but the client's.
func FuzzBodies(f *testing.F) {
	paths := []string{
		"POST /v2/sandboxes/boxes", "PATCH /v2/sandboxes/boxes/box", "POST /v2/sandboxes/boxes/box/snapshot", "POST /v2/sandboxes/boxes/box/service-url",
		"POST /v2/sandboxes/boxes/box/download-url", "POST /langsmith/box/execute", "POST /langsmith/box/execute/stream/start", "POST /langsmith/box/execute/stream/resume",
	}
	for i, bodies := range [][]string{
		{`{"name":"a","idle_ttl_seconds":-1,"delete_after_stop_seconds":9223372036854775807,"vcpus":1e308,"mem_bytes":-1,"labels":{"":""},"env_vars":{"A=":"b"},"wait_for_ready":true,"timeout":1e300}`,
			`{"snapshot":"a","snapshot_id":"b","mount_config":{"x":1}}`, `{"run_config":{"user":"\u0000","work_dir":"x","env_vars":{"":""}}}`, `{"timeout":-1}`, `null`, `[]`, "\xff", `{"name":1}`},
		{`{"name":"b","idle_ttl_seconds":0,"run_config":{"work_dir":"/x"}}`, `{"name":""}`, `{"persistent":false}`},
		{`{"name":"s","tag":"x"}`},
		{`{"port":80,"expires_in_seconds":1}`, `{"port":65536}`, `{"port":-1,"access":"\n"}`},
		{`{"path":"/a","expires_in_seconds":1,"content_type":"a\r\nb","content_disposition":"inline"}`, `{"path":"/a","expires_in_seconds":-9223372036854775808}`},
		{`{"command":"true","timeout":1e308}`, `{"command":"a\u0000b"}`, `{"command":"","shell":"/bin/sh"}`, `{"command":"x","env":{"A":"b"},"run_config":{}}`},
		{`{"command":"true","command_id":"new","timeout_seconds":1,"ttl_seconds":-1}`, `{"command":"x","pty":true}`, `{"command_id":"known"}`},
		{`{"command_id":"known","stdout_offset":4}`, `{"command_id":"known","stdout_offset":9223372036854775807,"stderr_offset":1}`, `{"command_id":"known","stderr_offset":-1}`, `{"command_id":""}`},
	} {
		for _, b := range bodies {
			f.Add(i, []byte(b))
		}
	}
	for _, x := range recorded(f) {
		if i := slices.Index(paths, x.method+" "+x.path); i >= 0 {
			f.Add(i, []byte(x.bodies[0]))
		}
	}
	f.Fuzz(func(t *testing.T, path int, body []byte) {
		_, h := paperFace(t)
		method, path2, _ := strings.Cut(paths[uint(path)%uint(len(paths))], " ")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path2, bytes.NewReader(body)))
		if w.Header().Get("Content-Type") == "text/event-stream" {
			checkEvents(t, w.Body.String(), body)
			return
		}
		var answer struct{ Detail json.RawMessage }
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || (w.Code >= 300) != (len(answer.Detail) > 0) {
			t.Errorf("%s %s %q: %d %s, %v", method, path2, body, w.Code, w.Body, err)
		}
		if w.Code >= 500 && w.Code != http.StatusNotImplemented {
			t.Errorf("%s %s %q: %d %s", method, path2, body, w.Code, w.Body)
		}
		if w.Code == http.StatusUnprocessableEntity {
			var fields []struct{ Loc []string }
			if json.Unmarshal(answer.Detail, &fields) != nil || len(fields) != 1 || len(fields[0].Loc) != 2 || fields[0].Loc[1] == "" {
				t.Errorf("%s %s %q: %s names no field", method, path2, body, w.Body)
			}
		}
		if w.Body.Len() > 4<<10+8*len(body) {
			t.Errorf("%d bytes are answered with %d", len(body), w.Body.Len())
		}
	})
}

// checkEvents holds a stream of events to what was asked for: no byte before
// the offset, and none twice.
func checkEvents(t *testing.T, text string, body []byte) {
	t.Helper()
	var m message
	if err := json.Unmarshal(body, &m); err != nil || !strings.HasPrefix(text, "event: started\n") || !strings.HasSuffix(text, "\n\n") {
		t.Errorf("%q is answered with %q, %v", body, text, err)
		return
	}
	for _, ev := range strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		_, data, ok := strings.Cut(ev, "\ndata: ")
		var out struct {
			Offset int64
			Data   []byte
		}
		if err := json.Unmarshal([]byte(data), &out); !ok || err != nil {
			t.Errorf("%q: event %q, %v", body, ev, err)
		}
		if strings.HasPrefix(ev, "event: stdout\n") && (out.Offset < m.StdoutOffset || said[min(out.Offset, int64(len(said))):] != string(out.Data)) {
			t.Errorf("%q: event %q", body, ev)
		}
	}
}

// FuzzQueries: whatever the query, a list is told or the parameter refused.
func FuzzQueries(f *testing.F) {
	for _, s := range []string{"limit=1&offset=0", "page_size=99999999999999999999", "offset=9223372036854775807&page_size=9223372036854775807", "sort_by=name&sort_order=desc", "status=x", "label=a=b&label=", "cursor=" + paperBox, "limit=-1", "created_by=%ff", "a;b=%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		_, h := paperFace(t)
		r := httptest.NewRequest("GET", "/v2/sandboxes/boxes", nil)
		r.URL.RawQuery = query
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var answer struct {
			Items  []json.RawMessage
			Detail json.RawMessage
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 200 && w.Code != 400 && w.Code != 501 || len(answer.Items) > 1 || (w.Code != 200) != (len(answer.Detail) > 0) {
			t.Errorf("%q: %d %s, %v", query, w.Code, w.Body, err)
		}
	})
}

// FuzzActs: what comes behind the first message is done within the bounds of a
// terminal, or is refused.
func FuzzActs(f *testing.F) {
	for _, s := range []string{
		`{"type":"input","data":"x\u0000"}`, `{"type":"resize","cols":-1,"rows":9223372036854775807}`, `{"type":"close_stdin"}`, `{"type":"kill"}`,
		`{"type":"execute","command":"x"}`, `{"type":"ssh_agent_data","data":"="}`, `{"type":""}`, `{"type":"resize","cols":1e3}`,
	} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	for _, x := range recorded(f) {
		if x.method == "WS" {
			for _, m := range x.bodies {
				f.Add([]byte(m), strings.Contains(x.bodies[0], `"pty":`))
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, pty bool) {
		m, err := parseMessage(b)
		if err != nil {
			if _, ok := errors.AsType[*requestError](err); !ok {
				t.Errorf("%q: %v", b, err)
			}
			return
		}
		face, _ := paperFace(t)
		p := entry{t: t, resized: func(s process.Size) {
			if !pty || s.Cols > process.MaxTermSide || s.Rows > process.MaxTermSide {
				t.Errorf("%q: a terminal (%v) of %v", b, pty, s)
			}
		}}
		s := &session{face: face, proc: p, pty: pty, input: face.inputOf(p, budget.Holder{})}
		defer face.dropInput(s.input)
		if err := s.act(m); err != nil {
			if _, ok := errors.AsType[*requestError](err); !ok {
				t.Errorf("%q: %v", b, err)
			}
		}
	})
}

// FuzzGrants: nobody makes a link up, and one that was made says what was
// signed, however its text is changed.
func FuzzGrants(f *testing.F) {
	f.Add("a.b", "/work/a", 0, int64(0), 3, byte('A'))
	f.Add("..", "", 80, int64(1), 0, byte('.'))
	f.Add(base64.RawURLEncoding.EncodeToString([]byte(`{"k":"file","b":"box","p":"/etc/shadow"}`))+".", "/\u2028", 65535, int64(1)<<40, 1000, byte(0))
	face, err := New(Config{Driver: paper{}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { face.Close() })
	f.Fuzz(func(t *testing.T, made, path string, port int, expires int64, at int, to byte) {
		if g, err := face.open(made, grantFile, grantService, grantPage); err == nil {
			t.Errorf("%q was made up and opens %+v", made, g)
		}
		g := grant{Kind: grantFile, Box: paperBox, Path: strings.ToValidUTF8(path, ""), Port: port, Expires: expires}
		token := []byte(face.sign(&g))
		if _, err := face.open(string(token), grantService, grantPage); err == nil {
			t.Errorf("%+v opens as another kind", g)
		}
		expired := expires != 0 && expires <= time.Now().Unix()
		got, err := face.open(string(token), grantFile)
		if len(token) <= 16<<10 && expired != (err != nil) || err == nil && *got != g {
			t.Errorf("%+v was opened as %+v, %v", g, got, err)
		}
		token[uint(at)%uint(len(token))] = to
		if got, err := face.open(string(token), grantFile); err == nil && *got != g {
			t.Errorf("%+v was changed to %+v", g, got)
		}
	})
}

// FuzzTunnel: no bytes of a tunnel lead to port 0, and its end ends it.
func FuzzTunnel(f *testing.F) {
	frame := func(kind, flags byte, stream, length byte, body string) string {
		return string([]byte{0, kind, 0, flags, 0, 0, 0, stream, 0, 0, 0, length}) + body
	}
	open := frame(1, 1, 1, 0, "")
	f.Add([]byte(open + frame(0, 0, 1, 3, "\x01\x00\x50")))
	f.Add([]byte(open + frame(0, 0, 1, 3, "\x01\x00\x00") + frame(3, 0, 0, 0, "")))
	f.Add([]byte(open + frame(0, 4, 1, 2, "\x02\x00") + open))
	f.Add([]byte(frame(0, 9, 1, 255, "") + frame(2, 1, 0, 9, "")))
	f.Add([]byte("\x01GET / HTTP/1.1"))
	f.Fuzz(func(t *testing.T, b []byte) {
		box := sheet{paper: paper{t}, dial: func(port int) {
			if port < 1 || port > 65535 {
				t.Errorf("%q leads to port %d", b, port)
			}
		}}
		ours, theirs := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			serveTunnel(context.Background(), ours, box, nil, slog.New(&faults{slog.DiscardHandler, t}))
		}()
		answers := make(chan struct{})
		go func() {
			defer close(answers)
			_, _ = io.Copy(io.Discard, theirs)
		}()
		_, _ = theirs.Write(b) // the other end may have hung up
		theirs.Close()
		<-done
		<-answers
	})
}

// faults is a log in which nothing may be an error.
type faults struct {
	slog.Handler
	t *testing.T
}

func (f *faults) Enabled(context.Context, slog.Level) bool { return true }

func (f *faults) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		f.t.Errorf("%s", r.Message)
		r.Attrs(func(a slog.Attr) bool { f.t.Log(a); return true })
	}
	return nil
}

// FuzzUpload: whatever the form, one file is written whole, or none.
func FuzzUpload(f *testing.F) {
	f.Add("--X\r\nContent-Disposition: form-data; name=\"file\"; filename=\"../../a\"\r\n\r\nhello\r\n--X--\r\n", "X")
	f.Add("--X\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nhalf", "X")
	f.Add("--X\r\nContent-Disposition: form-data; name=other\r\n\r\n\r\n--X--", "X")
	f.Add("--X--", "")
	for _, x := range recorded(f) {
		if _, boundary, ok := strings.Cut(x.kind, "boundary="); ok {
			f.Add(x.bodies[0], boundary)
		}
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, body, boundary string) {
		face, _ := paperFace(t)
		r := httptest.NewRequest("POST", "/upload?"+url.Values{"path": {dir + "/file"}}.Encode(), strings.NewReader(body))
		r.Header.Set("Content-Type", "multipart/form-data; boundary="+boundary)
		w := httptest.NewRecorder()
		err := face.upload(w, r, sheet{paper: paper{t}})
		kept, missing := os.ReadFile(dir + "/file")
		if err != nil && (problemOf(err).status != 400 || missing == nil) || err == nil && (w.Code != 200 || missing != nil || !strings.Contains(body, string(kept))) {
			t.Errorf("%q: %v, %d %s, and the file is %q", body, err, w.Code, w.Body, kept)
		}
		if err := os.RemoveAll(dir + "/file"); err != nil {
			t.Error(err)
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 0 {
			t.Errorf("%q leaves %v, %v", body, left, err)
		}
	})
}

// FuzzContain: no answer of a program gives its page an origin, or a cookie or a
// redirection within this server to somewhere else.
func FuzzContain(f *testing.F) {
	f.Add("/x", "a=b; Path=/; Domain=localhost", "default-src *")
	f.Add("//elsewhere/x", serviceCookie+"=x; Path=/", "")
	f.Add("/langsmith/b/service/8", "__Host-a=b; Secure; Path=/", "sandbox allow-same-origin")
	f.Add("/\\x", "a=\"b;c\"; path=../x; path=/y", "\xff")
	f.Fuzz(func(t *testing.T, location, cookie, policy string) {
		const prefix = "/langsmith/b/service/80"
		h := http.Header{"Location": {location}, "Set-Cookie": {cookie, cookie + "x"}, "Content-Security-Policy": {policy}, "Service-Worker-Allowed": {"/"}}
		(&visit{prefix: prefix, port: 80}).contain(h)
		if to := h.Get("Location"); strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "//") && !strings.HasPrefix(to, prefix+"/") {
			t.Errorf("%q leads to %q", location, to)
		}
		for _, line := range h.Values("Set-Cookie") {
			c, err := http.ParseSetCookie(line)
			if err != nil || c.Name == serviceCookie || c.Domain != "" || !strings.HasPrefix(c.Path, prefix+"/") {
				t.Errorf("%q becomes the cookie %q, %v", cookie, line, err)
			}
		}
		if !slices.Contains(h.Values("Content-Security-Policy"), pagePolicy) || h.Get("Service-Worker-Allowed") != "" {
			t.Errorf("the policy is %q", h)
		}
	})
}

// FuzzSearch: a search that begins has a place and bounds.
func FuzzSearch(f *testing.F) {
	for _, s := range []string{`{"pattern":"*.go","path":"."}`, `{"pattern":"x","path":"/../..","glob":"**","limit":9223372036854775807}`, `{"pattern":"","limit":0}`, `{"pattern":"x","limit":0}`, `{"pattern":"x","path":"~root"}`, `{"pattern":"x","path":"a\u0000"}`, `{"limit":1.5}`} {
		f.Add([]byte(s))
	}
	for _, x := range recorded(f) {
		if strings.HasSuffix(x.path, "/glob") || strings.HasSuffix(x.path, "/grep") {
			f.Add([]byte(x.bodies[0]))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, s, err := new(Face).startSearch(httptest.NewRequest("POST", "/glob", bytes.NewReader(body)), sheet{paper: paper{t}})
		if err != nil {
			if p := problemOf(err); p.status != 400 && p.status != 422 {
				t.Errorf("%q: %v", body, err)
			}
			return
		}
		if s.query.Limit < 1 || s.query.Limit > maxMatches || !filepath.IsAbs(s.root) || filepath.Clean(s.root) != s.root || req.Pattern == "" || len(req.Glob) > maxPattern {
			t.Errorf("%q searches %q for %+v, up to %d", body, s.root, req, s.query.Limit)
		}
	})
}

// FuzzGlob: a glob that is taken stands for no more patterns than the limit,
// and selects as one of them.
func FuzzGlob(f *testing.F) {
	for _, s := range [][2]string{
		{"*.{js,ts}", "a.ts"}, {"a{a,{b,c}}*", "ab"}, {strings.Repeat("{a,b}", 8), "abababab"}, {strings.Repeat("{a*,*a}", 40), "aaaa"}, {"{a[}],*a}", "a"},
		{"{{{,},},}{,", ""}, {`\{{a,b,c,d}\,`, "{a,"}, {"**/{x,y}/[!a-z]?", "q/x/9é"}, {"./a", "a"}, {"{}{}{}{}", ""}, {"{,,,,,,,,{a,b,c},{d,e}}{x}", "dx"}, {"\xff{\xfe,}", "\xff"},
	} {
		f.Add(s[0], s[1])
	}
	literal := regexp.MustCompile(`^[a-z./*{},]*$`)
	f.Fuzz(func(t *testing.T, glob, name string) {
		if len(glob) > maxPattern || len(name) > 255 {
			return
		}
		if err := checkGlob("glob", glob); err != nil {
			if p := problemOf(err); p.status != 400 || len(p.text) > 2<<10 {
				t.Errorf("%q: %v", glob, err)
			}
			return
		}
		deep := doublestar.MatchUnvalidated(anywhere(glob), name)
		if glob != "" && !strings.ContainsAny(glob, "/*") && filepath.IsLocal(name) && filepath.Clean(name) == name && name != "." {
			if base := doublestar.MatchUnvalidated(glob, filepath.Base(name)); deep != base {
				t.Errorf("%q selects %q: %v; of its base name alone: %v", glob, name, deep, base)
			}
		}
		if !literal.MatchString(glob) {
			return // classes and escapes hide braces
		}
		all, ok := expand(glob, files.MaxAlternatives)
		if !ok {
			t.Fatalf("%q stands for more than %d patterns", glob, files.MaxAlternatives)
		}
		selected := false
		for _, one := range all {
			selected = selected || doublestar.MatchUnvalidated(one, name)
		}
		if got := doublestar.MatchUnvalidated(glob, name); got && !selected {
			t.Errorf("%q selects %q, and none of %s does", glob, name, strconv.Quote(strings.Join(all, " ")))
		}
	})
}

// expand is the patterns without braces that a valid one stands for; ok is
// false if there are more than most.
func expand(glob string, most int) (all []string, ok bool) {
	open := strings.IndexByte(glob, '{')
	if open < 0 {
		return []string{glob}, true
	}
	depth, start := 0, open+1
	var parts []string
	end := len(glob)
	for i := open; i < len(glob) && end == len(glob); i++ {
		switch c := glob[i]; {
		case c == '{':
			depth++
		case c == ',' && depth == 1:
			parts = append(parts, glob[start:i])
			start = i + 1
		case c == '}':
			if depth--; depth == 0 {
				parts, end = append(parts, glob[start:i]), i
			}
		}
	}
	for _, part := range parts {
		more, ok := expand(glob[:open]+part+glob[min(end+1, len(glob)):], most-len(all))
		if !ok || len(all)+len(more) > most {
			return nil, false
		}
		all = append(all, more...)
	}
	return all, true
}
