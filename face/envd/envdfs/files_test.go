package envdfs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tend-run/tend/driver"
	"github.com/tend-run/tend/files"
	"github.com/tend-run/tend/internal/scene"
)

// TestAllGoesThroughTheFilesThatAreGiven: with those of a sandbox, nothing of the
// daemon's machine is seen.
func TestAllGoesThroughTheFilesThatAreGiven(t *testing.T) {
	inside := t.TempDir()
	me := scene.Value(files.Lookup(""))(t)
	me.Home = inside
	s := serve(t, Config{Files: func(_ context.Context, user string) (driver.Files, error) {
		switch user {
		case "", "inside":
			return files.FS{User: me}, nil
		case "closed":
			return nil, files.ErrPermission
		}
		return nil, errors.New("nobody of that name is inside")
	}})
	scene.Must(t, os.WriteFile(filepath.Join(inside, "f"), []byte("inside"), 0o600))
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
