package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/driver"
	"github.com/tend-run/tend/driver/local/layer"
	"github.com/tend-run/tend/driver/scope"
	"github.com/tend-run/tend/process"
)

const (
	maxBuilds   = 1000    // that are remembered
	maxBuildLog = 10_000  // entries of one
	maxLogLine  = 4 << 10 // bytes of one entry
	maxLogBytes = 4 << 20 // of all entries of one build
	buildersRun = 2       // builds at the same time
	stepTimeout = 30 * time.Minute
)

// build is one that this server was asked for. A build does not outlive the server.
type build struct {
	driver.Build // what changes is guarded by mu
	spec         driver.BuildSpec

	mu   sync.Mutex
	logs []driver.LogEntry // guarded by mu
	size int               // bytes of logs; guarded by mu
	full bool              // guarded by mu
}

func (b *build) say(level, step, format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.full {
		return
	}
	text := fmt.Sprintf(format, args...)
	if b.full = len(b.logs) >= maxBuildLog || b.size >= maxLogBytes; b.full {
		level, text = "warn", "the log is full; more is left out"
	}
	b.size += len(text)
	b.logs = append(b.logs, driver.LogEntry{Time: time.Now().UTC(), Level: level, Message: strings.ToValidUTF8(text[:min(len(text), maxLogLine)], "\uFFFD"), Fields: map[string]string{"step": step}})
}

var templateForm = regexp.MustCompile(`^([a-z0-9][a-z0-9_-]{0,127}/)?[a-z0-9][a-z0-9_-]{0,127}$`)

// arguments are how many each kind of step has.
var arguments = map[string][2]int{"COPY": {2, 4}, "RUN": {1, 2}, "WORKDIR": {1, 1}, "USER": {1, 1}, "ENV": {2, driver.MaxEnv}}

func checkBuild(s *driver.BuildSpec) error {
	if !templateForm.MatchString(s.Name) {
		return &driver.InvalidError{Field: "name", Reason: fmt.Sprintf("is %.80q; 1 to 128 of [a-z0-9_-] are allowed, with one namespace and '/' before them", s.Name)}
	}
	if err := checkTags(s.Tags); err != nil {
		return err
	}
	if s.From != "" && s.FromDir != "" {
		return &driver.InvalidError{Field: "from", Reason: "is a template and a directory; one of them is enough"}
	}
	if len(s.Steps) > driver.MaxSteps {
		return &driver.InvalidError{Field: "steps", Reason: fmt.Sprintf("has %d entries; the limit is %d", len(s.Steps), driver.MaxSteps)}
	}
	total := len(s.Start) + len(s.Ready)
	for i, step := range s.Steps {
		field := fmt.Sprintf("steps[%d]", i)
		bounds, known := arguments[step.Kind]
		if !known {
			return &driver.InvalidError{Field: field, Reason: fmt.Sprintf("is %.40q; COPY, RUN, WORKDIR, USER and ENV are known", step.Kind)}
		}
		if n := len(step.Args); n < bounds[0] || n > bounds[1] || step.Kind == "ENV" && n%2 != 0 {
			return &driver.InvalidError{Field: field, Reason: fmt.Sprintf("%s has %d arguments", step.Kind, n)}
		}
		for _, a := range step.Args {
			if total += len(a); strings.IndexByte(a, 0) >= 0 {
				return &driver.InvalidError{Field: field, Reason: "has a NUL byte"}
			}
		}
		if step.Kind == "COPY" && (step.Hash == "" || s.Blob == nil) {
			return &driver.InvalidError{Field: field, Reason: "has no files; upload them first"}
		}
	}
	if total > driver.MaxStepBytes || strings.ContainsRune(s.Start+s.Ready, 0) {
		return &driver.InvalidError{Field: "steps", Reason: fmt.Sprintf("has %d bytes of arguments, or a NUL byte; at most %d are allowed", total, driver.MaxStepBytes)}
	}
	return nil
}

