//go:build linux && (amd64 || arm64)

package contain

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/core/container"
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

// TestAPieceHasNoMountBelowIt: the kernel refuses an ordinary user's overlay over one that has.
func TestAPieceHasNoMountBelowIt(t *testing.T) {
	root := t.TempDir()
	makeTree(t, root, "/usr/", "/usr/local/", "/usr/in -> local", "/usr/lib/", "/usr/lib/mounted/", "/usr/lib/mounted/deep/", "/usr/lib/a/", "/usr/lib/file", "/usr/bin/", "/usr/bin/tool", "/usr/bin/other",
		"/usr/odd:name/")
	k := newSkeleton(t.TempDir(), 0, true)
	got, err := k.split(piece{path: "/usr", from: root + "/usr"}, []string{"/elsewhere", root + "/usr/lib/mounted", root + "/usr/bin/tool", root})
	proctest.Must(t, err)
	var pieces []string
	for _, p := range got {
		pieces = append(pieces, fmt.Sprint(p.path, " ", p.bound))
	}
	if want := []string{"/usr/bin true", "/usr/lib/a false", "/usr/local false"}; !slices.Equal(pieces, want) {
		t.Errorf("%q; want %q", pieces, want)
	}
	for name, want := range map[string]bool{"/usr/lib/mounted": true, "/usr/lib/mounted/deep": false, "/usr/lib/file": true, "/usr/odd:name": false, "/usr/bin": false} {
		if _, err := os.Lstat(k.at + name); (err == nil) != want {
			t.Errorf("the skeleton has %s: %v", name, err)
		}
	}
	if to, err := os.Readlink(k.at + "/usr/in"); to != "local" {
		t.Errorf("a link leads to %q, %v", to, err)
	}
	if got, err = k.split(piece{path: "/usr", from: root + "/usr"}, nil); err != nil || len(got) != 1 || got[0].bound {
		t.Errorf("without mounts: %+v, %v", got, err)
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
		"a layer that has it, with nothing in": {layers: [2][]string{nil, {"/var/lib/"}}, want: []piece{{path: "/var/lib", host: true}}},
		"one that hides all, with nothing in":  {layers: [2][]string{nil, {"/var/lib/"}}, opaque: "/1/var/lib", want: []piece{{path: "/var/lib", lowers: []int{1}}}},
		"nothing but the machine's":            {want: []piece{{path: "/var/lib", host: true}}},
		"a layer that has it":                  {layers: [2][]string{nil, {"/var/lib/", "/var/lib/f"}}, want: []piece{{path: "/var/lib", lowers: []int{1}, host: true}}},
		"two layers":                           {layers: [2][]string{{"/var/lib/", "/var/lib/f"}, {"/var/lib/", "/var/lib/g"}}, want: []piece{{path: "/var/lib", lowers: []int{0, 1}, host: true}}},
		"a layer that hides what is below":     {layers: [2][]string{{"/var/lib/"}, {"/var/lib/"}}, opaque: "/0/var/lib", want: []piece{{path: "/var/lib", lowers: []int{0}}}},
		"one that does so above":               {layers: [2][]string{{"/var/"}, {"/var/lib/"}}, opaque: "/0/var"},
		"a link in a layer":                    {layers: [2][]string{{"/var -> " + outside}, {"/var/lib/"}}},
		"a link in the lower layer":            {layers: [2][]string{{"/var/lib/", "/var/lib/f"}, {"/var -> " + outside}}, want: []piece{{path: "/var/lib", lowers: []int{0}}}},
		"a link that a program inside made":    {up: []string{"/var -> " + outside}},
		"a file that a program inside made":    {up: []string{"/var/", "/var/lib"}},
		"what a program inside has written to": {up: []string{"/var/lib/"}, want: []piece{{path: "/var/lib", host: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := &container.Spec{Dir: dir + "/box", Layers: []string{dir + "/0", dir + "/1"}}
			makeTree(t, dir, "/0/", "/1/", "/box/up/")
			makeTree(t, dir+"/box/up", c.up...)
			makeTree(t, dir+"/0", c.layers[0]...)
			makeTree(t, dir+"/1", c.layers[1]...)
			if c.opaque != "" {
				proctest.Must(t, unix.Setxattr(dir+c.opaque, userOpaque, []byte("y"), 0))
			}
			got, err := piecesFor(dir+"/box/up", s.Layers, []piece{{path: "/var/lib", host: true, above: []attr{{mode: 0o755}, {mode: 0o750}}}}, false)
			proctest.Must(t, err)
			for i := range got {
				got[i].above, got[i].fd = nil, 0
			}
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
	s := container.Spec{Layers: make([]string, container.MaxLayers)}
	p := piece{path: "/var/lib/" + strings.Repeat("a", 40), host: true}
	for i := range s.Layers {
		p.lowers = append(p.lowers, i)
	}
	size := func() int { return len(pieceOptions(&s, &sources{pieces: []piece{p}}, 0)) }
	for size() < mostOptions {
		if p.path += "b"; size() > mostOptions {
			break
		}
		if err := fitting(&s, &sources{pieces: []piece{p}}); err != nil {
			t.Fatalf("%d bytes: %v", size(), err)
		}
	}
	err := fitting(&s, &sources{pieces: []piece{{path: "/etc", host: true}, p}})
	if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != "layers" || !strings.Contains(err.Error(), p.path) {
		t.Errorf("%d bytes: %v", size(), err)
	}
}
