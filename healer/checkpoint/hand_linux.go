package checkpoint

import (
	"context"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// hand gives what git has made in the repository to the owner of the repository, where root
// works on somebody else's. Without it, root's directories of objects and references take
// no file of theirs, and their next commit fails. What cannot be given stays as it is: the
// commit is made, and the next one tries again.
func (r *repository) hand(ctx context.Context) {
	if !mayGive() {
		return
	}
	out, err := r.run(ctx, nil, nil, "rev-parse", "--git-path", "objects")
	if err != nil {
		return
	}
	objects := strings.TrimSuffix(string(out), "\n")
	if !filepath.IsAbs(objects) {
		objects = filepath.Join(r.top, objects)
	}
	for _, dir := range []string{filepath.Dir(objects), r.dir} { // of a linked work tree there are two
		// Whoever owns the repository may put links into it meanwhile; none leads out.
		if root, err := os.OpenRoot(dir); err == nil {
			handBelow(root)
			root.Close()
		}
	}
}

func handBelow(root *os.Root) {
	owner, ok := ownerOf(root, ".")
	if !ok || owner.Uid == 0 {
		return
	}
	give := func(name string, d fs.DirEntry) {
		// A file may be a link to one that is elsewhere. Those of objects and references are
		// replaced, and need not be given.
		st, ok := ownerOf(root, name)
		if !ok || st.Uid != 0 || !d.IsDir() && (st.Nlink != 1 || !d.Type().IsRegular() || !strings.HasPrefix(name, "logs/")) {
			return
		}
		_ = root.Lchown(name, int(owner.Uid), int(owner.Gid))
	}
	objects, _ := fs.ReadDir(root.FS(), "objects")
	for _, d := range objects {
		give(path.Join("objects", d.Name()), d)
	}
	for _, dir := range []string{"refs", "logs"} {
		_ = fs.WalkDir(root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
			if err == nil {
				give(name, d)
			}
			return nil
		})
	}
}

func ownerOf(root *os.Root, name string) (*syscall.Stat_t, bool) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return st, ok
}
