package files

import (
	"context"
	"errors"
	"os"
	"runtime"
)

// Do runs do with the rights of the user and with no others: the kernel decides what is
// allowed, as it does for the user's own processes. For the daemon's own user nothing
// needs to change. For another user, do runs on a thread that has the user's ids and
// groups and no capability; a thread whose rights cannot be restored is never used
// again.
//
// [Root] says what is different with one.
//
// A may be used until do returns. Long operations end with an error when ctx
// ends.
func (f FS) Do(ctx context.Context, do func(a *Actor) error) error {
	outside, err := f.Root.outside(f.User)
	if err != nil {
		return err
	}
	if f.Root != nil {
		defer f.Root.use()()
	}
	a := &Actor{ctx: ctx, root: f.Root, user: f.User, outside: outside, asRoot: f.AsRoot && f.Root != nil, within: f.Within}
	if isOwn(outside) && (f.Root == nil || os.Geteuid() != 0) {
		return do(a)
	}
	a.powers = f.Root != nil && (f.User.UID == 0 || f.AsRoot || f.Root.own) && os.Geteuid() == 0
	a.daemon = currentRights()
	var panicked any
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err = a.enter(); err != nil {
			return
		}
		func() {
			defer func() { panicked = recover() }()
			err = do(a)
		}()
		if a.lost {
			return
		}
		err = errors.Join(err, a.leave())
	}()
	<-done
	if panicked != nil {
		panic(panicked)
	}
	return err
}

// Actor does single operations for a user, within [FS.Do]. Its paths are
// absolute and clean, as [FS.Resolve] makes them. It follows the symbolic
// links that the user may follow, but none of the links below /proc that stand
// for open files: they lead to where no name does, and those of /proc/self to
// what the daemon itself has open.
type Actor struct {
	ctx     context.Context // of the one call of Do
	root    *Root           // nil: this machine
	user    User            // of the FS
	outside User            // user with the ids that it has outside of root
	asRoot  bool            // that of the FS, which has a Root
	within  string          // of the FS
	// powers: it is root inside, or does what root inside may do, and so it has the
	// capabilities that concern files, unless lowered is set.
	powers, lowered bool
	// daemon are the rights to go back to; nil: there is nothing to change.
	daemon *rights
	// lost: the thread did not get its rights back.
	lost bool
}

// Err says whether the context of Do has ended, and why: for loops between
// operations.
func (a *Actor) Err() error { return a.ctx.Err() }

// Pause runs wait with the daemon's own rights, and without a thread of its
// own: for all that may take long and concerns no file.
func (a *Actor) Pause(wait func()) error {
	if a.daemon == nil {
		wait()
		return nil
	}
	if err := a.leave(); err != nil {
		return err
	}
	wait()
	return a.enter()
}

// enter takes a thread and gives it the user's rights.
func (a *Actor) enter() error {
	runtime.LockOSThread()
	err := a.daemon.become(a.outside, a.powers)
	if err == nil && a.lowered {
		err = a.daemon.setCapabilities(0)
	}
	if err == nil {
		return nil
	}
	return errors.Join(err, a.leave())
}

// lower takes the capabilities of root inside away until fresh gives them back: what
// is touched is not the sandbox's own.
func (a *Actor) lower() error {
	if !a.powers || a.lowered {
		return nil
	}
	a.lowered = true
	return a.daemon.setCapabilities(0)
}

// fresh begins with another file. No handle of what was touched before is used.
func (a *Actor) fresh() error {
	if !a.lowered {
		return nil
	}
	a.lowered = false
	return a.daemon.setCapabilities(fileCapabilities)
}

// settle is fresh for a file that is open: the capabilities are there if it is the
// sandbox's own.
func (a *Actor) settle(file *os.File) error {
	if !a.powers {
		return nil
	}
	if err := a.fresh(); err != nil {
		return err
	}
	if a.root.isForeign(int(file.Fd())) {
		return a.lower()
	}
	return nil
}

// leave gives the thread its rights back. If that fails the goroutine stays on
// it, and the thread ends with the goroutine.
func (a *Actor) leave() error {
	if err := a.daemon.restore(); err != nil {
		a.lost = true
		return err
	}
	runtime.UnlockOSThread()
	return nil
}

// isOwn reports whether the daemon runs as the user.
func isOwn(u User) bool { return os.Geteuid() < 0 || os.Geteuid() == u.UID }
