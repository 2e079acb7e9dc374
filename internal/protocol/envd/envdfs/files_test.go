package envdfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/support/proctest"
)

// TestAllGoesThroughTheFilesThatAreGiven: with those of a sandbox, nothing of the
// daemon's machine is seen.
func TestAllGoesThroughTheFilesThatAreGiven(t *testing.T) {
	inside := t.TempDir()
	me := proctest.Value(files.Lookup(""))(t)
	me.Home = inside
	s := serve(t, Config{Files: func(_ context.Context, user string) (driver.Files, error) {
		switch user {
		case "", "inside":
			return files.FS{User: me}, nil
		case "closed":
			return nil, files.ErrPermission
		case "ended":
			return nil, fmt.Errorf("root of sandbox x: %w", driver.ErrStopped)
		case "ending":
			return files.FS{User: me, Root: ended(t, inside)}, nil
		}
		return nil, errors.New("nobody of that name is inside")
	}})
	proctest.Must(t, os.WriteFile(filepath.Join(inside, "f"), []byte("inside"), 0o600))
	json := "Content-Type: application/json"
	for _, tt := range []struct {
		name, method, path, body, user string
		want                           int
	}{
		{"stat", "POST", "/filesystem.Filesystem/Stat", `{"path":"f"}`, "inside", 200},
		{"stat by default", "POST", "/filesystem.Filesystem/Stat", `{"path":"f"}`, "", 200},
		{"a user of the machine", "POST", "/filesystem.Filesystem/Stat", `{"path":"f"}`, s.user, 401},
		{"one who is closed", "POST", "/filesystem.Filesystem/Stat", `{"path":"f"}`, "closed", 403},
		{"make", "POST", "/filesystem.Filesystem/MakeDir", `{"path":"d"}`, "inside", 200},
		{"list", "POST", "/filesystem.Filesystem/ListDir", `{"path":"d"}`, "inside", 200},
		{"watch", "POST", "/filesystem.Filesystem/CreateWatcher", `{"path":"d"}`, "inside", 200},
		{"move", "POST", "/filesystem.Filesystem/Move", `{"source":"f","destination":"d/g"}`, "inside", 200},
		{"compose", "POST", "/files/compose?username=inside", `{"source_paths":["d/g"],"destination":"h","username":"inside"}`, "", 200},
		{"download", "GET", "/files?path=h&username=inside", "", "", 200},
		{"download for nobody", "GET", "/files?path=h&username=x", "", "", 401},
		{"one whose sandbox has ended", "POST", "/filesystem.Filesystem/Stat", `{"path":"f"}`, "ended", 503},
		{"one whose sandbox ends", "POST", "/filesystem.Filesystem/Stat", `{"path":"f"}`, "ending", 503},
		{"a download where the sandbox has ended", "GET", "/files?path=h&username=ended", "", "", 502},
		{"a download where the sandbox ends", "GET", "/files?path=h&username=ending", "", "", 502},
		{"remove", "POST", "/filesystem.Filesystem/Remove", `{"path":"d"}`, "inside", 200},
	} {
		headers := []string{json}
		if tt.user != "" {
			headers = append(headers, basic(tt.user))
		}
		if res, text := s.do(tt.method, tt.path, tt.body, headers...); res.StatusCode != tt.want {
			t.Errorf("%s: %d %s; want %d", tt.name, res.StatusCode, text, tt.want)
		}
	}
	if text, err := os.ReadFile(filepath.Join(inside, "h")); err != nil || string(text) != "inside" {
		t.Errorf("inside there is %q, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(inside, "d")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("d is left: %v", err)
	}
}

// ended is the root of a sandbox that was destroyed.
func ended(t *testing.T, dir string) *files.Root {
	d := proctest.Value(os.Open(dir))(t)
	defer d.Close()
	root := proctest.Value(files.OpenRoot(d, 0))(t)
	proctest.Must(t, root.End(driver.ErrNotFound))
	return root
}
