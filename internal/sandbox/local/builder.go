package local

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/sandbox/dockerfile"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/layer"
	"github.com/tend-run/tend/internal/sandbox/sandboxrecord"
	"github.com/tend-run/tend/process"
)

// builder does one build.
type builder struct {
	d    *Driver
	b    *build
	by   string
	step string // "base", an index from 1, or "finalize"

	top   layer.ID // of what is built so far, held
	key   string   // of all that led to it
	force bool
	// User, Dir and Env of the next step, and whether a step has set the first.
	conf      driver.RunConfig
	given     bool
	parent    driver.RunConfig
	home      string   // where steps begin, if that is the home of their user
	container *sandbox // on top; nil: not made

	// Of a stage of a Dockerfile: the number of its first step, and the secrets of all. The next
	// sandbox has these files of the machine, and this network.
	first   int
	secrets map[string][]byte
	shares  []driver.Share
	network driver.NetworkMode
}

func (r *builder) run(ctx context.Context) (*made, error) {
	if r.b.spec.Dockerfile != nil {
		return r.dockerfile(ctx)
	}
	if err := r.begin(ctx); err != nil {
		return nil, err
	}
	for i, step := range r.b.spec.Steps {
		r.step = strconv.Itoa(i + 1)
		r.b.say("info", r.step, "[%d/%d] %s %.200s", i+1, len(r.b.spec.Steps), step.Kind, strings.Join(step.Args, " "))
		if err := r.do(ctx, step); err != nil {
			return nil, err
		}
	}
	r.step = "finalize"
	m := &made{Layer: r.top, Run: r.conf, Size: r.b.spec.Size, Start: r.b.spec.Start, Ready: r.b.spec.Ready}
	if !r.given {
		m.Run.User = r.parent.User
	}
	// The home of the parent's user is no home of another one: steps ran there, and so does what follows.
	sameHome := m.Run.Dir == r.home && m.Run.User == r.parent.User
	if (m.Run.Dir == "/" || sameHome) && r.parent.Dir == "" {
		m.Run.Dir = "" // the home
	}
	if m.Start == "" && m.Ready == "" {
		return m, nil
	}
	// To see that it comes up.
	if err := r.make(ctx); err != nil {
		return nil, err
	}
	r.container.mu.Lock()
	r.container.rec.User, r.container.rec.Dir, r.container.rec.Env = m.Run.User, m.Run.Dir, m.Run.Env
	r.container.mu.Unlock()
	return m, r.container.startUp(ctx, m.Start, m.Ready, true)
}

// begin finds what the build begins with.
func (r *builder) begin(ctx context.Context) error {
	s, l := &r.b.spec, r.d.layers
	r.force = s.Force
	var err error
	switch {
	case s.FromImage != "":
		if err := r.beginImage(ctx); err != nil {
			return err
		}
	case s.FromDir != "":
		r.b.say("info", r.step, "copying %.200s", s.FromDir)
		limits := layer.Limits{Bytes: roomToCopy(r.d.cfg.State)}
		if r.top, err = l.FromDir(ctx, s.FromDir, layer.Meta{Whole: true, By: r.by, Limits: limits}); err != nil {
			return err
		}
		r.key, r.parent.User = string(r.top), "root"
	default:
		from := s.From
		if from == "" {
			from = baseName
		}
		_, m, release, err := r.d.chosen(from, r.by+" begin")
		if err != nil {
			return err
		}
		defer release()
		if m.Layer != "" {
			if err := l.Hold(m.Layer, r.by); err != nil {
				return err
			}
		}
		r.top, r.parent, r.key = m.Layer, m.Run, string(m.Layer)
		if s.Start == "" && s.Ready == "" {
			s.Start, s.Ready = m.Start, m.Ready
		}
	}
	r.conf = driver.RunConfig{User: "root", Dir: "/", Env: maps.Clone(r.parent.Env)}
	if r.parent.Dir != "" {
		r.conf.Dir = r.parent.Dir
	}
	if r.conf.Env == nil {
		r.conf.Env = map[string]string{}
	}
	if s.AsParent && r.parent.User != "" && r.parent.User != "root" {
		r.conf.User = r.parent.User
		if r.parent.Dir == "" {
			u, err := r.account(ctx, r.parent.User)
			if err != nil {
				return err
			}
			r.conf.Dir, r.home = u.Home, u.Home
		}
	}
	return nil
}

