package owner

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

const (
	user    = 54321
	another = 54322
)

func TestWhatIsObeyed(t *testing.T) {
	proctest.Root(t)
	for what, c := range map[string]struct {
		spoil func(dir string) error // of dir/a/b/file, which is the user's
		uid   int
		why   string // "": it is obeyed
	}{
		"the user's":                         {nil, user, ""},
		"the user's, for root":               {nil, 0, "belongs to uid 54321"},
		"the user's, for another":            {nil, another, "belongs to uid 54321"},
		"root's":                             {func(dir string) error { return os.Chown(dir+"/a/b/file", 0, 0) }, user, ""},
		"another's":                          {func(dir string) error { return os.Chown(dir+"/a/b/file", another, user) }, user, "belongs to uid 54322"},
		"in a directory of another":          {func(dir string) error { return os.Chown(dir+"/a", another, user) }, user, "belongs to uid 54322"},
		"in a directory of the daemon's own": {func(dir string) error { return os.Chown(dir+"/a", NoSandbox, user) }, user, ""},
		"of the daemon's own":                {func(dir string) error { return os.Chown(dir+"/a/b/file", NoSandbox, user) }, user, "belongs to uid 2147352575"},
		"that all may write":                 {func(dir string) error { return os.Chmod(dir+"/a/b/file", 0o666) }, user, "everybody"},
		"in a directory that all may write":  {func(dir string) error { return os.Chmod(dir+"/a", 0o777) }, user, "everybody"},
		"in a directory such as /tmp":        {func(dir string) error { return os.Chmod(dir+"/a", 0o777|fs.ModeSticky) }, user, ""},
		"another's, in a directory such as /tmp": {func(dir string) error {
			return errors.Join(os.Chmod(dir+"/a/b", 0o777|fs.ModeSticky), os.Chown(dir+"/a/b/file", another, user))
		}, user, "belongs to uid 54322"},
		"that the user's own group may write": {func(dir string) error { return os.Chmod(dir+"/a/b/file", 0o664) }, user, ""},
		"that a group of others may write": {func(dir string) error {
			return errors.Join(os.Chown(dir+"/a/b", user, 65534), os.Chmod(dir+"/a/b", 0o775))
		}, user, "gid 65534"},
		"through a link of the user's":         {func(dir string) error { return link(dir, user) }, user, ""},
		"through a link of another's":          {func(dir string) error { return link(dir, another) }, user, "belongs to uid 54322"},
		"through a link to what all may write": {func(dir string) error { return errors.Join(link(dir, user), os.Chmod(dir+"/real", 0o777)) }, user, "everybody"},
		"through a link to itself": {func(dir string) error {
			return errors.Join(os.RemoveAll(dir+"/a/b"), os.Symlink("b", dir+"/a/b"), os.Lchown(dir+"/a/b", user, user))
		}, user, "too many links"},
		"that is not there": {func(dir string) error { return os.Remove(dir + "/a/b/file") }, user, "no such file"},
		"that is not there, in a directory of another, which could put it there": {func(dir string) error {
			return errors.Join(os.Chown(dir+"/a/b", another, user), os.Remove(dir+"/a/b/file"))
		}, user, "belongs to uid 54322"},
	} {
		dir := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
		proctest.Must(t, os.MkdirAll(dir+"/a/b", 0o755))
		proctest.Must(t, os.WriteFile(dir+"/a/b/file", nil, 0o644))
		for _, name := range []string{"/a", "/a/b", "/a/b/file"} {
			proctest.Must(t, os.Chown(dir+name, user, user))
		}
		if c.spoil != nil {
			proctest.Must(t, c.spoil(dir))
		}
		err := Check(dir+"/a/b/file", c.uid)
		if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("a file %s: %v; want %q", what, err, c.why)
		}
	}
	if err := Check("a/b", user); err == nil {
		t.Error("a relative path is obeyed")
	}
}

// link moves dir/a/b to dir/real/b, and makes a link in its place.
func link(dir string, uid int) error {
	return errors.Join(
		os.Mkdir(dir+"/real", 0o755), os.Rename(dir+"/a/b", dir+"/real/b"),
		os.Symlink("../real/b", dir+"/a/b"), os.Lchown(dir+"/a/b", uid, uid),
	)
}

// list is a list of access: what its owner and others may do besides is of no interest.
func list(entries ...[3]int) []byte {
	out := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range entries {
		out = binary.LittleEndian.AppendUint16(out, uint16(e[0]))
		out = binary.LittleEndian.AppendUint16(out, uint16(e[1]))
		out = binary.LittleEndian.AppendUint32(out, uint32(e[2]))
	}
	return out
}

func TestWhoIsOnAList(t *testing.T) {
	for what, c := range map[string]struct {
		list []byte
		who  string
	}{
		"nobody":                        {list([3]int{1, 7, -1}, [3]int{listOwnGroup, 5, -1}, [3]int{listMask, 7, -1}, [3]int{32, 5, -1}), ""},
		"the user and root":             {list([3]int{listUser, 7, user}, [3]int{listUser, 7, 0}, [3]int{listMask, 7, -1}), ""},
		"another, who may read":         {list([3]int{listUser, 5, another}, [3]int{listMask, 7, -1}), ""},
		"another":                       {list([3]int{listUser, 7, another}, [3]int{listMask, 7, -1}), "uid 54322"},
		"another, but for the mask":     {list([3]int{listUser, 7, another}, [3]int{listMask, 5, -1}), ""},
		"a group of others":             {list([3]int{listGroup, 6, another}, [3]int{listMask, 7, -1}), "gid 54322"},
		"its group, which is of others": {list([3]int{listOwnGroup, 6, -1}, [3]int{listMask, 7, -1}), "gid 65534"},
		"half an entry":                 {append(list([3]int{listMask, 7, -1}), 1), "cannot be read"},
	} {
		if who := writers(c.list, 65534, user); !strings.Contains(who, c.who) || (who == "") != (c.who == "") {
			t.Errorf("%s: %q; want %q", what, who, c.who)
		}
	}
}
