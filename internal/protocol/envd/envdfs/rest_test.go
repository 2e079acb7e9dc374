package envdfs

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
)

const octets = "Content-Type: application/octet-stream"

func zipped(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, s)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func form(parts ...string) string {
	var b strings.Builder
	for i := 0; i < len(parts); i += 2 {
		fmt.Fprintf(&b, "--X\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n", parts[i], parts[i+1])
	}
	return b.String() + "--X--\r\n"
}

const formType = "Content-Type: multipart/form-data; boundary=X"

func TestRESTAnswers(t *testing.T) {
	s := serve(t, Config{})
	for name, content := range map[string]string{"f.txt": "hello world", "p1": "a", "p2": "b"} {
		proctest.Must(t, os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o644))
	}
	proctest.Must(t, syscall.Mkfifo(filepath.Join(s.dir, "fifo"), 0o600))
	proctest.Must(t, os.Symlink("loop", filepath.Join(s.dir, "loop")))
	// DIR in paths, bodies and answers is the directory of the test.
	tests := []struct {
		name, method, path, body string
		headers                  []string
		code                     int
		want                     string
	}{
		{"a file", "GET", "/files?path=DIR/f.txt", "", nil, 200, "hello world"},
		{"only its head", "HEAD", "/files?path=DIR/f.txt", "", nil, 200, ""},
		{"a range", "GET", "/files?path=DIR/f.txt", "", []string{"Range: bytes=6-"}, 206, "world"},
		{"a range past the end", "GET", "/files?path=DIR/f.txt", "", []string{"Range: bytes=50-"}, 416, "invalid range: failed to overlap\n"},
		{"not modified", "GET", "/files?path=DIR/f.txt", "", []string{"If-Modified-Since: " + time.Now().Add(time.Hour).UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT")}, 304, ""},
		{"gzip is not used for ranges", "GET", "/files?path=DIR/f.txt", "", []string{"Range: bytes=0-4", "Accept-Encoding: gzip"}, 206, "hello"},
		{"a range that must be gzipped", "GET", "/files?path=DIR/f.txt", "", []string{"Range: bytes=0-4", "Accept-Encoding: gzip, identity;q=0"}, 406, `{"code":406,"message":"identity encoding not acceptable for Range or conditional request"}` + "\n"},
		{"no encoding left", "GET", "/files?path=DIR/f.txt", "", []string{"Accept-Encoding: *;q=0"}, 406, `{"code":406,"message":"error parsing Accept-Encoding: no acceptable encoding found, supported: [gzip]"}` + "\n"},
		{"a missing file", "GET", "/files?path=DIR/none", "", nil, 404, `{"code":404,"message":"path 'DIR/none' does not exist"}` + "\n"},
		{"a directory", "GET", "/files?path=DIR", "", nil, 400, `{"code":400,"message":"path 'DIR' is a directory"}` + "\n"},
		{"the default directory", "GET", "/files", "", nil, 400, `{"code":400,"message":"path 'DIR' is a directory"}` + "\n"},
		{"a FIFO", "GET", "/files?path=DIR/fifo", "", nil, 400, `{"code":400,"message":"path 'DIR/fifo' is not a regular file"}` + "\n"},
		{"a device", "GET", "/files?path=/dev/zero", "", nil, 400, `{"code":400,"message":"path '/dev/zero' is not a regular file"}` + "\n"},
		{"a NUL byte", "GET", "/files?path=/a%00b", "", nil, 400, `{"code":400,"message":"error expanding and resolving path '/a\u0000b': path \"/a\\x00b\" has a NUL byte"}` + "\n"},
		{"an unknown user", "GET", "/files?path=x&username=nix", "", nil, 401, `{"code":401,"message":"error looking up user 'nix': user: unknown user nix"}` + "\n"},

		{"an upload", "POST", "/files?path=DIR/n/a/b", "data", []string{octets}, 200, `[{"name":"b","path":"DIR/n/a/b","type":"file"}]`},
		{"an upload with metadata", "POST", "/files?path=DIR/m", "data", []string{octets, "X-Metadata-Author: Me"}, 200, `[{"name":"m","path":"DIR/m","type":"file","metadata":{"author":"Me"}}]`},
		{"bad metadata", "POST", "/files?path=DIR/m", "data", []string{octets, "X-Metadata-Author: é"}, 400, `{"code":400,"message":"invalid metadata: metadata value for key \"author\" contains non-printable-ASCII byte 0xc3 at offset 0"}` + "\n"},
		{"an upload without a path", "POST", "/files", "data", []string{octets}, 400, `{"code":400,"message":"path query parameter is required for raw body upload"}` + "\n"},
		{"another type", "POST", "/files?path=DIR/x", "data", []string{"Content-Type: text/plain"}, 400, `{"code":400,"message":"unsupported content type: text/plain, expected multipart/form-data or application/octet-stream"}` + "\n"},
		{"an upload onto a directory", "POST", "/files?path=DIR", "data", []string{octets}, 400, `{"code":400,"message":"path is a directory: DIR"}` + "\n"},
		{"an upload onto a FIFO", "POST", "/files?path=DIR/fifo", "data", []string{octets}, 400, `{"code":400,"message":"path is not a regular file: DIR/fifo"}` + "\n"},
		{"an upload below a file", "POST", "/files?path=DIR/f.txt/x", "data", []string{octets}, 500, `{"code":500,"message":"error ensuring directories: path is a file: DIR/f.txt"}` + "\n"},
		{"an upload far below a file", "POST", "/files?path=DIR/f.txt/x/y/z", "data", []string{octets}, 500, `{"code":500,"message":"error ensuring directories: path is a file: DIR/f.txt"}` + "\n"},
		{"no gzip although it says so", "POST", "/files?path=DIR/x", "data", []string{octets, "Content-Encoding: gzip"}, 400, `{"code":400,"message":"error decompressing request body: failed to create gzip reader: unexpected EOF"}` + "\n"},
		{"an unknown encoding", "POST", "/files?path=DIR/x", "data", []string{octets, "Content-Encoding: br"}, 400, `{"code":400,"message":"error decompressing request body: unsupported Content-Encoding: br, supported: [gzip]"}` + "\n"},

		{"a form with two files", "POST", "/files", form(`name="file"; filename="DIR/q/one"`, "1", `name="other"`, "-", `name="file"; filename="DIR/two"`, "2"), []string{formType}, 200, `[{"name":"one","path":"DIR/q/one","type":"file"},{"name":"two","path":"DIR/two","type":"file"}]`},
		{"a form whose name is in the query", "POST", "/files?path=DIR/z", form(`name="file"; filename="ignored"`, "1"), []string{formType}, 200, `[{"name":"z","path":"DIR/z","type":"file"}]`},
		{"an absolute filename with dots", "POST", "/files", form(`name="file"; filename="DIR/k/../abs"`, "1"), []string{formType}, 200, `[{"name":"abs","path":"DIR/abs","type":"file"}]`},
		{"a form without files", "POST", "/files", form(`name="other"`, "1"), []string{formType}, 200, `[]`},
		{"a part without a filename", "POST", "/files", form(`name="file"`, "1"), []string{formType}, 400, `{"code":400,"message":"error getting multipart custom part file name: filename not found in Content-Disposition header"}` + "\n"},
		{"two files of one name", "POST", "/files?path=DIR/z", form(`name="file"`, "1", `name="file"`, "2"), []string{formType}, 400, `{"code":400,"message":"you cannot upload multiple files to the same path 'DIR/z' in one upload request, only the first specified file was uploaded"}` + "\n"},
		{"a form without a boundary", "POST", "/files", "x", []string{"Content-Type: multipart/form-data"}, 400, `{"code":400,"message":"error parsing multipart form: no multipart boundary param in Content-Type"}` + "\n"},
		{"a form that is cut off", "POST", "/files?path=DIR/cut", "--X\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nhalf", []string{formType}, 400, `{"code":400,"message":"the upload broke off and its part was not kept: write DIR/cut: unexpected EOF"}` + "\n"},

		{"compose", "POST", "/files/compose", `{"source_paths":["DIR/p1","DIR/p2"],"destination":"DIR/whole"}`, nil, 200, `{"name":"whole","path":"DIR/whole","type":"file"}` + "\n"},
		{"compose has removed its sources", "GET", "/files?path=DIR/p1", "", nil, 404, `{"code":404,"message":"path 'DIR/p1' does not exist"}` + "\n"},
		{"compose of nothing", "POST", "/files/compose", `{"destination":"DIR/whole"}`, nil, 400, `{"code":400,"message":"source_paths must not be empty"}` + "\n"},
		{"compose to nothing", "POST", "/files/compose", `{"source_paths":["DIR/p1"]}`, nil, 400, `{"code":400,"message":"destination is required"}` + "\n"},
		{"compose of a missing file", "POST", "/files/compose", `{"source_paths":["DIR/p1"],"destination":"DIR/x"}`, nil, 404, `{"code":404,"message":"source file not found: DIR/p1"}` + "\n"},
		{"compose of a FIFO", "POST", "/files/compose", `{"source_paths":["DIR/fifo"],"destination":"DIR/x"}`, nil, 400, `{"code":400,"message":"source path is not a regular file: DIR/fifo"}` + "\n"},
		{"compose onto a FIFO", "POST", "/files/compose", `{"source_paths":["DIR/p2"],"destination":"DIR/fifo"}`, nil, 400, `{"code":400,"message":"destination \"DIR/fifo\" is not a regular file"}` + "\n"},
		{"compose of no JSON", "POST", "/files/compose", `{`, nil, 400, `{"code":400,"message":"invalid request body: unexpected end of JSON input"}` + "\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			body := strings.ReplaceAll(tt.body, "DIR", s.dir)
			want := strings.ReplaceAll(tt.want, "DIR", s.dir)
			res, got := s.do(tt.method, strings.ReplaceAll(tt.path, "DIR", s.dir), body, tt.headers...)
			if res.StatusCode != tt.code || got != want {
				t.Errorf("got %d %q\nwant %d %q", res.StatusCode, got, tt.code, want)
			}
			if res.StatusCode >= 400 && res.StatusCode != 416 && res.Header.Get("Content-Type") != "application/json; charset=utf-8" {
				t.Errorf("content type %q", res.Header.Get("Content-Type"))
			}
		})
	}
	if _, err := os.Stat(filepath.Join(s.dir, "cut")); !os.IsNotExist(err) {
		t.Errorf("half a file is left: %v", err)
	}
}

