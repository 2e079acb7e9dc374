package local

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

// Directories beside the sandboxes: the caches of RUN --mount=type=cache, and what builds need
// as long as they run.
const (
	cachesName = ".caches"
	buildsName = ".builds"
)

// memoryDir is where secrets of builds are, as long as a step needs them.
const memoryDir = "/dev/shm"

// maxCaches bounds the caches of all builds, in bytes; what was used longest ago goes first.
const maxCaches = 10 << 30

// wantedCache is a cache that a RUN mounts.
type wantedCache struct {
	id, target string
	readOnly   bool
	sharing    instructions.ShareMode
	uid, gid   int
	mode       fs.FileMode
}

// caches are those of all builds.
type caches struct {
	mu    sync.Mutex
	users map[string]int // of a directory; -1: one that wants it alone. Guarded by mu
	freed chan struct{}  // closed when one is free; guarded by mu
}

// secretsName begins the name of this driver's directories of secrets.
func (d *Driver) secretsName() string {
	sum := sha256.Sum256([]byte(d.cfg.Dir))
	return "tend-secrets-" + hex.EncodeToString(sum[:6]) + "-"
}

// openBuilds removes what builds of a server before this one have left.
func (d *Driver) openBuilds() error {
	left, err := filepath.Glob(filepath.Join(memoryDir, d.secretsName()+"*"))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return errors.Join(err, d.discard(filepath.Join(d.cfg.Dir, buildsName)))
}

// take waits until a RUN may have all of its caches, and returns them.
func (c *caches) take(ctx context.Context, d *Driver, wanted []wantedCache) (shares []driver.Share, release func(), err error) {
	for {
		c.mu.Lock()
		names := c.free(wanted)
		freed := c.freed
		c.mu.Unlock()
		if names != nil {
			release = func() { c.release(d, names) }
			for i, w := range wanted {
				dir, err := d.cache(names[i], w)
				if err != nil {
					release()
					return nil, nil, fmt.Errorf("cache %.80q: %w", w.id, err)
				}
				shares = append(shares, driver.Share{Source: dir, Target: w.target, ReadOnly: w.readOnly})
			}
			return shares, release, nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// free takes the directories of caches; nil: another RUN has one of them alone. c.mu is held.
func (c *caches) free(wanted []wantedCache) (names []string) {
	if c.users == nil {
		c.users, c.freed = map[string]int{}, make(chan struct{})
	}
	for _, w := range wanted {
		sum := sha256.Sum256([]byte(w.id))
		name := hex.EncodeToString(sum[:16])
		if w.sharing == instructions.MountSharingPrivate {
			base := name
			for n := 2; c.users[name] != 0 || slices.Contains(names, name); n++ {
				name = fmt.Sprintf("%s-%d", base, n)
			}
		}
		alone := w.sharing == instructions.MountSharingLocked
		if !slices.Contains(names, name) && (c.users[name] < 0 || alone && c.users[name] > 0) {
			return nil
		}
		names = append(names, name)
	}
	for i, name := range names {
		switch {
		case wanted[i].sharing != "" && wanted[i].sharing != instructions.MountSharingShared:
			c.users[name] = -1
		case c.users[name] >= 0:
			c.users[name]++
		}
	}
	return names
}

func (c *caches) release(d *Driver, names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(names)
	for _, name := range names {
		if c.users[name]--; c.users[name] <= 0 {
			delete(c.users, name)
		}
		now := time.Now()
		_ = os.Chtimes(filepath.Join(d.cfg.Dir, cachesName, name), now, now)
	}
	close(c.freed)
	c.freed = make(chan struct{})
}

// cache has the directory of a cache be there.
func (d *Driver) cache(name string, w wantedCache) (string, error) {
	dir := filepath.Join(d.cfg.Dir, cachesName, name)
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return "", err
	}
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return dir, nil
	}
	if err != nil {
		return "", err
	}
	return dir, errors.Join(os.Chown(dir, w.uid, w.gid), os.Chmod(dir, w.mode.Perm()))
}

// shrinkCaches removes caches that nobody uses until all have at most so many bytes.
func (d *Driver) shrinkCaches(most int64) error {
	dir := filepath.Join(d.cfg.Dir, cachesName)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	type one struct {
		name  string
		used  time.Time
		bytes int64
	}
	var all []one
	total := int64(0)
	for _, e := range entries {
		info, ierr := e.Info()
		if ierr != nil {
			continue
		}
		bytes := bytesIn(filepath.Join(dir, e.Name()))
		total += bytes
		all = append(all, one{e.Name(), info.ModTime(), bytes})
	}
	sort.Slice(all, func(i, j int) bool {
		return cmp.Or(all[i].used.Compare(all[j].used), cmp.Compare(all[i].name, all[j].name)) < 0
	})
	for _, o := range all {
		if total <= most {
			break
		}
		d.caches.mu.Lock()
		if d.caches.users[o.name] == 0 {
			err = errors.Join(err, d.discard(filepath.Join(dir, o.name)))
			total -= o.bytes
		}
		d.caches.mu.Unlock()
	}
	return err
}

// bytesIn is about how much is in a directory.
func bytesIn(dir string) (total int64) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0
	}
	defer root.Close()
	_ = fs.WalkDir(root.FS(), ".", func(_ string, e fs.DirEntry, err error) error { // what is just removed is left out
		if err != nil {
			return nil //nolint:nilerr // it counts no more
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			total += info.Size()
		}
		return nil
	})
	return total
}
