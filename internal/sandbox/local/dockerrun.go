package local

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"

	"github.com/tend-run/tend/internal/sandbox/dockerfile"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/oci"
	"github.com/tend-run/tend/internal/sandbox/oci/unpack"
)

// scriptDir is where a heredoc that begins with #! is, while it runs.
const scriptDir = "/run/heredoc"

// run does a RUN, in a sandbox on top of what is built so far.
func (s *stage) run(ctx context.Context, step dockerfile.Step, c *instructions.RunCommand) error {
	argv, script := s.command(c)
	view, err := s.view()
	if err != nil {
		return err
	}
	user := oci.UserOf(view, s.conf.User)
	_, _, err = owner(view, s.conf.User)
	view.Close()
	if err != nil {
		return fmt.Errorf("USER %w", err)
	}
	m := &mounts{s: s, env: s.env()}
	defer m.release()
	network := driver.NetworkOwn
	if instructions.GetNetwork(c) == instructions.NetworkNone {
		network = driver.NetworkNone
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%q RUN %q %q %q %q %v", s.key, argv, script, user, s.conf.Dir, network)
	for _, k := range slices.Sorted(maps.Keys(m.env)) {
		fmt.Fprintf(sum, " %q=%q", k, m.env[k])
	}
	for _, mount := range instructions.GetMounts(c) {
		key, err := m.add(ctx, step, mount)
		if err != nil {
			return fmt.Errorf("--mount=type=%s: %w", mount.Type, err)
		}
		fmt.Fprintf(sum, " %q", key)
	}
	if found, err := s.hit(ctx, "docker run 1 "+hex.EncodeToString(sum.Sum(nil))); found || err != nil {
		return err
	}
	maps.Copy(m.env, s.of.Proxies())
	if script != "" {
		m.script(path.Base(argv[len(argv)-1]), script)
	}
	if err := m.ready(ctx); err != nil {
		return err
	}
	special := len(m.shares) > 0 || network != driver.NetworkOwn
	if special {
		if err := s.close(ctx); err != nil {
			return err
		}
		s.shares, s.network = m.shares, network
		defer func() { s.shares, s.network = nil, driver.NetworkOwn }()
	}
	if err := s.make(ctx); err != nil {
		return err
	}
	if err := s.exec(ctx, argv, user, m.env); err != nil {
		return err
	}
	if special {
		// Not before its processes have ended, and its mounts with them.
		if err := s.container.Stop(ctx); err != nil {
			return err
		}
		if err := m.clear(); err != nil {
			return err
		}
	}
	if err := s.commit(ctx); err != nil || !special {
		return err
	}
	return s.close(ctx)
}

// command is what a RUN runs. A script is a file that it needs.
func (s *stage) command(c *instructions.RunCommand) (argv []string, script string) {
	argv = c.CmdLine
	if len(c.Files) > 0 && len(argv) == 1 {
		line := argv[0]
		if parser.MustParseHeredoc(line) == nil { // the shell reads it
			for _, f := range c.Files {
				line += "\n" + f.Data + f.Name
			}
		} else {
			if line = c.Files[0].Data; c.Files[0].Chomp {
				line = parser.ChompHeredocContent(line)
			}
			if strings.HasPrefix(line, "#!") {
				script, line = line, path.Join(scriptDir, path.Base(c.Files[0].Name))
			}
		}
		argv = []string{line}
	}
	if c.PrependShell {
		argv = append(slices.Clone(s.shell), strings.Join(argv, " "))
	}
	return argv, script
}

// mounts are those of a RUN.
type mounts struct {
	s      *stage
	env    map[string]string // of the command
	shares []driver.Share
	caches []wantedCache
	fill   []func(context.Context) error // what a RUN that is in the cache does not need
	stubs  []string                      // targets that are there for the mounts alone, the lowest first
	free   []func()
}

func (m *mounts) release() {
	for _, f := range slices.Backward(m.free) {
		f()
	}
}

// add plans a mount. key is what of it decides about the result.
func (m *mounts) add(ctx context.Context, step dockerfile.Step, c *instructions.Mount) (key string, err error) {
	target := path.Join("/", cmpDir(m.s.conf.Dir, c.Target))
	switch c.Type {
	case instructions.MountTypeSecret:
		return m.secret(c)
	case instructions.MountTypeTmpfs:
		m.fill = append(m.fill, func(context.Context) error {
			dir, err := m.s.f.temp()
			if err == nil {
				m.share(dir, target, false)
				err = os.Chmod(dir, 0o1777)
			}
			return err
		})
		return "tmpfs " + target, nil
	case instructions.MountTypeCache:
		m.caches = append(m.caches, wantedCache{id: cmp.Or(c.CacheID, target), target: target, readOnly: c.ReadOnly,
			sharing: c.CacheSharing, uid: number(c.UID, 0), gid: number(c.GID, 0), mode: fs.FileMode(number(c.Mode, 0o755))})
		return fmt.Sprintf("cache %q %q", cmp.Or(c.CacheID, target), target), nil
	}
	from := fileSource(m.s.f.context)
	if c.From != "" {
		other, done, err := m.s.other(ctx, step, c.From)
		if err != nil {
			return "", err
		}
		m.free = append(m.free, done)
		from = other
	}
	real, _, err := follow(from, c.Source)
	if err != nil {
		return "", err
	}
	empty, err := unpack.OpenView(nil)
	if err != nil {
		return "", err
	}
	m.free = append(m.free, empty.Close)
	p := &picker{below: empty, dest: "tree", uid: -1, gid: -1, mode: -1, parents: map[string]bool{}}
	if err := p.tree(from, real, ""); err != nil {
		return "", err
	}
	sum := sha256.New()
	if err := p.sum(sum); err != nil {
		return "", err
	}
	m.fill = append(m.fill, func(ctx context.Context) error {
		dir, err := m.s.f.temp()
		if err != nil {
			return err
		}
		m.share(filepath.Join(dir, "tree"), target, c.ReadOnly)
		_, err = m.s.d.fill(ctx, dir, nil, p.write)
		return err
	})
	return "bind " + target + " " + hex.EncodeToString(sum.Sum(nil)), nil
}

func number(n *uint64, otherwise int) int {
	if n == nil {
		return otherwise
	}
	return int(min(*n, 1<<16-1)) //nolint:gosec // bounded
}

func (m *mounts) share(source, target string, readOnly bool) {
	m.shares = append(m.shares, driver.Share{Source: source, Target: target, ReadOnly: readOnly})
}

// secret plans a secret: a file in memory, or a variable. Its key has no value of it.
func (m *mounts) secret(c *instructions.Mount) (key string, err error) {
	id := cmp.Or(c.Source, c.CacheID, path.Base(c.Target))
	value, ok := m.s.secrets[id]
	if !ok {
		if c.Required {
			return "", fmt.Errorf("the secret %.80q is required, and was not given: --secret id=%.80s,src=FILE", id, id)
		}
		return "no secret " + id, nil
	}
	key = "secret " + id
	if c.Env != nil {
		name := cmp.Or(*c.Env, id)
		m.fill = append(m.fill, func(context.Context) error { m.env[name] = string(value); return nil })
		if key += " env " + name; c.Target == "" {
			return key, nil
		}
	}
	target := "/run/secrets/" + path.Base(id)
	if c.Target != "" {
		target = path.Join("/", cmpDir(m.s.conf.Dir, c.Target))
	}
	m.fill = append(m.fill, func(context.Context) error {
		dir, err := os.MkdirTemp(memoryDir, m.s.d.secretsName())
		if err != nil {
			return fmt.Errorf("a secret is kept in memory, in %s: %w", memoryDir, err)
		}
		m.free = append(m.free, func() { _ = os.RemoveAll(dir) })
		file := filepath.Join(dir, "secret")
		err = os.WriteFile(file, value, 0o400)
		err = errors.Join(err, os.Chown(file, number(c.UID, 0), number(c.GID, 0)))
		err = errors.Join(err, os.Chmod(file, fs.FileMode(number(c.Mode, 0o400)).Perm()))
		m.share(file, target, true)
		return err
	})
	return key + " " + target, nil
}

// script has a script be there.
func (m *mounts) script(name, text string) {
	m.fill = append(m.fill, func(context.Context) error {
		dir, err := m.s.f.temp()
		if err != nil {
			return err
		}
		m.share(dir, scriptDir, true)
		file := filepath.Join(dir, name)
		return errors.Join(os.Chmod(dir, 0o755), os.WriteFile(file, []byte(text), 0o755), os.Chmod(file, 0o755)) //nolint:gosec // programs run it
	})
}

// ready makes what is to be mounted.
func (m *mounts) ready(ctx context.Context) error {
	for _, fill := range m.fill {
		if err := fill(ctx); err != nil {
			return err
		}
	}
	if len(m.caches) > 0 {
		shares, release, err := m.s.d.caches.take(ctx, m.s.d, m.caches)
		if err != nil {
			return err
		}
		m.free = append(m.free, release)
		m.shares = append(m.shares, shares...)
	}
	view, err := m.s.view()
	if err != nil {
		return err
	}
	defer view.Close()
	for _, share := range m.shares {
		for at := relative(share.Target); at != ""; at = relative(path.Dir("/" + at)) {
			if _, err := view.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
				break
			}
			if !slices.Contains(m.stubs, at) {
				m.stubs = append(m.stubs, at)
			}
		}
	}
	// Those below others first.
	slices.SortFunc(m.stubs, func(a, b string) int { return cmp.Or(strings.Count(b, "/")-strings.Count(a, "/"), cmp.Compare(a, b)) })
	return nil
}