func TestHeadersOfADownload(t *testing.T) {
	s := serve(t, Config{})
	proctest.Must(t, os.WriteFile(filepath.Join(s.dir, "f.txt"), []byte("hello"), 0o644))
	res, _ := s.do("GET", "/files?path="+s.dir+"/f.txt", "")
	for name, want := range map[string]string{
		"Content-Disposition": "inline; filename=f.txt", "Vary": "Accept-Encoding", "Accept-Ranges": "bytes",
		"Content-Length": "5", "Content-Type": "text/plain; charset=utf-8",
	} {
		if got := res.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	res, got := s.do("GET", "/files?path="+s.dir+"/f.txt", "", "Accept-Encoding: gzip")
	zr := proctest.Value(gzip.NewReader(strings.NewReader(got)))(t)
	plain, err := io.ReadAll(zr)
	if err != nil || string(plain) != "hello" || res.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("%q, %v, %v", plain, err, res.Header)
	}
}

// TestAGzippedDownloadComesInLargeChunks: Node's fetch takes minutes for some
// 10 MiB that come in chunks of a few KiB.
func TestAGzippedDownloadComesInLargeChunks(t *testing.T) {
	s := serve(t, Config{})
	data := make([]byte, 4<<20)
	rand.Read(data)
	proctest.Must(t, os.WriteFile(s.dir+"/big", data, 0o644))
	conn := proctest.Value(net.Dial("tcp", strings.TrimPrefix(s.url, "http://")))(t)
	defer conn.Close()
	fmt.Fprintf(conn, "GET /files?path=%s/big HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n", s.dir)
	in := bufio.NewReader(conn)
	for line := ""; line != "\r\n"; {
		line = proctest.Value(in.ReadString('\n'))(t)
	}
	var zipped bytes.Buffer
	chunks := 0
	for {
		line := proctest.Value(in.ReadString('\n'))(t)
		n := proctest.Value(strconv.ParseInt(strings.TrimSpace(line), 16, 64))(t)
		if n == 0 {
			break
		}
		proctest.Value(io.CopyN(&zipped, in, n))(t)
		proctest.Value(in.Discard(2))(t)
		chunks++
	}
	if chunks > len(data)>>15 {
		t.Errorf("%d bytes came in %d chunks", zipped.Len(), chunks)
	}
	zr := proctest.Value(gzip.NewReader(&zipped))(t)
	if got, err := io.ReadAll(zr); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestGzippedUpload(t *testing.T) {
	s := serve(t, Config{})
	content := strings.Repeat("content ", 50_000)
	if res, got := s.do("POST", "/files?path="+s.dir+"/f", zipped(t, content), octets, "Content-Encoding: gzip"); res.StatusCode != 200 {
		t.Fatal(got)
	}
	if got, err := os.ReadFile(filepath.Join(s.dir, "f")); err != nil || string(got) != content {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestAClientThatLeavesHalfWayLeavesNoHalfFile(t *testing.T) {
	s := serve(t, Config{})
	conn := proctest.Value(net.Dial("tcp", strings.TrimPrefix(s.url, "http://")))(t)
	head := "POST /files?path=" + s.dir + "/half HTTP/1.1\r\nHost: x\r\n" + octets + "\r\nContent-Length: 10000000\r\n\r\n"
	proctest.Value(io.WriteString(conn, head+strings.Repeat("x", 1<<20)))(t)
	path := filepath.Join(s.dir, "half")
	proctest.Eventually(t, "the file is begun", func() bool { _, err := os.Stat(path); return err == nil })
	proctest.Must(t, conn.Close())
	proctest.Eventually(t, "the file is gone", func() bool { _, err := os.Stat(path); return os.IsNotExist(err) })
}

func TestSignatures(t *testing.T) {
	s := serve(t, Config{})
	s.token = "secret"
	path := s.dir + "/f"
	proctest.Must(t, os.WriteFile(path, []byte("hello"), 0o644))
	future, past := time.Now().Unix()+3600, time.Now().Unix()-10
	with := func(user, signature string, expires *int64) string {
		q := url.Values{"path": {path}}
		if user != "" {
			q.Set("username", user)
		}
		if signature != "" {
			q.Set("signature", signature)
		}
		if expires != nil {
			q.Set("signature_expiration", fmt.Sprint(*expires))
		}
		return "/files?" + q.Encode()
	}
	read := Sign(path, "read", "", "secret", nil)
	tests := []struct {
		name, method, path string
		headers            []string
		code               int
		message            string
	}{
		{"signed", "GET", with("", read, nil), nil, 200, ""},
		{"signed with the user", "GET", with(s.user, Sign(path, "read", s.user, "secret", nil), nil), nil, 200, ""},
		{"signed for a time", "GET", with("", Sign(path, "read", "", "secret", &future), &future), nil, 200, ""},
		{"signed for writing", "POST", with("", Sign(path, "write", "", "secret", nil), nil), []string{octets}, 200, ""},
		{"the token", "GET", with("", "", nil), []string{"X-Access-Token: secret"}, 200, ""},
		{"nothing", "GET", with("", "", nil), nil, 401, "missing signature query parameter"},
		{"a wrong token beside a right signature", "GET", with("", read, nil), []string{"X-Access-Token: nope"}, 401, "access token present in header but does not match"},
		{"another user", "GET", with("root", Sign(path, "read", "nobody", "secret", nil), nil), nil, 401, "invalid signature"},
		{"another operation", "POST", with("", read, nil), []string{octets}, 401, "invalid signature"},
		{"another token", "GET", with("", Sign(path, "read", "", "other", nil), nil), nil, 401, "invalid signature"},
		{"expired", "GET", with("", Sign(path, "read", "", "secret", &past), &past), nil, 401, "signature is already expired"},
		{"a time that was not signed", "GET", with("", read, &future), nil, 401, "invalid signature"},
		{"a time left out", "GET", with("", Sign(path, "read", "", "secret", &past), nil), nil, 401, "invalid signature"},
		{"a time that is no number", "GET", with("", read, nil) + "&signature_expiration=soon", nil, 400, "signature_expiration is not a whole number of unix seconds"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res, got := s.do(tt.method, tt.path, "hello", tt.headers...)
			if want := fmt.Sprintf("{\"code\":%d,\"message\":%q}\n", tt.code, tt.message); res.StatusCode != tt.code || tt.code != 200 && got != want {
				t.Errorf("got %d %s", res.StatusCode, got)
			}
		})
	}
	// A value computed by hand from the protocol, so that Sign cannot drift.
	if got, want := Sign("/a", "read", "u", "t", nil), "v1_CIceZ3P4fdLAoTAEm1NUdI+9xwhVISPtWXXnALyRHTw"; got != want {
		t.Errorf("Sign = %s, want %s", got, want)
	}
}

// TestFilesThatLieAboutTheirSize reads files of /proc and /sys, which say that
// they have 0 bytes, or a page.
func TestFilesThatLieAboutTheirSize(t *testing.T) {
	s := serve(t, Config{})
	for _, path := range []string{"/proc/sys/kernel/ostype", "/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled"} {
		want, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue // a kernel without it
		}
		if err != nil {
			t.Fatal(err)
		}
		if res, got := s.do("GET", "/files?path="+path, ""); res.StatusCode != 200 || got != string(want) {
			t.Errorf("%s: %d %q, want %q", path, res.StatusCode, got, want)
		}
		if res, got := s.do("GET", "/files?path="+path, "", "Range: bytes=1-2"); res.StatusCode != 206 || got != string(want[1:3]) {
			t.Errorf("a range of %s: %d %q, want %q", path, res.StatusCode, got, want[1:3])
		}
	}
	if res, got := s.do("GET", "/files?path=/proc/self/mem", ""); res.StatusCode != 500 || !strings.Contains(got, "error opening file '/proc/self/mem'") {
		t.Errorf("memory: %d %q", res.StatusCode, got)
	}
}