// Build implements driver.Templater.
func (d *Driver) Build(ctx context.Context, spec driver.BuildSpec) (driver.Build, error) {
	if err := checkBuild(&spec); err != nil {
		return driver.Build{}, err
	}
	if err := d.Unable(ctx); err != nil {
		return driver.Build{}, err
	}
	if !d.Capabilities().Snapshots {
		return driver.Build{}, &driver.UnsupportedError{Field: "build", Reason: "a daemon that is not root makes no templates"}
	}
	if spec.From != "" {
		if _, err := d.Template(ctx, spec.From); err != nil {
			return driver.Build{}, err
		}
	}
	if spec.ID == "" {
		spec.ID = driver.BuildID(driver.NewID())
	}
	if len(spec.Tags) == 0 {
		spec.Tags = []string{driver.DefaultTag}
	}
	n := &d.templates
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.builds[spec.ID] != nil {
		return driver.Build{}, fmt.Errorf("build %s: %w", spec.ID, driver.ErrExists)
	}
	if old := n.byName[spec.Name]; old != nil {
		spec.TemplateID = old.ID
	} else if !driver.LikeID(spec.TemplateID) {
		spec.TemplateID = string(driver.NewID())
	}
	for len(n.order) >= maxBuilds {
		if old := n.builds[n.order[0]]; old.running() {
			return driver.Build{}, fmt.Errorf("there are %d builds that are not over: %w", maxBuilds, driver.ErrLimit)
		}
		delete(n.builds, n.order[0])
		n.order = n.order[1:]
	}
	b := &build{spec: spec, Build: driver.Build{
		ID: spec.ID, TemplateID: spec.TemplateID, Name: spec.Name, Tags: slices.Clone(spec.Tags), Created: time.Now().UTC(),
	}}
	n.builds[spec.ID], n.order, n.queue = b, append(n.order, spec.ID), append(n.queue, b)
	select {
	case n.more <- struct{}{}:
	default:
	}
	return b.Build, nil
}

// ofBuild: the sandbox is one of a build, which nobody sees.
func (s *sandbox) ofBuild() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.Build != ""
}

func (b *build) running() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Status < driver.BuildReady
}

// GetBuild implements driver.Templater.
func (d *Driver) GetBuild(_ context.Context, id driver.BuildID, from int) (driver.Build, []driver.LogEntry, error) {
	d.templates.mu.Lock()
	b := d.templates.builds[id]
	d.templates.mu.Unlock()
	if b == nil {
		return driver.Build{}, nil, fmt.Errorf("build %.80q: %w", string(id), driver.ErrNotFound)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Build, slices.Clone(b.logs[min(max(from, 0), len(b.logs)):]), nil
}

// runBuilds does the builds, until ctx ends.
func (d *Driver) runBuilds(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, buildersRun)
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.templates.more:
		}
		for {
			d.templates.mu.Lock()
			var b *build
			if len(d.templates.queue) > 0 {
				b, d.templates.queue = d.templates.queue[0], d.templates.queue[1:]
			}
			d.templates.mu.Unlock()
			if b == nil {
				break
			}
			select {
			case <-ctx.Done():
				return
			case slots <- struct{}{}:
			}
			wg.Go(func() {
				defer func() { <-slots }()
				d.runBuild(ctx, b)
			})
		}
	}
}

func (d *Driver) runBuild(ctx context.Context, b *build) {
	b.mu.Lock()
	b.Status = driver.BuildRunning
	b.mu.Unlock()
	r := &builder{d: d, b: b, by: templateHolder(b.ID) + " runs", step: "base"}
	m, err := r.run(ctx)
	err = errors.Join(err, r.close(context.WithoutCancel(ctx)))
	if err == nil {
		err = d.publish(b, m)
	}
	d.layers.Release(r.top, r.by)
	if err != nil {
		b.say("error", r.step, "%v", err)
	} else {
		b.say("info", "finalize", "build finished")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Status, b.Finished = driver.BuildReady, time.Now().UTC()
	if err != nil {
		b.Status, b.Reason, b.FailedStep = driver.BuildFailed, err.Error(), r.step
		d.log.Info("build failed", slog.String("id", string(b.ID)), slog.String("step", r.step), slog.Any("err", err))
	}
}

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
	conf   driver.RunConfig
	given  bool
	parent driver.RunConfig
	box    *sandbox // on top; nil: not made
}

func (r *builder) run(ctx context.Context) (*made, error) {
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
	if m.Run.Dir == "/" && r.parent.Dir == "" {
		m.Run.Dir = "" // the home
	}
	if m.Start == "" && m.Ready == "" {
		return m, nil
	}
	// To see that it comes up.
	if err := r.make(ctx); err != nil {
		return nil, err
	}
	r.box.mu.Lock()
	r.box.rec.User, r.box.rec.Dir, r.box.rec.Env = m.Run.User, m.Run.Dir, m.Run.Env
	r.box.mu.Unlock()
	return m, r.box.startUp(ctx, m.Start, m.Ready)
}