// expand replaces the variables of a step of E2B's builds, where a shell does it.
func (r *builder) expand(s *driver.Step) error {
	env := map[string]string{"HOME": "/root", "USER": "root", "PATH": usualPath}
	maps.Copy(env, r.conf.Env)
	s.Args = slices.Clone(s.Args)
	for i := range s.Args {
		if s.Kind == "WORKDIR" || s.Kind == "ENV" && i%2 == 1 || s.Kind == "COPY" && (i == 1 || i == 2) {
			value, err := dockerfile.ExpandQuoted(s.Args[i], env)
			if err != nil {
				return fmt.Errorf("%s: %.200q: %w", s.Kind, s.Args[i], err)
			}
			s.Args[i] = value
		}
	}
	return nil
}

// do does one step, or finds its layer.
func (r *builder) do(ctx context.Context, s driver.Step) error {
	if r.b.spec.AsParent {
		if err := r.expand(&s); err != nil {
			return err
		}
	}
	switch s.Kind {
	case "ENV":
		for kv := range slices.Chunk(s.Args, 2) {
			r.conf.Env[kv[0]] = kv[1]
		}
		return driver.CheckEnv("env", r.conf.Env)
	case "USER":
		r.conf.User, r.given = s.Args[0], true
		_, err := r.account(ctx, s.Args[0])
		return err
	case "WORKDIR":
		r.conf.Dir = path.Join("/", cmpDir(r.conf.Dir, s.Args[0]))
	}
	r.force = r.force || s.Force
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q %q %q %q %q", r.key, s.Kind, s.Args, s.Hash, r.conf.User, r.conf.Dir)
	for _, k := range slices.Sorted(maps.Keys(r.conf.Env)) {
		fmt.Fprintf(sum, " %q=%q", k, r.conf.Env[k])
	}
	if found, err := r.hit(ctx, "step 1 "+hex.EncodeToString(sum.Sum(nil))); found || err != nil {
		return err
	}
	if err := r.make(ctx); err != nil {
		return err
	}
	var err error
	switch s.Kind {
	case "RUN":
		user := r.conf.User
		if len(s.Args) > 1 && s.Args[1] != "" {
			user = s.Args[1]
		}
		if _, err := r.account(ctx, user); errors.Is(err, files.ErrUnknownUser) {
			return fmt.Errorf("failed to run command '%.200s': command failed: unauthenticated: invalid username: '%.64s'", s.Args[0], user)
		}
		err = r.exec(ctx, r.container.shell(s.Args[0]), user, r.conf.Env)
	case "COPY":
		err = r.copy(ctx, s)
	case "WORKDIR":
		err = r.workdir()
	}
	if err != nil {
		return err
	}
	return r.commit(ctx)
}

// hit takes the layer of a key from the cache, if it is there and may be.
func (r *builder) hit(ctx context.Context, key string) (bool, error) {
	r.key = key
	if r.force {
		return false, nil
	}
	id, ok := r.d.layers.Find(key, r.by)
	if !ok {
		return false, nil
	}
	r.b.say("info", r.step, "taken from the cache")
	r.swap(id)
	return true, r.close(ctx)
}

