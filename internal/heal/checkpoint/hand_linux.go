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

// hand gives what a git of root's has made in the repository to the owner of the repository,
// such as a person's or that of an earlier version. Without it, root's directories of objects
// and references take no file of theirs, and the next commit fails. What cannot be given stays as
// it is.
func (r *repository) hand(ctx context.Context) {
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
	top, err := root.Stat(".")
	if err != nil {
		return
	}
	owner, ok := top.Sys().(*syscall.Stat_t)
	if !ok || owner.Uid == 0 {
		return
	}
	give := func(name string, dir bool) {
		// What is looked at is what is given: the owner may put something else there meanwhile.
		f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && isOurs(info, dir) {
			_ = f.Chown(int(owner.Uid), int(owner.Gid))
		}
	}
	objects, _ := fs.ReadDir(root.FS(), "objects")
	for _, d := range objects {
		if d.IsDir() { // files of objects are replaced, and need not be given
			give(path.Join("objects", d.Name()), true)
		}
	}
	for _, dir := range []string{"refs", "logs"} {
		_ = fs.WalkDir(root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
			if err == nil && (d.IsDir() || dir == "logs") { // those of references are replaced
				give(name, d.IsDir())
			}
			return nil
		})
	}
}

// isOurs reports whether what is in a repository may be given to its owner: a directory of
// root's, or a file as git makes its logs. One with another name elsewhere, or that not all may
// read, could be a secret of root's that was put there.
func isOurs(info fs.FileInfo, dir bool) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Uid != 0 || info.IsDir() != dir {
		return false
	}
	return dir || info.Mode().IsRegular() && st.Nlink == 1 && info.Mode().Perm()&0o004 != 0
}
