package native_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/gen/tend/v1/tendv1connect"
	"github.com/tend-run/tend/internal/protocol/native"
	"github.com/tend-run/tend/internal/sandbox/host"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testkeeper"
)

// machineFiles serves the files of the machine, and says what one request is answered.
func machineFiles(t *testing.T) (base string, ask func(method, call, path, body string, header ...string) (*http.Response, string)) {
	t.Helper()
	m := testkeeper.New(t)
	d := proctest.Value(host.Open(host.Config{Dir: filepath.Join(t.TempDir(), "boxes"), Manager: m}))(t)
	_, base = serve(t, native.Config{Manager: m, Driver: d, Machine: host.NewMachine(m)})
	return base, func(method, call, path, body string, header ...string) (*http.Response, string) {
		t.Helper()
		r := proctest.Value(http.NewRequestWithContext(t.Context(), method, base+"/tend.v1.FileService/"+call+"?path="+url.QueryEscape(path), strings.NewReader(body)))(t)
		for n := 0; n < len(header); n += 2 {
			r.Header.Set(header[n], header[n+1])
		}
		resp := proctest.Value(http.DefaultClient.Do(r))(t)
		defer resp.Body.Close()
		return resp, string(proctest.Value(io.ReadAll(resp.Body))(t))
	}
}

func TestAFileIsReplacedIfItIsTheVersionThatWasRead(t *testing.T) {
	_, ask := machineFiles(t)
	path := filepath.Join(t.TempDir(), "new", "a file.txt")
	resp, _ := ask("PUT", "Content", path, "one", "If-None-Match", "*")
	one := resp.Header.Get("ETag")
	if resp.StatusCode != http.StatusNoContent || one == "" {
		t.Fatalf("made: %s, %q", resp.Status, one)
	}
	resp, text := ask("GET", "Content", path, "")
	if text != "one" || resp.Header.Get("ETag") != one || resp.Header.Get("Content-Disposition") != `attachment; filename="a file.txt"` {
		t.Errorf("read: %q, %v", text, resp.Header)
	}
	if resp, text := ask("GET", "Content", path, "", "Range", "bytes=1-"); resp.StatusCode != http.StatusPartialContent || text != "ne" {
		t.Errorf("a range: %s %q", resp.Status, text)
	}
	resp, _ = ask("PUT", "Content", path, "two", "If-Match", one)
	if two := resp.Header.Get("ETag"); resp.StatusCode != http.StatusNoContent || two == "" || two == one {
		t.Errorf("replaced: %s, %q", resp.Status, two)
	}
	for name, r := range map[string]struct {
		path   string
		header []string
		status int
		code   string
	}{
		"another version":      {path, []string{"If-Match", one}, http.StatusConflict, "aborted"},
		"no file of any":       {path + "x", []string{"If-Match", "*"}, http.StatusConflict, "aborted"},
		"a file that is there": {path, []string{"If-None-Match", "*"}, http.StatusConflict, "already_exists"},
		"no version":           {path, []string{"If-Match", "W/x"}, http.StatusBadRequest, "invalid_argument"},
		"the version \"*\"":    {path, []string{"If-Match", `"*"`}, http.StatusBadRequest, "invalid_argument"},
		"the version \"+\"":    {path, []string{"If-Match", `"+"`}, http.StatusBadRequest, "invalid_argument"},
		"a packed body":        {path, []string{"Content-Encoding", "gzip"}, http.StatusBadRequest, "invalid_argument"},
		"a directory":          {filepath.Dir(path), nil, http.StatusBadRequest, "failed_precondition"},
		"no path":              {"", nil, http.StatusBadRequest, "invalid_argument"},
		"no such sandbox":      {path, []string{"Tend-Sandbox", "none"}, http.StatusNotFound, "not_found"},
		"an empty sandbox":     {path, []string{"Tend-Sandbox", ""}, http.StatusBadRequest, "invalid_argument"},
	} {
		if resp, text := ask("PUT", "Content", r.path, "x", r.header...); resp.StatusCode != r.status || !strings.Contains(text, `"code":"`+r.code+`"`) {
			t.Errorf("%s: %s %s", name, resp.Status, text)
		}
	}
	if got := string(proctest.Value(os.ReadFile(path))(t)); got != "two" {
		t.Errorf("the file is %q", got)
	}
	if resp, _ := ask("POST", "Content", path, ""); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a POST: %s", resp.Status)
	}
	if resp, text := ask("GET", "Content", path+"x", ""); resp.StatusCode != http.StatusNotFound || !strings.Contains(text, "no such file") {
		t.Errorf("no file: %s %s", resp.Status, text)
	}
}

// TestABrokenUploadLeavesNothing: neither in the place of the file, nor beside it.
func TestABrokenUploadLeavesNothing(t *testing.T) {
	base, ask := machineFiles(t)
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	proctest.Must(t, os.WriteFile(there, []byte("as it was"), 0o600))
	for _, path := range []string{there, filepath.Join(dir, "new")} {
		c := proctest.Value(net.Dial("tcp", strings.TrimPrefix(base, "http://")))(t)
		proctest.Value(fmt.Fprintf(c, "PUT /tend.v1.FileService/Content?path=%s HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n%s", path, strings.Repeat("x", 300_000)))(t)
		proctest.Must(t, c.(*net.TCPConn).CloseWrite())
		proctest.Value(io.ReadAll(c))(t) // until the handler has returned
		proctest.Must(t, c.Close())
	}
	if names := proctest.Value(os.ReadDir(dir))(t); len(names) != 1 || names[0].Name() != "there" {
		t.Errorf("the directory has %v", names)
	}
	if _, text := ask("GET", "Content", there, ""); text != "as it was" {
		t.Errorf("it has %d bytes", len(text))
	}
}

