//go:build linux && (amd64 || arm64)

package cell

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/box"
	"github.com/tend-run/tend/internal/core/spawn"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

// tree makes directories (with a slash at the end), links ("a -> b") and files.
func makeTree(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, n := range names {
		if link, to, ok := strings.Cut(n, " -> "); ok {
			proctest.Must(t, os.Symlink(to, dir+link))
		} else if strings.HasSuffix(n, "/") {
			proctest.Must(t, os.MkdirAll(dir+n, 0o755))
		} else {
			proctest.Must(t, os.WriteFile(dir+n, []byte(n), 0o644))
		}
	}
}

// TestAPieceHasNoMountBelowIt: the kernel refuses an overlay over one that has.
func TestAPieceHasNoMountBelowIt(t *testing.T) {
	root, at := t.TempDir(), t.TempDir()
	makeTree(t, root, "/usr/", "/usr/local/", "/bin -> usr/bin", "/data/", "/home/", "/var/", "/var/lib/", "/var/lib/docker/", "/var/lib/apt/", "/var/cache/", "/var/file", "/odd:name/", "/top")
	makeTree(t, at, "/t/", "/c/var/cache/")
	m := &mask{at: at, root: root, rootless: true, done: map[string]bool{"/home": true}}
	got, err := m.pieces([]string{"/data", "/var/lib/docker/a/merged", "/var/lib/docker/b"})
	proctest.Must(t, err)
	want := []piece{{path: "/usr", host: true}, {path: "/var/cache", host: true, cut: true}, {path: "/var/lib/apt", host: true}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(piece{})); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string]bool{"/usr/local": true, "/data": true, "/var/lib/docker": true, "/var/file": true, "/top": true, "/odd:name": false, "/home": false} {
		if _, err := os.Lstat(at + maskTop + name); (err == nil) != want {
			t.Errorf("the mask has %s: %v", name, err)
		}
	}
	if to, err := os.Readlink(at + maskTop + "/bin"); to != "usr/bin" {
		t.Errorf("/bin leads to %q, %v", to, err)
	}
	var many []string
	for i := range mostPieces - 2 {
		many = append(many, "/many/"+strings.Repeat("a", i+1)+"/")
	}
	makeTree(t, root, many...)
	m.at = t.TempDir()
	makeTree(t, m.at, "/t/")
	if _, err := m.pieces([]string{"/many/a"}); err != nil {
		t.Errorf("as many as may be: %v", err)
	}
	makeTree(t, root, "/many/b/", "/many/c/", "/many/d/")
	m.at = t.TempDir()
	makeTree(t, m.at, "/t/")
	if _, err := m.pieces([]string{"/many/a"}); err == nil || !strings.Contains(err.Error(), "template") {
		t.Errorf("too many: %v", err)
	}
}

