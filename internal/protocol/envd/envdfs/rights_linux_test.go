package envdfs

import (
	"context"
	"encoding/base64"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/tend-run/tend/internal/gen/envd/filesystem"
	"github.com/tend-run/tend/internal/gen/envd/filesystem/filesystemconnect"
	"github.com/tend-run/tend/internal/support/proctest"
)

// TestRequestsForAnotherUserHaveThatUsersRights tries each way into the file
// half of the protocol with links that lead to root's files.
func TestRequestsForAnotherUserHaveThatUsersRights(t *testing.T) {
	proctest.Root(t)
	s := serve(t, Config{})
	top := proctest.Value(os.MkdirTemp("", "envdfs-"))(t)
	t.Cleanup(func() {
		if err := os.RemoveAll(top); err != nil {
			t.Error(err)
		}
	})
	nobody := proctest.Value(user.Lookup("nobody"))(t)
	uid := proctest.Value(strconv.Atoi(nobody.Uid))(t)
	home, closed := filepath.Join(top, "home"), filepath.Join(top, "closed")
	secret := filepath.Join(closed, "secret")
	for _, err := range []error{
		os.Chmod(top, 0o755), os.Mkdir(home, 0o755), os.Chown(home, uid, -1), os.Mkdir(closed, 0o700),
		os.WriteFile(secret, []byte("root's"), 0o644), os.Symlink(secret, home+"/last"), os.Symlink(closed, home+"/middle"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{home + "/last", home + "/middle/secret", home + "/middle/new", secret} {
		for _, ask := range [][]string{
			{"GET", "/files?username=nobody&path=" + path, ""},
			{"HEAD", "/files?username=nobody&path=" + path, ""},
			{"POST", "/files?username=nobody&path=" + path, "x", "Content-Type: application/octet-stream"},
			{"POST", "/files/compose", `{"username":"nobody","source_paths":["` + path + `"],"destination":"` + home + `/got"}`},
		} {
			if res, text := s.do(ask[0], ask[1], ask[2], ask[3:]...); res.StatusCode != http.StatusForbidden {
				t.Errorf("%s %s: %s %s", ask[0], ask[1], res.Status, text)
			}
		}
	}
	c := filesystemconnect.NewFilesystemClient(s.http, s.url)
	as := func(r connect.AnyRequest) {
		r.Header().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("nobody:")))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, call := range map[string]func() error{
		"Stat": func() error {
			r := connect.NewRequest(&pb.StatRequest{Path: home + "/middle/secret"})
			as(r)
			_, err := c.Stat(ctx, r)
			return err
		},
		"MakeDir": func() error {
			r := connect.NewRequest(&pb.MakeDirRequest{Path: home + "/middle/dir"})
			as(r)
			_, err := c.MakeDir(ctx, r)
			return err
		},
		"Move": func() error {
			r := connect.NewRequest(&pb.MoveRequest{Source: home + "/middle/secret", Destination: home + "/got"})
			as(r)
			_, err := c.Move(ctx, r)
			return err
		},
		"ListDir": func() error {
			r := connect.NewRequest(&pb.ListDirRequest{Path: home + "/middle"})
			as(r)
			_, err := c.ListDir(ctx, r)
			return err
		},
		"Remove": func() error {
			r := connect.NewRequest(&pb.RemoveRequest{Path: home + "/middle/secret"})
			as(r)
			_, err := c.Remove(ctx, r)
			return err
		},
		"CreateWatcher": func() error {
			r := connect.NewRequest(&pb.CreateWatcherRequest{Path: home + "/middle"})
			as(r)
			_, err := c.CreateWatcher(ctx, r)
			return err
		},
	} {
		if err := call(); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	if text, err := os.ReadFile(secret); err != nil || string(text) != "root's" {
		t.Errorf("root's file holds %q, %v", text, err)
	}
	if res, text := s.do("POST", "/files?username=nobody&path="+home+"/a/b", "mine", "Content-Type: application/octet-stream"); res.StatusCode != 200 {
		t.Errorf("the user's own file: %s %s", res.Status, text)
	}
}

func TestFilesAreServedAsData(t *testing.T) {
	s := serve(t, Config{})
	for _, name := range []string{"page.html", "picture.svg", "text"} {
		proctest.Must(t, os.WriteFile(filepath.Join(s.dir, name), []byte("<script>alert(1)</script>"), 0o644))
		for _, encoding := range []string{"identity", "gzip"} {
			res, _ := s.do("GET", "/files?path="+filepath.Join(s.dir, name), "", "Accept-Encoding: "+encoding)
			h := res.Header
			if res.StatusCode != 200 || h.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(h.Get("Content-Security-Policy"), "sandbox") {
				t.Errorf("%s as %s: %s %v", name, encoding, res.Status, h)
			}
		}
	}
}

func TestNothingWithoutAnEndIsServed(t *testing.T) {
	s := serve(t, Config{})
	for _, path := range []string{"/proc/kmsg", "/proc/kcore", "/proc/self/fd/0", "/proc/self/cwd/x", "/dev/zero", "/dev/stdin"} {
		if res, text := s.do("GET", "/files?path="+path, ""); res.StatusCode < 400 || !strings.HasPrefix(text, `{"code":`) {
			t.Errorf("%s: %s %.200s", path, res.Status, text)
		}
	}
}
