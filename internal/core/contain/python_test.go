//go:build linux && (amd64 || arm64)

package contain

import (
	"os"
	"path/filepath"
	"testing"
)

func TestThereIsAPythonWhereTheMachineHasAnother(t *testing.T) {
	for name, c := range map[string]struct {
		programs []string
		links    map[string]string
		want     string
	}{
		"as Debian has it":                        {[]string{"usr/local/bin/", "usr/bin/python3"}, nil, "/usr/bin/python3"},
		"the first of PATH":                       {[]string{"usr/local/bin/python3", "usr/bin/python3"}, nil, "/usr/local/bin/python3"},
		"where there is none":                     {[]string{"usr/local/bin/"}, nil, ""},
		"where there is one":                      {[]string{"usr/local/bin/python3", "usr/bin/python"}, nil, ""},
		"where the link that there is leads away": {[]string{"usr/local/bin/", "usr/bin/python3"}, map[string]string{"usr/bin/python": "gone"}, "/usr/bin/python3"},
		"where its place is to be made":           {[]string{"usr/bin/python3"}, nil, "/usr/bin/python3"},
		"where a file is in its place":            {[]string{"usr/local/bin", "usr/bin/python3"}, nil, ""},
		"where its place is elsewhere":            {[]string{"opt/bin/", "usr/bin/python3"}, map[string]string{"usr/local": "../opt"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			root, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range c.programs {
				at := filepath.Join(root, p)
				if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
					t.Fatal(err)
				}
				if p[len(p)-1] == '/' {
					err = os.MkdirAll(at, 0o755)
				} else {
					err = os.WriteFile(at, nil, 0o755)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for at, to := range c.links {
				if err := os.Symlink(to, filepath.Join(root, at)); err != nil {
					t.Fatal(err)
				}
			}
			if got := pythonLink(root); got != c.want {
				t.Errorf("python leads to %q, want %q", got, c.want)
			}
		})
	}
}
