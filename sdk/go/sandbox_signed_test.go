//go:build unix

package tend_test

import (
	"errors"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/tend-run/tend/internal/protocol/envd/envdfs"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

func TestASignedURLIsForOneFileUserMethodAndTime(t *testing.T) {
	t.Parallel()
	s := proctest.Value(withSandboxes(t, nil).CreateSandbox(t.Context(), tend.SandboxSpec{}))(t)
	token := proctest.Value(s.Access(t.Context()))(t).Token
	for op, sign := range map[string]func() (string, error){
		"read":  func() (string, error) { return s.DownloadURL(t.Context(), "/a b", "u", time.Hour) },
		"write": func() (string, error) { return s.UploadURL(t.Context(), "/a b", "u", time.Hour) },
	} {
		u := proctest.Value(url.Parse(proctest.Value(sign())(t)))(t)
		q := u.Query()
		until := proctest.Value(strconv.ParseInt(q.Get("signature_expiration"), 10, 64))(t)
		left := time.Until(time.Unix(until, 0))
		if u.Path != "/files" || q.Get("path") != "/a b" || q.Get("username") != "u" || left > time.Hour || left < 0 ||
			q.Get("signature") != envdfs.Sign("/a b", op, "u", token, &until) {
			t.Errorf("%s: %s", op, u)
		}
	}
	for field, call := range map[string]func() (string, error){
		"path":  func() (string, error) { return s.DownloadURL(t.Context(), "a", "", time.Hour) },
		"valid": func() (string, error) { return s.UploadURL(t.Context(), "/a", "", 8*24*time.Hour) },
	} {
		if _, err := call(); !errors.As(err, new(*process.InvalidError)) {
			t.Errorf("a wrong %s: %v", field, err)
		}
	}
}