// commit makes a layer of what a step has written. What it leaves running ends with it.
func (r *builder) commit(ctx context.Context) error {
	if err := sandboxrecord.End(ctx, r.d.cfg.Manager, r.container.id, true); err != nil {
		return err
	}
	r.container.life.Lock()
	r.container.mu.Lock()
	before, disk := r.container.rec.Layer, r.container.rec.Disk != 0
	r.container.mu.Unlock()
	id, err := r.container.capture(ctx, r.by)
	r.container.life.Unlock()
	if err != nil {
		return err
	}
	if id != before {
		defer r.swap(id)
		err := r.d.layers.SetKey(id, r.key)
		if disk {
			err = errors.Join(err, r.close(ctx)) // what it wrote is in the layer, and still on its disk
		}
		return err
	}
	// It changed nothing. That is worth knowing, too.
	empty, err := r.d.layers.Make(layer.Meta{Parent: id, Key: r.key, By: r.by}, func(string) error { return nil })
	if id != r.top {
		r.d.layers.Release(id, r.by)
	}
	if errors.Is(err, layer.ErrTooDeep) {
		return nil
	}
	if err == nil {
		r.swap(empty)
	}
	return err
}

func cmpDir(dir, to string) string {
	if strings.HasPrefix(to, "/") {
		return to
	}
	return dir + "/" + to
}

// swap makes a layer that is held the topmost.
func (r *builder) swap(id layer.ID) {
	if id != r.top {
		r.d.layers.Release(r.top, r.by)
		r.top = id
	}
}

// make makes the sandbox in which steps are done, if there is none.
func (r *builder) make(ctx context.Context) error {
	if r.container != nil {
		return nil
	}
	disk, err := r.d.diskFor(r.b.spec.Size.Disk)
	if err != nil {
		return err
	}
	of := "" // steps of E2B's builds use sudo
	if r.b.spec.AsParent {
		of = r.b.TemplateID
	}
	rec := record{
		Record: sandboxrecord.NewRecord(r.d.newID(), &driver.Spec{Run: driver.RunConfig{User: "root", Dir: "/"}, Size: r.b.spec.Size,
			E2BTemplate: of}),
		Size:    r.b.spec.Size,
		Disk:    disk,
		Network: cmp.Or(r.network, driver.NetworkOwn), Shares: r.shares, Way: r.d.way(),
		Layer: r.top, Origin: r.top, Build: r.b.ID,
	}
	rec.Name = "build-" + string(rec.ID[:8])
	r.container, err = r.d.create(ctx, rec)
	return err
}

// account finds a user of what is built so far.
func (r *builder) account(ctx context.Context, name string) (files.User, error) {
	if err := r.make(ctx); err != nil {
		return files.User{}, err
	}
	return r.container.account(name)
}

// close ends the sandbox.
func (r *builder) close(ctx context.Context) error {
	if r.container == nil {
		return nil
	}
	container := r.container
	r.container = nil
	return container.Destroy(ctx)
}

// exec runs a command, and shows what it writes.
func (r *builder) exec(ctx context.Context, argv []string, user string, env map[string]string) error {
	p, err := r.container.Processes().Start(ctx, process.Spec{Argv: argv, User: user, Dir: r.conf.Dir, Env: env, Timeout: stepTimeout})
	if err != nil {
		return err
	}
	partial := map[process.Stream]string{}
	for ev, err := range process.Events(ctx, p, process.ReadOptions{}) {
		if err != nil {
			return err
		}
		text := partial[ev.Stream] + string(ev.Data)
		for {
			row, rest, whole := strings.Cut(text, "\n")
			if !whole && len(text) < maxLogLine {
				break
			}
			if !whole {
				row, rest = text[:maxLogLine], text[maxLogLine:]
			}
			r.b.say(levelOf(ev.Stream), r.step, "%s", row)
			text = rest
		}
		partial[ev.Stream] = text
	}
	for stream, text := range partial {
		if text != "" {
			r.b.say(levelOf(stream), r.step, "%s", text)
		}
	}
	res, err := p.Wait(ctx, process.Until{})
	if err != nil {
		return err
	}
	return failure(res.Exit)
}

func levelOf(s process.Stream) string {
	if s == process.Stderr {
		return "warn"
	}
	return "info"
}
