//go:build linux

package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/proctest"
)

func TestTheCgroup2TreeIsFoundInMountinfo(t *testing.T) {
	const (
		v1     = "31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime shared:15 - cgroup cgroup rw,cpu\n"
		other  = "22 28 0:21 / /proc rw,nosuid shared:12 - proc proc rw\n36 22 0:33 / /proc/cgroup2 rw - tmpfs cgroup2 rw\n"
		hybrid = "42 30 0:39 / /sys/fs/cgroup/unified rw,relatime shared:16 - cgroup2 cgroup2 rw,nsdelegate\n"
	)
	for _, c := range []struct {
		name, info  string
		mount, root string
	}{
		{"nothing", "", "", ""},
		{"v1 controllers alone, and names that only look like it", v1 + other, "", ""},
		{"a v2 tree beside v1 controllers", v1 + other + hybrid, "/sys/fs/cgroup/unified", "/"},
		{"a v2 tree alone, without optional fields", "30 23 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n", "/sys/fs/cgroup", "/"},
		{"several optional fields", "30 23 0:26 / /sys/fs/cgroup rw shared:4 master:1 propagate_from:2 - cgroup2 cgroup rw\n", "/sys/fs/cgroup", "/"},
		{"a container that sees its own group alone", "900 890 0:26 /docker/0123 /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "/sys/fs/cgroup", "/docker/0123"},
		{"a path with a space", `30 23 0:26 / /mnt/my\040groups rw - cgroup2 none rw` + "\n", "/mnt/my groups", "/"},
		{"a line that is cut short", "30 23 0:26 / - cgroup2\n", "", ""},
	} {
		mount, root, ok := mountOf(c.info)
		if mount != c.mount || root != c.root || ok != (c.mount != "") {
			t.Errorf("%s: %q, %q, %v; want %q, %q", c.name, mount, root, ok, c.mount, c.root)
		}
	}
}

func TestOnesOwnGroupIsTheOneOfV2(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "/",
		"3:cpu:/system.slice\n":                  "/",
		"3:cpu:/a\n1:name=systemd:/b\n0::/c/d\n": "/c/d",
		"0::/\n":                                 "/",
		"0::/../outside\n":                       "/../outside",
	} {
		if got := ownGroup(text); got != want {
			t.Errorf("%q is in %q; want %q", text, got, want)
		}
	}
}

// Where systemd has put the roles into a group of their own, the tree is beside them.
func TestTheTreeIsBesideTheRolesWhereTheGroupAroundIsDelegated(t *testing.T) {
	proctest.Root(t)
	mount := t.TempDir() // findV2 makes directories, and asks for no more
	for name, c := range map[string]struct {
		attr, former, want string
	}{
		"a group that is nobody's":         {"", "", "unit/roles/tree"},
		"delegated":                        {"trusted.delegate", "", "unit/tree"},
		"delegated, as others see it":      {"user.delegate", "", "unit/tree"},
		"with the tree of a keeper before": {"trusted.delegate", "unit/roles/tree", "unit/roles/tree"},
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(mount, t.Name())
			proctest.Must(t, os.MkdirAll(filepath.Join(root, "unit/roles"), 0o755))
			if c.attr != "" {
				proctest.Must(t, unix.Setxattr(filepath.Join(root, "unit"), c.attr, []byte("1"), 0))
			}
			if c.former != "" {
				proctest.Must(t, os.Mkdir(filepath.Join(root, c.former), 0o755))
			}
			info := fmt.Sprintf("30 23 0:26 / %s rw - cgroup2 cgroup rw\n", strings.ReplaceAll(root, " ", `\040`))
			tree := findV2(info, "0::/unit/roles\n", "tree")
			if want := filepath.Join(root, c.want); tree.Root() != want {
				t.Errorf("the tree is %q (%s); want %q", tree.Root(), tree.Why(), want)
			}
		})
	}
}