func TestMountPointsAreReadAsTheKernelWritesThem(t *testing.T) {
	got := mountPoints("21 1 8:1 / / rw - ext4 /dev/a rw\n22 21 0:5 / /a\\040b rw - proc proc rw\n23 21 0:5 / /c rw - proc proc rw\nshort\n")
	if want := []string{"/a b", "/c"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestLayersOfAPiece: what a program inside, or a layer, has put in the place of a
// directory is followed nowhere, and hides what is below.
func TestLayersOfAPiece(t *testing.T) {
	proctest.Root(t) // it makes what hides a file
	outside := t.TempDir()
	for name, c := range map[string]struct {
		up     []string
		layers [2][]string // topmost first
		opaque string
		want   []piece
	}{
		"nothing but the machine's":            {want: []piece{{path: "/var/lib", host: true}}},
		"a layer that has it":                  {layers: [2][]string{nil, {"/var/lib/"}}, want: []piece{{path: "/var/lib", lowers: []int{1}, host: true}}},
		"two layers":                           {layers: [2][]string{{"/var/lib/"}, {"/var/lib/"}}, want: []piece{{path: "/var/lib", lowers: []int{0, 1}, host: true}}},
		"a layer that hides what is below":     {layers: [2][]string{{"/var/lib/"}, {"/var/lib/"}}, opaque: "/0/var/lib", want: []piece{{path: "/var/lib", lowers: []int{0}}}},
		"one that does so above":               {layers: [2][]string{{"/var/"}, {"/var/lib/"}}, opaque: "/0/var"},
		"a link in a layer":                    {layers: [2][]string{{"/var -> " + outside}, {"/var/lib/"}}},
		"a link in the lower layer":            {layers: [2][]string{{"/var/lib/"}, {"/var -> " + outside}}, want: []piece{{path: "/var/lib", lowers: []int{0}}}},
		"a link that a program inside made":    {up: []string{"/var -> " + outside}},
		"a file that a program inside made":    {up: []string{"/var/", "/var/lib"}},
		"what a program inside has written to": {up: []string{"/var/lib/"}, want: []piece{{path: "/var/lib", host: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := &box.Spec{Dir: dir + "/box", Layers: []string{dir + "/0", dir + "/1"}}
			makeTree(t, dir, "/0/", "/1/", "/box/up/")
			makeTree(t, dir+"/box/up", c.up...)
			makeTree(t, dir+"/0", c.layers[0]...)
			makeTree(t, dir+"/1", c.layers[1]...)
			if c.opaque != "" {
				proctest.Must(t, unix.Setxattr(dir+c.opaque, userOpaque, []byte("y"), 0))
			}
			got, err := piecesFor(s, []piece{{path: "/var/lib", host: true}})
			proctest.Must(t, err)
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(piece{})); diff != "" {
				t.Error(diff)
			}
			if len(got) > 0 {
				if fi, err := os.Lstat(filepath.Join(s.Dir, "up/var/lib")); err != nil || !fi.IsDir() {
					t.Errorf("its place: %v", err)
				}
			}
			if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
				t.Errorf("outside there is %v, %v", left, err)
			}
		})
	}
}

// TestASettingThatForbidsUserNamespacesIsNamed: to change them for a test would change them
// for all.
func TestASettingThatForbidsUserNamespacesIsNamed(t *testing.T) {
	none := &spawn.ListError{What: stepUsers, Errno: syscall.EPERM}
	for name, c := range map[string]struct {
		err  error
		set  map[string]string
		want string
	}{
		"Debian's":            {none, map[string]string{"kernel.unprivileged_userns_clone": "0"}, "kernel.unprivileged_userns_clone is 0"},
		"Ubuntu's":            {&spawn.ListError{What: stepMap + "uid_map", Errno: syscall.EPERM}, map[string]string{"kernel.apparmor_restrict_unprivileged_userns": "1", "kernel.unprivileged_userns_clone": "1"}, "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"},
		"none of them":        {&spawn.ListError{What: stepUsers, Errno: syscall.ENOSPC}, map[string]string{"user.max_user_namespaces": "0"}, "user.max_user_namespaces is 0"},
		"as many as may be":   {&spawn.ListError{What: stepUsers, Errno: syscall.ENOSPC}, map[string]string{"user.max_user_namespaces": "9"}, "user.max_user_namespaces allows"},
		"a filter":            {none, nil, "container"},
		"something of mounts": {&spawn.ListError{What: "bind the machine's root", Errno: syscall.EACCES}, nil, "run tend as root"},
	} {
		got := whyNotRootless(c.err, func(name string) string { return c.set[name] })
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestAPieceWithTooManyOptionsIsRefused: the kernel would cut them, and so leave layers out.
func TestAPieceWithTooManyOptionsIsRefused(t *testing.T) {
	s := box.Spec{Layers: make([]string, box.MaxLayers)}
	p := piece{path: "/var/lib/" + strings.Repeat("a", 40), host: true}
	for i := range s.Layers {
		p.lowers = append(p.lowers, i)
	}
	for len(pieceOptions(&s, p, 0)) < mostOptions {
		p.path += "b"
		if len(pieceOptions(&s, p, 0)) > mostOptions {
			break
		}
		if err := fitting(&s, []piece{p}); err != nil {
			t.Fatalf("%d bytes: %v", len(pieceOptions(&s, p, 0)), err)
		}
	}
	err := fitting(&s, []piece{{path: "/etc", host: true}, p})
	if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != "layers" || !strings.Contains(err.Error(), p.path) {
		t.Errorf("%d bytes: %v", len(pieceOptions(&s, p, 1)), err)
	}
}
