package local

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/tend-run/tend/internal/sandbox/dockerfile"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/layer"
	"github.com/tend-run/tend/internal/sandbox/oci"
)

// stagesRun is how many stages of a Dockerfile are built at the same time.
const stagesRun = 2

// stage builds one of a Dockerfile. Its builder's fields are of what is built so far.
type stage struct {
	builder
	f     *dockerfiles
	of    *dockerfile.Stage
	args  map[string]string
	shell []string
	entry, cmd,
	ready []string
	starts bool // the file itself says what starts
	ended  chan struct{}
	err    error // of one that has ended
}

// dockerfiles is the build of a Dockerfile.
type dockerfiles struct {
	d       *Driver
	r       *builder
	plan    *dockerfile.Plan
	pull    driver.Pull
	context *buildContext
	stages  map[*dockerfile.Stage]*stage
	slots   chan struct{}

	mu   sync.Mutex
	dir  string // for as long as it runs; "": not made. Guarded by mu
	made int    // directories in it; guarded by mu
}

// temp makes a directory that is there until the build is over.
func (f *dockerfiles) temp() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dir == "" {
		all := filepath.Join(f.d.cfg.Dir, buildsName)
		if err := os.MkdirAll(all, 0o700); err != nil {
			return "", err
		}
		var err error
		if f.dir, err = os.MkdirTemp(all, "build-"); err != nil {
			return "", err
		}
	}
	f.made++
	dir := filepath.Join(f.dir, strconv.Itoa(f.made))
	return dir, os.Mkdir(dir, 0o700)
}

// close removes what the build had for itself.
func (f *dockerfiles) close() error {
	err := f.context.close()
	if f.dir != "" {
		err = errors.Join(err, f.d.discard(f.dir))
	}
	return errors.Join(err, f.d.shrinkCaches(maxCaches))
}

