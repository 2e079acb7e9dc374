package files

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
)

// Root is the root directory of a sandbox for file operations: no path leads out of it,
// whatever its links, its mounts and its programs do. A nil Root is this machine.
//
// Ids inside are mapped: id 0 inside is the Root's base outside, id 1 the next, and so
// on for [RootIDs] ids. Users given to an [FS] with a Root have inside ids, and so have
// entries and results of [FS.Stat]. An id outside of this range shows as 65534.
//
// Root inside is not root outside. It has the base's ids and, if the daemon runs as
// root, only the capabilities about owners and modes of files. They apply only to files
// that belong to an inside id: for files of this machine that are visible inside, and
// for files that the kernel generates, root inside has only its ids. With a Root nobody
// can write to file systems that the kernel generates, such as /proc; setuid bits
// cannot be set and do not survive a write.
//
// All methods may be called concurrently.
//
// A Root of [OpenOwnRoot] has one id: each user inside is the daemon's own user, whose
// files belong to root inside.
type Root struct {
	dir  *os.File // a path only
	base uint32
	own  bool         // the one id is the daemon's; base has no meaning
	busy atomic.Int64 // operations under way

	instances, watches share

	closing sync.Once
	gone    chan struct{} // closed by End
	why     error         // why it ended; set before gone is closed

	mu    sync.Mutex
	stamp [2]stamp        // of etc/passwd and etc/group; guarded by mu
	known map[string]User // guarded by mu
}

// RootIDs is how many ids there are inside.
const RootIDs = 1 << 16

// nobody is what an id shows as that no one inside has.
const nobody = 65534

// Close closes the directory. It waits for running operations; later operations fail.
func (r *Root) Close() error { return r.End(fs.ErrClosed) }

// End is Close with a reason. Later operations, and running ones that open something
// more, fail with that error.
func (r *Root) End(why error) error {
	r.closing.Do(func() {
		r.why = why
		close(r.gone)
	})
	return r.dir.Close()
}

// ended returns err, or why the root has ended, if it has: what was opened of one that
// is closed says nothing of the path.
func (r *Root) ended(err error) error {
	select {
	case <-r.gone:
		return r.why
	default:
		return err
	}
}

// Gone is closed by Close and End: watches of this root follow no new directories from then on.
func (r *Root) Gone() <-chan struct{} { return r.gone }

// Busy reports whether operations are under way. After Close none begins.
func (r *Root) Busy() bool { return r.busy.Load() > 0 }

// use notes an operation until the function that it returns is called.
func (r *Root) use() func() {
	if r == nil {
		return func() {}
	}
	r.busy.Add(1)
	return func() { r.busy.Add(-1) }
}

// Stat describes what a path leads to, for root inside.
func (r *Root) Stat(path string) (info fs.FileInfo, err error) {
	f := FS{User: User{Name: "root", Home: "/"}, Root: r}
	abs, err := f.Resolve(path)
	if err != nil {
		return nil, err
	}
	err = f.do(func(a *Actor) error {
		info, err = a.Stat(abs)
		return err
	})
	return info, err
}

// Look calls look with the rights of a user inside. An error means that the daemon
// cannot act for the user.
func (r *Root) Look(ctx context.Context, u User, look func(stat func(path string) (fs.FileInfo, error))) error {
	return FS{User: u, Root: r}.Do(ctx, func(a *Actor) error {
		look(func(path string) (fs.FileInfo, error) { return a.stat(path, true) })
		return nil
	})
}

// Check returns [ErrPermission] where this daemon cannot act for the user inside.
func (r *Root) Check(u User) error {
	out, err := r.outside(u)
	if err != nil {
		return err
	}
	return out.Check()
}

// outside returns the user with the ids of outside. A nil Root has no others.
func (r *Root) outside(u User) (User, error) {
	if r == nil {
		return u, nil
	}
	out := u
	out.UID, out.GID, out.Groups = u.UID+int(r.base), u.GID+int(r.base), nil
	bad := !isRootID(u.UID) || !isRootID(u.GID)
	for _, g := range u.Groups {
		bad = bad || !isRootID(g)
		out.Groups = append(out.Groups, g+int(r.base))
	}
	if r.own && !bad {
		out.UID, out.GID, out.Groups = os.Geteuid(), os.Getegid(), nil
	}
	if bad {
		return User{}, fmt.Errorf("user '%.64s' has an id that there is not in a sandbox; 0 to %d are: %w", u.Name, RootIDs-1, ErrPermission)
	}
	return out, nil
}

func isRootID(id int) bool { return id >= 0 && id < RootIDs }

// outer is the id outside of one inside.
func (r *Root) outer(id uint32) uint32 {
	if r.own {
		return uint32(os.Geteuid())
	}
	return r.base + id
}

// inside is the id inside of one outside. A nil Root has no others.
func (r *Root) inside(id uint32) uint32 {
	if r == nil {
		return id
	}
	if r.own {
		if int(id) == os.Geteuid() || int(id) == os.Getegid() {
			return 0
		}
		return nobody
	}
	if id-r.base >= RootIDs { // also if it is less than base
		return nobody
	}
	return id - r.base
}
