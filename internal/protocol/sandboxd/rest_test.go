package sandboxd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/internal/support/proctest"
)

// TestErrorsNameFieldAndLimit: what a client got wrong is in the answer.
func TestErrorsNameFieldAndLimit(t *testing.T) {
	s := serve(t, nil)
	proctest.Must(t, os.Mkdir(s.root+"/dir", 0o755))
	for _, tt := range []struct {
		method, path string
		headers      []string
		status       int
		text         string
	}{
		{"PUT", "/v1/files/f?mode=0999", nil, 400, `mode is \"0999\"; 0000 to 0777 are allowed`},
		{"PUT", "/v1/files/f?mode=755", nil, 400, "four digits"},
		{"PUT", "/v1/files/dir", nil, 400, "it is a directory"},
		{"PUT", "/v1/files/a%00b", nil, 400, "has a NUL byte"},
		{"PUT", "/v1/files/" + strings.Repeat("a", 256), nil, 400, "more than 255 bytes"},
		{"PUT", "/v1/files/" + strings.Repeat("a/", 2500), nil, 400, "the limit is 4095"},
		{"PUT", "/v1/files/%ff", nil, 400, "is not valid UTF-8"},
		{"PUT", "/v1/files/f", []string{"Content-Type", "multipart/form-data"}, 400, "body is no form"},
		{"PUT", "/v1/files/f", []string{"Content-Type", "multipart/form-data; boundary=x"}, 400, "body "},
		{"PUT", "/v1/files/f", []string{"If-Match", `"+"`}, 400, "one ETag of a file"},
		{"PUT", "/v1/files/f", []string{"If-None-Match", `"x"`}, 400, "it may be * alone"},
		{"PUT", "/v1/files/f", []string{"If-Match", "*"}, 412, "changed or removed"},
		{"PUT", "/v1/files/f", []string{"Origin", "null"}, 403, "a web page sent this"},
		{"DELETE", "/v1/files/dir?recursive=2", nil, 400, `recursive is \"2\"; true or false is needed`},
		{"DELETE", "/v1/files/", nil, 409, "recursive=true removes what is in it"},
		{"GET", "/v1/files/none", nil, 404, "no such file"},
		{"GET", "/v1/files/..%2Fx", nil, 403, "leads out of the directory"},
	} {
		status, text := s.ask(t, tt.method, tt.path, "", tt.headers...)
		if status != tt.status || !strings.Contains(text, tt.text) || !strings.HasPrefix(text, `{"code":"`) {
			t.Errorf("%s %.60s %v: %d %s; want %d with %s", tt.method, tt.path, tt.headers, status, text, tt.status, tt.text)
		}
	}
	if left := proctest.Value(os.ReadDir(s.root))(t); len(left) != 1 {
		t.Errorf("there are %v", left)
	}
}

func TestMetadataShowsNoSecret(t *testing.T) {
	s := serve(t, nil)
	if _, text := s.ask(t, "GET", "/v1/metadata", ""); text != `{"env":{"SANDBOX_A":"b=c","SANDBOX_EMPTY":""}}`+"\n" {
		t.Error(text)
	}
}

func TestHealthSaysThatTheDaemonEnds(t *testing.T) {
	s := serve(t, nil)
	if status, text := s.ask(t, "GET", "/v1/health", ""); status != 200 || text != `{"status":"ok","uptime_seconds":0}`+"\n" {
		t.Errorf("%d %s", status, text)
	}
	s.stopping.Store(true)
	if status, text := s.ask(t, "GET", "/v1/health", ""); status != 503 || !strings.HasPrefix(text, `{"code":"UNAVAILABLE"`) {
		t.Errorf("%d %s", status, text)
	}
}

// TestTheBudgetRefusesWhatItHasNoRoomFor: uploads and long lists are charged for.
func TestTheBudgetRefusesWhatItHasNoRoomFor(t *testing.T) {
	b := budget.New(1 << 20)
	s := serve(t, func(c *Config) { c.Budget = b })
	proctest.Must(t, os.WriteFile(s.root+"/f", nil, 0o600))
	full := b.Charge()
	proctest.Must(t, full.Add(1<<20))
	for _, method := range []string{"PUT", "GET"} {
		path := map[string]string{"PUT": "/v1/files/f", "GET": "/v1/files/"}[method]
		if status, text := s.ask(t, method, path, "x"); status != 503 || !strings.Contains(text, "try again") {
			t.Errorf("%s: %d %s", method, status, text)
		}
		full.Give(512 << 10)
		if status, text := s.ask(t, method, path, "x"); status > 204 {
			t.Errorf("%s with room: %d %s", method, status, text)
		}
		proctest.Must(t, full.Add(512<<10))
	}
	full.Release()
	if n := b.Used(); n != 0 {
		t.Errorf("%d bytes are not given back", n)
	}
}

// TestALinkThatIsSwappedMeanwhileLeadsNowhere writes and reads by a path that is a directory and a link out in turn.
func TestALinkThatIsSwappedMeanwhileLeadsNowhere(t *testing.T) {
	s := serve(t, nil)
	outside := t.TempDir()
	proctest.Must(t, os.WriteFile(outside+"/f", []byte("secret"), 0o600))
	at := s.root + "/d"
	proctest.Must(t, os.Mkdir(at+".dir", 0o755))
	proctest.Must(t, os.WriteFile(at+".dir/f", []byte("mine"), 0o600))
	proctest.Must(t, os.Symlink(outside, at+".link"))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			for _, kind := range []string{".dir", ".link"} {
				_ = os.Rename(at+kind, at)
				_ = os.Rename(at, at+kind)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	for range 300 {
		if _, text := s.ask(t, "GET", "/v1/files/d%2Ff", ""); strings.Contains(text, "secret") {
			t.Fatal("what is outside was read")
		}
		s.ask(t, "PUT", "/v1/files/d%2Ff", "mine")
		s.ask(t, "DELETE", "/v1/files/d%2Fg?recursive=true", "")
	}
	close(stop)
	<-done
	all := proctest.Value(filepath.Glob(outside + "/*"))(t)
	if content := proctest.Value(os.ReadFile(outside + "/f"))(t); string(content) != "secret" || len(all) != 1 {
		t.Errorf("outside are %v now, with %q", all, content)
	}
}

func TestTheWholeMachineMayBeTheRoot(t *testing.T) {
	s := serve(t, func(c *Config) { c.Root = "/" })
	dir := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	if status, text := s.ask(t, "PUT", "/v1/files"+dir+"/f", "x"); status != 204 {
		t.Errorf("%d %s", status, text)
	}
	if _, text := s.ask(t, "GET", "/v1/files/..%2F..%2F"+dir+"/f", ""); text != "x" {
		t.Error(text)
	}
}
