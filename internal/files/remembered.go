package files

import (
	"context"
	"io/fs"
	"os"
	"sync"
	"time"
)

// Machine is this machine as a start of a process sees it: where the process's
// user, its directory and its program are looked up. The zero value is ready for
// use; all methods may be called concurrently.
type Machine struct {
	mu    sync.Mutex
	stamp [2]time.Time    // guarded by mu
	known map[string]User // guarded by mu
}

// maxKnown bounds the accounts that are remembered: numbers need no entry in
// /etc/passwd, so there are billions of them.
const maxKnown = 1024

// settles is above the tick of the clock of each file system (FAT: 2 s).
const settles = 3 * time.Second

// User is [Account]. It remembers what it has found while /etc/passwd and
// /etc/group stay as they are.
func (m *Machine) User(name string) (User, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var stamp [2]time.Time
	young := false
	for i, path := range []string{"/etc/passwd", "/etc/group"} {
		if fi, err := os.Stat(path); err == nil {
			stamp[i] = fi.ModTime()
			// It may be written again within one tick of the file system's clock.
			young = young || time.Since(fi.ModTime()).Abs() < settles
		}
	}
	if m.known == nil || stamp != m.stamp || young {
		m.known, m.stamp = map[string]User{}, stamp
	}
	if u, ok := m.known[name]; ok {
		return u, nil
	}
	u, err := Account(name)
	if err != nil {
		return User{}, err
	}
	if len(m.known) >= maxKnown {
		clear(m.known)
	}
	m.known[name] = u
	return u, nil
}

// Look calls look with the rights of a user. An error means that the daemon
// cannot act for the user.
func (m *Machine) Look(ctx context.Context, u User, look func(stat func(path string) (fs.FileInfo, error))) error {
	return FS{User: u}.Do(ctx, func(*Actor) error { look(os.Stat); return nil })
}
