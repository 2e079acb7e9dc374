package tend

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/tend-run/tend/process"
)

// maxSigned is the longest that a signed URL is good for.
const maxSigned = 7 * 24 * time.Hour

// DownloadURL returns a URL with which anybody may get one file of the sandbox until it
// expires, 1 second to 7 days from now, by GET and without a token. The path is absolute.
// user names a user inside; "": the sandbox's own. If the server has no TCP port, the error
// is [process.ErrUnsupported].
func (s *Sandbox) DownloadURL(ctx context.Context, path, user string, valid time.Duration) (string, error) {
	return s.signed(ctx, "read", path, user, valid)
}

// UploadURL returns a URL like that of DownloadURL with which anybody may write one file by
// POST: the content as application/octet-stream, or in a form. New files belong to the user.
func (s *Sandbox) UploadURL(ctx context.Context, path, user string, valid time.Duration) (string, error) {
	return s.signed(ctx, "write", path, user, valid)
}

// signed makes the URL that E2B's protocol has for a file. Its token is the sandbox's alone.
func (s *Sandbox) signed(ctx context.Context, op, name, user string, valid time.Duration) (string, error) {
	switch {
	case !path.IsAbs(name):
		return "", &process.InvalidError{Field: "path", Reason: "is not absolute"}
	case valid < time.Second || valid > maxSigned:
		return "", &process.InvalidError{Field: "valid", Reason: fmt.Sprintf("is %v; 1s to %v are allowed", valid, maxSigned)}
	}
	base := s.client.base
	if strings.HasPrefix(s.client.url, "unix:") {
		status, err := s.client.Status(ctx)
		if err != nil {
			return "", err
		}
		base = status.URL
	}
	if u, err := url.Parse(base); err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("%w: the daemon has no TCP port, as with tend serve", process.ErrUnsupported)
	}
	a, err := s.Access(ctx)
	if err != nil {
		return "", err
	}
	expires := strconv.FormatInt(time.Now().Add(valid).Unix(), 10)
	sum := sha256.Sum256([]byte(strings.Join([]string{name, op, user, a.Token, expires}, ":")))
	query := url.Values{"path": {name}, "username": {user}, "signature": {"v1_" + base64.RawStdEncoding.EncodeToString(sum[:])},
		"signature_expiration": {expires}}
	return strings.TrimSuffix(base, "/") + "/files?" + query.Encode(), nil
}
