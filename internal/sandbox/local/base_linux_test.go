package local

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestBaseHasAPythonWhereTheMachineHasAnother(t *testing.T) {
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
		"where there is no place for it":          {[]string{"usr/bin/python3"}, nil, ""},
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

func TestThePythonOfBaseIsForAllWhateverTheUmask(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	dir := t.TempDir()
	if err := fillBase(dir, "", "", "/usr/bin/python3", nil); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(filepath.Join(dir, localBin, "python")); err != nil || to != "/usr/bin/python3" {
		t.Errorf("python leads to %q (%v)", to, err)
	}
	for at := localBin; at != "."; at = filepath.Dir(at) {
		if info, err := os.Stat(filepath.Join(dir, at)); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s is %v (%v), want 0755: it lies above the machine's", at, info.Mode(), err)
		}
	}
	bare := t.TempDir()
	if err := fillBase(bare, "", "", "", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(bare, "usr")); !os.IsNotExist(err) {
		t.Errorf("without a link there is usr in base, above the machine's (%v)", err)
	}
}