// TestActiveContentIsNoPage: a browser that is led to a file of a sandbox runs nothing of it.
func TestActiveContentIsNoPage(t *testing.T) {
	_, ask := machineFiles(t)
	dir := t.TempDir()
	for _, name := range []string{"evil.html", "evil.svg", "evil.js", "evil\n\".html", "ä.xhtml"} {
		path := filepath.Join(dir, name)
		proctest.Must(t, os.WriteFile(path, []byte("<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"), 0o600))
		resp, _ := ask("GET", "Content", path, "")
		for header, want := range map[string]string{
			"Content-Type": "application/octet-stream", "Content-Security-Policy": "sandbox; default-src 'none'",
			"X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			if got := resp.Header.Get(header); got != want {
				t.Errorf("%s: %s is %q", name, header, got)
			}
		}
		if got := resp.Header.Get("Content-Disposition"); !strings.HasPrefix(got, "attachment") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestADirectoryComesAsATar(t *testing.T) {
	_, ask := machineFiles(t)
	dir := filepath.Join(t.TempDir(), "project")
	proctest.Must(t, os.MkdirAll(filepath.Join(dir, "src"), 0o755))
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "src", "main.go"), []byte("package main"), 0o600))
	resp, text := ask("GET", "Archive", dir, "")
	if got := resp.Header.Get("Content-Disposition"); got != "attachment; filename=project.tar" {
		t.Errorf("it is named %q", got)
	}
	r := tar.NewReader(strings.NewReader(text))
	var names []string
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		names = append(names, proctest.Value(h, err)(t).Name)
	}
	if got := strings.Join(names, " "); got != "project/src/ project/src/main.go" {
		t.Errorf("it has %s", got)
	}
	if resp, text := ask("GET", "Archive", filepath.Join(dir, "src", "main.go"), ""); resp.StatusCode != http.StatusBadRequest || resp.Header.Get("Content-Disposition") != "" || !strings.Contains(text, "not a directory") {
		t.Errorf("of a file: %s %s", resp.Status, text)
	}
}

func TestATarIsUnpacked(t *testing.T) {
	_, ask := machineFiles(t)
	dir := filepath.Join(t.TempDir(), "new", "project")
	archive := func(names ...string) string {
		var b strings.Builder
		w := tar.NewWriter(&b)
		for _, name := range names {
			proctest.Must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o640, Size: 4, Typeflag: tar.TypeReg}))
			proctest.Value(w.Write([]byte("text")))(t)
		}
		proctest.Must(t, w.Close())
		return b.String()
	}
	whole := archive("a", "b/c")
	for range 2 { // a file replaces that of its name
		if resp, text := ask("PUT", "Archive", dir, whole); resp.StatusCode != http.StatusNoContent {
			t.Fatalf("%s %s", resp.Status, text)
		}
	}
	info := proctest.Value(os.Stat(filepath.Join(dir, "b", "c")))(t)
	if got := string(proctest.Value(os.ReadFile(filepath.Join(dir, "b", "c")))(t)); got != "text" || info.Mode() != 0o640 {
		t.Errorf("it has %q, %v", got, info.Mode())
	}
	for name, body := range map[string]string{"no tar": strings.Repeat("no tar", 200), "a part of one": whole[:514], "a way up": archive("../x")} {
		if resp, text := ask("PUT", "Archive", dir, body); resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, `"code":"invalid_argument"`) {
			t.Errorf("%s: %s %s", name, resp.Status, text)
		}
	}
	if resp, text := ask("PUT", "Archive", filepath.Join(dir, "a"), whole); resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, "not a directory") {
		t.Errorf("into a file: %s %s", resp.Status, text)
	}
}

func TestAPartOfADirectory(t *testing.T) {
	base, _ := machineFiles(t)
	dir := t.TempDir()
	for n := range 20 {
		proctest.Must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d", n)), nil, 0o600))
	}
	f := tendv1connect.NewFileServiceClient(http.DefaultClient, base)
	got := proctest.Value(f.ListFiles(t.Context(), connect.NewRequest(&tendv1.ListFilesRequest{Path: dir, Limit: 3, From: 9, Match: "1"})))(t).Msg
	names := ""
	for _, e := range got.GetEntries() {
		names += e.GetName() + " "
	}
	if names != "18 19 " || got.GetTotal() != 11 {
		t.Errorf("%sof %d", names, got.GetTotal())
	}
	if _, err := f.ListFiles(t.Context(), connect.NewRequest(&tendv1.ListFilesRequest{Path: dir, Limit: 3, Match: strings.Repeat("x", 256)})); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a long match: %v", err)
	}
}

func TestWhatIsMountedIsNotMoved(t *testing.T) {
	base, _ := machineFiles(t)
	f := tendv1connect.NewFileServiceClient(http.DefaultClient, base)
	_, err := f.MoveFile(t.Context(), connect.NewRequest(&tendv1.MoveFileRequest{Source: "/", Destination: filepath.Join(t.TempDir(), "x")}))
	if connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("the root directory: %v", err)
	}
}