// clear removes what was made to mount on: no layer has it. The sandbox has stopped.
func (m *mounts) clear() error {
	container := m.s.container
	container.life.Lock()
	defer container.life.Unlock()
	container.mu.Lock()
	rec := container.rec
	container.mu.Unlock()
	up, done, err := container.upper(&rec)
	if err != nil {
		return err
	}
	defer done()
	root, err := os.OpenRoot(up)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	for _, at := range m.stubs {
		if info, err := root.Lstat(at); err == nil && (info.IsDir() || info.Mode().IsRegular() && info.Size() == 0) {
			_ = root.Remove(at) // a directory with something in it stays
		}
	}
	return nil
}

// workdir makes the working directory, for the user of the steps.
func (s *stage) workdir(ctx context.Context) error {
	view, err := s.view()
	if err != nil {
		return err
	}
	defer view.Close()
	p, err := s.picker(view, copying{SourcesAndDest: instructions.SourcesAndDest{DestPath: s.conf.Dir}, chown: s.conf.User})
	if err != nil {
		return err
	}
	if p.make(p.dest); len(p.parents) == 0 {
		return nil
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %d %d", s.key, p.uid, p.gid)
	if err := p.sum(sum); err != nil {
		return err
	}
	return s.placed(ctx, "docker workdir 1 "+hex.EncodeToString(sum.Sum(nil)), p)
}