// dockerfile builds a Dockerfile. What is built is r.top then.
func (r *builder) dockerfile(ctx context.Context) (m *made, err error) {
	s := &r.b.spec
	file := s.Dockerfile
	plan, err := dockerfile.Parse(file.Text, dockerfile.Options{Target: file.Target, Args: file.Args})
	if err != nil {
		return nil, err
	}
	for _, n := range plan.Notes {
		r.b.say("warn", r.step, "%s", n)
	}
	f := &dockerfiles{d: r.d, r: r, plan: plan, pull: s.Pull, stages: map[*dockerfile.Stage]*stage{}, slots: make(chan struct{}, stagesRun)}
	secrets := file.Secrets
	s.Pull, s.Dockerfile = driver.Pull{}, nil // a build is remembered; these are not
	if f.context, err = r.openContext(file.Context); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	first, last := 1, (*stage)(nil)
	for i, of := range plan.Stages {
		last = &stage{f: f, of: of, ended: make(chan struct{}), args: map[string]string{}, builder: builder{
			d: r.d, b: r.b, by: fmt.Sprintf("%s stage %d", r.by, i), force: s.Force, first: first, secrets: secrets}}
		f.stages[of] = last
		first += len(of.Steps)
	}
	for _, of := range plan.Stages {
		st := f.stages[of]
		running.Go(func() {
			defer close(st.ended)
			if st.err = st.build(ctx); st.err != nil {
				cancel(st.err)
			}
		})
	}
	running.Wait()
	for _, of := range plan.Stages {
		st := f.stages[of]
		defer r.d.layers.Release(st.top, st.by)
		if cause := context.Cause(ctx); st.err != nil && (cause == nil || errors.Is(st.err, cause)) { // not one that was cancelled for it
			r.step = st.step
			return nil, st.err
		}
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if err := r.d.layers.Hold(last.top, r.by); err != nil {
		return nil, err
	}
	r.top = last.top
	r.step = "finalize"
	m = &made{Layer: r.top, Run: last.conf, Size: s.Size}
	start := slices.Concat(last.entry, last.cmd)
	if (last.starts || len(last.ready) > 0) && len(start) > 0 && !waitsForInput(start) {
		m.Start, m.Ready = wordsLine(start), wordsLine(last.ready)
	}
	view, err := last.view()
	if err != nil {
		return nil, err
	}
	defer view.Close()
	if _, _, err := owner(view, m.Run.User); err != nil {
		return nil, fmt.Errorf("USER %w", err)
	}
	m.Run.User = oci.UserOf(view, m.Run.User)
	return m, nil
}

// wordsLine makes of a command the line that [sandbox.shell] knows as it.
func wordsLine(argv []string) string {
	if len(argv) == 0 {
		return ""
	}
	text, err := json.Marshal(argv)
	if err != nil { // impossible: these are strings
		return ""
	}
	return string(text)
}

// waitsForInput: a command is a shell alone, which ends at once if nobody types.
func waitsForInput(argv []string) bool {
	return len(argv) == 1 && slices.Contains([]string{"sh", "bash", "ash", "dash", "zsh", "fish", "python", "python3", "node", "irb"},
		path.Base(argv[0]))
}

// build does the steps of a stage, once what it needs is there.
func (s *stage) build(ctx context.Context) (err error) {
	defer func() { // no handler is above it
		if v := recover(); v != nil {
			s.d.log.Error("a build panicked", "panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("the build ended by a fault of tend: %v", v)
		}
	}()
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	s.step = "base"
	for _, needed := range s.of.Needs() {
		other := s.f.stages[needed]
		select {
		case <-other.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if other.err != nil {
			return other.err
		}
	}
	select {
	case s.f.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.f.slots }()
	triggers, err := s.base(ctx)
	if err != nil {
		return err
	}
	steps := s.of.Steps
	for _, text := range triggers {
		step, err := s.f.plan.Trigger(text)
		if err != nil {
			return fmt.Errorf("ONBUILD of the image: %w", err)
		}
		if err := s.one(ctx, step, "ONBUILD"); err != nil {
			return err
		}
	}
	for i, step := range steps {
		s.step = strconv.Itoa(s.first + i)
		if err := s.one(ctx, step, fmt.Sprintf("%d/%d", i+1, len(steps))); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) one(ctx context.Context, step dockerfile.Step, number string) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	s.b.say("info", s.step, "[%s %s] %.200s", s.of.Name, number, step.Text)
	if err := s.doStep(ctx, step); err != nil {
		return fmt.Errorf("line %d: %w", step.Line, err)
	}
	return nil
}

// base begins with another stage, an image, or nothing.
func (s *stage) base(ctx context.Context) (triggers []string, err error) {
	l := s.d.layers
	s.shell = []string{"/bin/sh", "-c"}
	s.conf = driver.RunConfig{User: "root", Dir: "/", Env: map[string]string{}}
	switch {
	case s.of.Base != nil:
		o := s.f.stages[s.of.Base]
		s.top, s.key, s.shell, s.entry, s.cmd, s.ready, s.starts = o.top, o.key, o.shell, o.entry, o.cmd, o.ready, o.starts
		s.conf = driver.RunConfig{User: o.conf.User, Dir: o.conf.Dir, Env: maps.Clone(o.conf.Env)}
		maps.Copy(s.args, o.args)
		return nil, l.Hold(s.top, s.by)
	case s.of.Image == "":
		s.path()
		s.key = "scratch"
		if id, ok := l.Find(s.key, s.by); ok {
			s.top = id
			return nil, nil
		}
		s.top, err = l.Make(layer.Meta{Whole: true, Key: s.key, By: s.by}, func(string) error { return nil })
		return nil, err
	}
	m, err := s.f.image(ctx, s.of.Image, s.step)
	if err != nil {
		return nil, fmt.Errorf("line %d: %w", s.of.Line, err)
	}
	var run driver.RunConfig
	if s.top, run, err = s.d.images.Use(m.ID, s.by); err != nil {
		return nil, err
	}
	s.key = "scratch"
	if len(m.Layers) > 0 {
		s.key = m.Layers[len(m.Layers)-1]
	}
	s.conf.User, s.conf.Dir = cmp.Or(run.User, "root"), cmp.Or(run.Dir, "/")
	maps.Copy(s.conf.Env, run.Env)
	s.path()
	s.entry, s.cmd = m.Entrypoint, m.Cmd
	if len(m.Shell) > 0 {
		s.shell = m.Shell
	}
	return m.OnBuild, nil
}

const usualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// path gives a base without a PATH the usual one, as other builders do.
func (s *stage) path() {
	if _, ok := s.conf.Env["PATH"]; !ok {
		s.conf.Env["PATH"] = usualPath
	}
}

// image has an image be here.
func (f *dockerfiles) image(ctx context.Context, name, step string) (driver.Image, error) {
	p := f.pull
	p.Name, p.Say = name, func(text string) { f.r.b.say("info", step, "%s", text) }
	return f.d.wantImage(ctx, p, f.r.b.spec.Force)
}

// env is what the variables of an instruction may be.
func (s *stage) env() map[string]string {
	all := maps.Clone(s.args)
	maps.Copy(all, s.conf.Env)
	return all
}

// doStep does one instruction.
func (s *stage) doStep(ctx context.Context, step dockerfile.Step) error {
	if err := s.f.plan.Expand(step.Command, s.env()); err != nil {
		return err
	}
	switch c := step.Command.(type) {
	case *instructions.EnvCommand:
		for _, kv := range c.Env {
			s.conf.Env[kv.Key] = kv.Value
		}
		return driver.CheckEnv("env", s.conf.Env)
	case *instructions.ArgCommand:
		for _, a := range c.Args {
			if v, ok := s.of.Arg(a); ok {
				s.args[a.Key] = v
			}
		}
		return driver.CheckEnv("arg", s.args)
	case *instructions.UserCommand:
		s.conf.User = c.User
	case *instructions.WorkdirCommand:
		s.conf.Dir = path.Join("/", cmpDir(s.conf.Dir, c.Path))
		return s.workdir(ctx)
	case *instructions.ShellCommand:
		s.shell = c.Shell
	case *instructions.CmdCommand:
		s.cmd, s.starts = s.words(c.ShellDependantCmdLine), true
	case *instructions.EntrypointCommand:
		if s.entry, s.starts = s.words(c.ShellDependantCmdLine), true; !s.cmdIsOwn(step) {
			s.cmd = nil // that of the base is for another entrypoint
		}
	case *instructions.HealthCheckCommand:
		s.ready = s.health(c.Health.Test)
	case *instructions.RunCommand:
		return s.run(ctx, step, c)
	case *instructions.CopyCommand:
		return s.copy(ctx, step, copying{SourcesAndDest: c.SourcesAndDest, chown: c.Chown, chmod: c.Chmod, exclude: c.ExcludePatterns,
			parents: c.Parents, from: c.From})
	case *instructions.AddCommand:
		return s.copy(ctx, step, copying{SourcesAndDest: c.SourcesAndDest, chown: c.Chown, chmod: c.Chmod, exclude: c.ExcludePatterns,
			add: true, unpack: c.Unpack, checksum: c.Checksum})
	}
	return nil
}

// cmdIsOwn reports whether a CMD of this stage comes before a step.
func (s *stage) cmdIsOwn(step dockerfile.Step) bool {
	for _, other := range s.of.Steps {
		if _, ok := other.Command.(*instructions.CmdCommand); ok && other.Line < step.Line {
			return true
		}
	}
	return false
}

// words are those of a command; a line is given to the shell.
func (s *stage) words(c instructions.ShellDependantCmdLine) []string {
	if !c.PrependShell {
		return c.CmdLine
	}
	return append(slices.Clone(s.shell), strings.Join(c.CmdLine, " "))
}

func (s *stage) health(test []string) []string {
	switch {
	case len(test) > 1 && test[0] == "CMD-SHELL":
		return append(slices.Clone(s.shell), test[1])
	case len(test) > 1 && test[0] == "CMD":
		return test[1:]
	}
	return nil
}

// placed makes the layer of what a picker found, or takes it from the cache.
func (s *stage) placed(ctx context.Context, key string, p *picker) error {
	if found, err := s.hit(ctx, key); found || err != nil {
		return err
	}
	if err := s.close(ctx); err != nil { // what follows is on top of another layer
		return err
	}
	id, err := s.layerOf(ctx, p.write)
	if err == nil {
		s.swap(id)
	}
	return err
}
