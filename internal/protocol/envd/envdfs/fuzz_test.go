package envdfs

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/protocol"
	"github.com/tend-run/tend/internal/support/proctest"
)

// Whatever the query, nothing but the right signature opens /files.
func FuzzSignature(f *testing.F) {
	f.Add("path=/etc/passwd&signature=v1_x")
	f.Add("path=/etc/passwd&signature=&signature_expiration=-1")
	f.Add("path=/etc/passwd&signature_expiration=99999999999999999999")
	f.Add("username=root&path=%00&signature=%ff")
	f.Fuzz(func(t *testing.T, query string) {
		fc := New(Config{Tokens: func(*http.Request) []protocol.Token { return []protocol.Token{"a token that nobody guesses"} }})
		r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/files", RawQuery: query}, Header: http.Header{}}
		if fail := fc.checkAccess(r, r.URL.Query(), opRead); fail == nil {
			t.Errorf("%q was let in", query)
		}
		if err := fc.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Whatever the form, it is answered, and files are made under the path of the
// query only.
func FuzzMultipart(f *testing.F) {
	f.Add(form(`name="file"; filename="a"`, "x"), "X")
	f.Add("--X\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nhalf", "X")
	f.Add("--X--", "X")
	f.Add("", "")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, body, boundary string) {
		fc := New(Config{Files: machineIn("")})
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/files?"+url.Values{"path": {dir + "/file"}}.Encode(), strings.NewReader(body))
		r.Header.Set("Content-Type", "multipart/form-data; boundary="+boundary)
		answers(fc.upload)(w, r)
		if w.Code != 200 && w.Code != 400 {
			text, _ := io.ReadAll(w.Body)
			t.Errorf("%d %s", w.Code, text)
		}
		if err := fc.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Whatever the query and the headers of a download, the answer is the file, a
// part of it, or what is wrong with them.
func FuzzDownload(f *testing.F) {
	dir := f.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("hello"), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Add("path=file", "gzip;q=0.5, identity;q=0", "bytes=1-2")
	f.Add("path=file&username=", "*;q=0", "")
	f.Add("path=%00", "", "bytes=-")
	f.Add("path=..&path=file&username=%ff;x", "gzip;q=nan;v=-1,br;q=2,identity;q=-1", "bytes=0-0,2-2,9-")
	f.Add("username=no-such-user&path=~root/x", "identity;q=1e999", "lines=1")
	f.Fuzz(func(t *testing.T, query, encoding, ranges string) {
		fc := New(Config{Files: machineIn(dir)})
		defer fc.Close()
		w := httptest.NewRecorder()
		// HEAD: the fuzzer may come to name a file of this machine.
		r := &http.Request{Method: http.MethodHead, URL: &url.URL{Path: "/files", RawQuery: query}, Header: http.Header{}}
		for name, v := range map[string]string{"Accept-Encoding": encoding, "Range": ranges} {
			if v != "" {
				r.Header.Set(name, v)
			}
		}
		answers(fc.download)(w, r)
		switch w.Code {
		case 200, 206, 400, 401, 403, 404, 406, 416:
		default:
			t.Errorf("%q, %q, %q: %d %s", query, encoding, ranges, w.Code, w.Body)
		}
		list := parseCodings(encoding)
		for i, c := range list {
			if math.IsNaN(c.q) || i > 0 && list[i-1].q < c.q {
				t.Errorf("%q is %v", encoding, list)
			}
		}
		if zip, plainRefused, err := useGzip(encoding); err != nil && (zip || !plainRefused) {
			t.Errorf("%q: gzip %v and only that %v, with %v", encoding, zip, plainRefused, err)
		}
	})
}

// Whatever the body, it is composed of what is there, or refused.
func FuzzCompose(f *testing.F) {
	dir := f.TempDir()
	f.Add([]byte(`{"source_paths":["a","b"],"destination":"c"}`))
	f.Add([]byte(`{"source_paths":["a","a"],"destination":"a"}`))
	f.Add([]byte(`{"source_paths":[],"destination":""}`))
	f.Add([]byte(`{"source_paths":["",".",".."],"destination":"."}`))
	f.Add([]byte(`{"source_paths":{"a":1}}`))
	f.Add([]byte(`{"source_paths":["none"],"destination":"c","username":"no-such-user"}`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, body []byte) {
		// No name may lead out of the directory: it is written to.
		if strings.ContainsAny(string(body), `/~\`) {
			return
		}
		for _, name := range []string{"a", "b"} {
			proctest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
		}
		fc := New(Config{Files: machineIn(dir)})
		defer fc.Close()
		w := httptest.NewRecorder()
		answers(fc.compose)(w, httptest.NewRequest(http.MethodPost, "/files/compose", strings.NewReader(string(body))))
		var answer struct{ Path, Message string }
		err := json.Unmarshal(w.Body.Bytes(), &answer)
		switch {
		case err == nil && w.Code == 200 && filepath.Dir(answer.Path) == dir:
		case err == nil && w.Code >= 400 && w.Code < 500 && answer.Message != "":
		default:
			t.Errorf("%q: %d %s, %v", body, w.Code, w.Body, err)
		}
		if w.Code == 200 {
			if err := os.Remove(answer.Path); err != nil {
				t.Error(err)
			}
		}
	})
}
