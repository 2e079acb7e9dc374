package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestProgramsElsewhereAreNamed(t *testing.T) {
	proctest.Root(t)
	dir := proctest.Value(os.MkdirTemp("/srv", "tend-elsewhere-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range []string{"opt/java/bin/java", "u/.nvm/versions/node/v22.1.0/bin/node", "tools/tool", "plain/file"} {
		proctest.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		mode := os.FileMode(0o755)
		if name == "plain/file" {
			mode = 0o644
		}
		proctest.Must(t, os.WriteFile(filepath.Join(dir, name), nil, mode))
	}
	path := strings.Join([]string{dir + "/opt/java/bin", dir + "/u/.nvm/versions/node/v22.1.0/bin", dir + "/tools", dir + "/plain", dir + "/none", "/usr/bin"}, ":")
	var places []string
	for _, f := range Elsewhere(path, []string{dir + "/tools"}) {
		if strings.Contains(f.Detail, dir) {
			places = append(places, f.Detail)
		}
	}
	want := "java is in " + dir + "/opt/java, which isolated sandboxes do not see\nnode is in " + dir + "/u/.nvm/versions/node/v22.1.0, which isolated sandboxes do not see"
	if got := strings.Join(places, "\n"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestThePlaceOfAProgram(t *testing.T) {
	for program, want := range map[string]string{
		"/opt/google/chrome/chrome":                   "/opt/google",
		"/nix/store/abc-hello/bin/hello":              "/nix/store",
		"/snap/bin/code":                              "/snap",
		"/home/linuxbrew/.linuxbrew/bin/brew":         "/home/linuxbrew/.linuxbrew",
		"/home/u/.rustup/toolchains/stable/bin/rustc": "/home/u/.rustup/toolchains/stable",
		"/root/.pyenv/shims/python":                   "/root/.pyenv",
		"/root/bin/x":                                 "/root/bin",
		"/data/app/bin/x":                             "/data/app",
		"/data/x":                                     "/data",
	} {
		if got := placeOf(program); got != want {
			t.Errorf("%s: %s, want %s", program, got, want)
		}
	}
}
