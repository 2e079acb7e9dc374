package page

import (
	"compress/gzip"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestTheFilesOfThePage(t *testing.T) {
	s := serve(t)
	for _, path := range []string{"/ui/", "/ui/p/some-process", "/ui/s/name.with.dots"} {
		status, text, resp := s.do(t, "GET", path, "", nil)
		if status != http.StatusOK || !strings.Contains(text, `<div id="app">`) || resp.Header.Get("Cache-Control") != "no-cache" {
			t.Errorf("%s is %d %q", path, status, text)
		}
	}
	if status, _, _ := s.do(t, "GET", "/ui/main-of-another-version.js", "", nil); status != http.StatusNotFound {
		t.Errorf("a file of another version is %d; an older page has to notice", status)
	}
	for name := range s.page.files {
		_, _, resp := s.do(t, "GET", "/ui/"+name, "", nil)
		csp := resp.Header.Get("Content-Security-Policy")
		if strings.Contains(csp, "unsafe") || !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("%s has the policy %q", name, csp)
		}
		if resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("Content-Type") == "" {
			t.Errorf("%s is sent as %v", name, resp.Header)
		}
		hashed := name != "index.html" && name != "licenses.txt"
		if forever := strings.Contains(resp.Header.Get("Cache-Control"), "immutable"); forever != hashed {
			t.Errorf("%s is kept forever: %v", name, forever)
		}
	}
}

func TestTheServersAddressLeadsToThePage(t *testing.T) {
	s := serve(t)
	if status, _, resp := s.do(t, "GET", "/", "", nil, "Accept", "text/html,*/*;q=0.8"); status != http.StatusFound || resp.Header.Get("Location") != "/ui/" {
		t.Errorf("it is %d, to %q", status, resp.Header.Get("Location"))
	}
	if status, _, _ := s.do(t, "GET", "/", "", nil, "Accept", "*/*"); status != http.StatusNotFound {
		t.Errorf("for what is no browser it is %d", status)
	}
	if status, _, _ := s.do(t, "GET", "/other", "", nil); status != http.StatusNotFound {
		t.Errorf("another path is %d", status)
	}
}

func TestAFileIsTheSamePackedAndNot(t *testing.T) {
	s := serve(t)
	for name, f := range s.page.files {
		_, plain, _ := s.do(t, "GET", "/ui/"+name, "", nil, "Accept-Encoding", "identity")
		_, packed, resp := s.do(t, "GET", "/ui/"+name, "", nil, "Accept-Encoding", "br, gzip")
		if resp.Header.Get("Content-Encoding") != "gzip" {
			t.Fatalf("%s comes unpacked", name)
		}
		unpacked := proctest.Value(io.ReadAll(proctest.Value(gzip.NewReader(strings.NewReader(packed)))(t)))(t)
		if plain != string(f.plain()) || plain != string(unpacked) {
			t.Errorf("%s is not what was built", name)
		}
	}
}

// TestTheFirstViewIsSmall: all that it takes to show the overview.
func TestTheFirstViewIsSmall(t *testing.T) {
	files := built()
	main := string(files["index.html"].plain())
	sum := len(files["index.html"].packed)
	wanted := map[string]bool{}
	var add func(text string, pattern *regexp.Regexp)
	static := regexp.MustCompile(`(?:from|import)"\./([^"]+)"`)
	add = func(text string, pattern *regexp.Regexp) {
		for _, m := range pattern.FindAllStringSubmatch(text, -1) {
			f := files[m[1]]
			if f == nil {
				t.Fatalf("%s is not there", m[1])
			}
			if wanted[m[1]] {
				continue
			}
			wanted[m[1]] = true
			sum += len(f.packed)
			add(string(f.plain()), static)
		}
	}
	add(main, regexp.MustCompile(`(?:href|src)="/ui/([^"]+)"`))
	if len(wanted) < 4 || sum > 400<<10 {
		t.Errorf("the first view takes %d bytes in %v", sum, wanted)
	}
	for name := range wanted {
		if strings.HasPrefix(name, "screen-") {
			t.Errorf("the first view has the terminal in it: %s", name)
		}
	}
}
