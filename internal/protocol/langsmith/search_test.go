package langsmith_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestSearchesAreBounded: what would go on for hours is refused with the bound,
// or ends with it.
func TestSearchesAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	at := func(name string) string { return filepath.Join(s.box.Dir, name) }
	for i := range 50 {
		proctest.Must(t, os.WriteFile(at(fmt.Sprintf("%s%d", strings.Repeat("a", 60), i)), []byte("text"), 0o644))
	}
	for _, tt := range []struct {
		name, path, body string
		status           int
		say              string
	}{
		{"braces", "/glob", `{"pattern":"*.{js,ts}","path":"."}`, 200, "matches"},
		{"nested braces", "/glob", `{"pattern":"a{a,{b,c}}*","path":".","limit":2}`, 200, `"truncated":true`},
		{"forty braces", "/glob", `{"pattern":"` + strings.Repeat("{a*,*a}", 40) + `b","path":"."}`, 400, "256 patterns"},
		{"forty braces of files to grep", "/grep", `{"pattern":"x","glob":"` + strings.Repeat("{a*,*a}", 40) + `","path":"."}`, 400, "256 patterns"},
		{"braces in brackets", "/glob", `{"pattern":"` + strings.Repeat("{a[}],*a}", 40) + `","path":"."}`, 400, ""},
		{"a pattern that is too long", "/glob", `{"pattern":"` + strings.Repeat("*a", 3000) + `","path":"."}`, 400, "4096"},
	} {
		if status, text := s.call("POST", s.data()+tt.path, tt.body); status != tt.status || !strings.Contains(text, tt.say) {
			t.Errorf("%s: %d %s", tt.name, status, text)
		}
	}
}

// TestASearchEndsWithItsClient: a line of eight terabytes is read no longer
// than somebody waits for it.
func TestASearchEndsWithItsClient(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	file := proctest.Value(os.Create(filepath.Join(s.box.Dir, "sparse")))(t)
	defer file.Close()
	proctest.Value(file.WriteString(strings.Repeat("x", 16<<10)))(t)
	if err := file.Truncate(8 << 40); err != nil {
		// As large as this file system lets a file be.
		proctest.Must(t, file.Truncate(8<<30))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	req := proctest.Value(http.NewRequestWithContext(ctx, "POST", s.data()+"/grep", strings.NewReader(`{"pattern":"no such text","path":"."}`)))(t)
	if res, err := http.DefaultTransport.RoundTrip(req); err == nil {
		res.Body.Close()
	}
	// The file is held open as long as it is read.
	proctest.Eventually(t, "nobody reads the file", func() bool { return reading(t, file.Name()) <= 1 })
}

// reading counts the descriptors of this process that lead to the file.
func reading(t *testing.T, path string) (n int) {
	t.Helper()
	fds := proctest.Value(os.ReadDir("/proc/self/fd"))(t)
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && to == path {
			n++
		}
	}
	return n
}

// TestFilesWithoutAnEndAreRefused: nothing waits for what the kernel may say
// some day, nor for a writer of a FIFO.
func TestFilesWithoutAnEndAreRefused(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	for _, path := range []string{"/proc/kmsg", "/proc/kcore", "/dev/zero", "/proc/self/fd/0"} {
		status, text := s.call("GET", s.data()+"/download?path="+path, "")
		var body struct {
			Detail struct{ Error string }
		}
		if err := json.Unmarshal([]byte(text), &body); status < 400 || err != nil || body.Detail.Error == "" {
			t.Errorf("%s: %d %.200s", path, status, text)
		}
	}
	if status, text := s.call("GET", s.data()+"/download?path=/proc/version", ""); status != 200 || !strings.Contains(text, "Linux") {
		t.Errorf("/proc/version: %d %s", status, text)
	}
}
