package envdfs

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/tend-run/tend/face"
)

// Whatever the query, nothing but the right signature opens /files.
func FuzzSignature(f *testing.F) {
	f.Add("path=/etc/passwd&signature=v1_x")
	f.Add("path=/etc/passwd&signature=&signature_expiration=-1")
	f.Add("path=/etc/passwd&signature_expiration=99999999999999999999")
	f.Add("username=root&path=%00&signature=%ff")
	f.Fuzz(func(t *testing.T, query string) {
		fc := New(Config{Token: func() face.Token { return "a token that nobody guesses" }})
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
		fc := New(Config{})
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/files?"+url.Values{"path": {dir + "/file"}}.Encode(), strings.NewReader(body))
		r.Header.Set("Content-Type", "multipart/form-data; boundary="+boundary)
		fc.upload(w, r)
		if w.Code != 200 && w.Code != 400 {
			text, _ := io.ReadAll(w.Body)
			t.Errorf("%d %s", w.Code, text)
		}
		if err := fc.Close(); err != nil {
			t.Error(err)
		}
	})
}