// begin finds what the build begins with.
func (r *builder) begin(ctx context.Context) error {
	s, l := &r.b.spec, r.d.layers
	r.force = s.Force
	var err error
	if s.FromDir != "" {
		r.b.say("info", r.step, "copying %.200s", s.FromDir)
		if r.top, err = l.FromDir(ctx, s.FromDir, layer.Meta{Whole: true, By: r.by}); err != nil {
			return err
		}
		r.key, r.parent.User = string(r.top), "root"
	} else {
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
	return nil
}

// do does one step, or finds its layer.
func (r *builder) do(ctx context.Context, s driver.Step) error {
	switch s.Kind {
	case "ENV":
		for kv := range slices.Chunk(s.Args, 2) {
			r.conf.Env[kv[0]] = kv[1]
		}
		return driver.CheckEnv("env", r.conf.Env)
	case "USER":
		r.conf.User, r.given = s.Args[0], true
		return nil
	case "WORKDIR":
		r.conf.Dir = path.Join("/", cmpDir(r.conf.Dir, s.Args[0]))
	}
	r.force = r.force || s.Force
	sum := sha256.New()
	fmt.Fprintf(sum, "%q %q %q %q %q %q", r.key, s.Kind, s.Args, s.Hash, r.conf.User, r.conf.Dir)
	for _, k := range slices.Sorted(maps.Keys(r.conf.Env)) {
		fmt.Fprintf(sum, " %q=%q", k, r.conf.Env[k])
	}
	r.key = "step 1 " + hex.EncodeToString(sum.Sum(nil))
	if !r.force {
		if id, ok := r.d.layers.Find(r.key, r.by); ok {
			r.b.say("info", r.step, "taken from the cache")
			r.swap(id)
			return r.close(ctx)
		}
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
		err = r.exec(ctx, s.Args[0], user)
	case "COPY":
		err = r.copy(ctx, s)
	case "WORKDIR":
		err = r.workdir()
	}
	if err != nil {
		return err
	}
	// What a step leaves running ends with it.
	if err := scope.End(ctx, r.d.cfg.Manager, r.box.id, true); err != nil {
		return err
	}
	r.box.life.Lock()
	r.box.mu.Lock()
	before := r.box.rec.Layer
	r.box.mu.Unlock()
	id, err := r.box.capture(ctx, r.by)
	r.box.life.Unlock()
	if err != nil {
		return err
	}
	if id != before {
		defer r.swap(id)
		return r.d.layers.SetKey(id, r.key)
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
	if r.box != nil {
		return nil
	}
	rec := record{
		Record:  scope.NewRecord(&driver.Spec{Run: driver.RunConfig{User: "root", Dir: "/"}, Size: r.b.spec.Size}),
		Size:    driver.Size{CPUs: r.b.spec.Size.CPUs, Memory: r.b.spec.Size.Memory, Tasks: r.b.spec.Size.Tasks},
		Network: driver.NetworkOwn, UIDBase: r.d.cfg.UIDBase, Layer: r.top, Origin: r.top, Build: r.b.ID,
	}
	rec.Name = "build-" + string(rec.ID[:8])
	var err error
	r.box, err = r.d.create(ctx, rec)
	return err
}

// close ends the sandbox.
func (r *builder) close(ctx context.Context) error {
	if r.box == nil {
		return nil
	}
	box := r.box
	r.box = nil
	return box.Destroy(ctx)
}

// exec runs a command line, and shows what it writes.
func (r *builder) exec(ctx context.Context, line, user string) error {
	p, err := r.box.Processes().Start(ctx, process.Spec{
		Argv: r.box.shell(line), User: user, Dir: r.conf.Dir, Env: r.conf.Env, Timeout: stepTimeout,
	})
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
	switch {
	case err != nil:
		return err
	case res.Exit.Signal != 0:
		return fmt.Errorf("the command was ended by signal %d (%s)", res.Exit.Signal, res.Exit.Cause)
	case res.Exit.Code != 0:
		return fmt.Errorf("the command ended with exit status %d", res.Exit.Code)
	}
	return nil
}

func levelOf(s process.Stream) string {
	if s == process.Stderr {
		return "warn"
	}
	return "info"
}

// shell is the command that runs a line.
func (s *sandbox) shell(line string) []string {
	if r, err := s.openRoot(); err == nil {
		found := false
		err = r.Look(context.Background(), rootUser, func(stat statFunc) { _, err := stat("/bin/bash"); found = err == nil })
		if err == nil && found {
			return []string{"/bin/bash", "-l", "-c", line}
		}
	}
	return []string{"/bin/sh", "-c", line}
}

// startUp runs the start command of a template, and waits until it is ready.
func (s *sandbox) startUp(ctx context.Context, start, ready string) error {
	const every, most = 500 * time.Millisecond, 10 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if start != "" {
		if _, err := s.Processes().Start(ctx, process.Spec{Argv: s.shell(start), Labels: map[string]string{"start": "template"}}); err != nil {
			return fmt.Errorf("start command: %w", err)
		}
	}
	for ready != "" {
		p, err := s.Processes().Start(ctx, process.Spec{Argv: s.shell(ready), Timeout: most})
		if err != nil {
			return fmt.Errorf("ready command: %w", err)
		}
		res, err := p.Wait(ctx, process.Until{})
		if err != nil {
			return fmt.Errorf("ready command: %w", err)
		}
		if err := p.Remove(ctx); err != nil && !errors.Is(err, process.ErrNotFound) {
			return err
		}
		if res.Exit.Code == 0 && res.Exit.Signal == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("ready command: %w", ctx.Err())
		case <-time.After(every):
		}
	}
	return nil
}
