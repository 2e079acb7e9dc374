package interpreter

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/process"
)

// MaxContexts of one sandbox.
const MaxContexts = 100

// Labels of the processes of kernels.
const (
	labelRole     = "tend.code" // "kernel" or "zygote"
	labelContext  = "tend.code.context"
	labelLanguage = "tend.code.language"
	labelDir      = "tend.code.dir"
	// labelWarm: the kernel has started before the sandbox was somebody's, and does not know its variables.
	labelWarm = "tend.code.warm"
)

// Sandbox is a sandbox with code.
type Sandbox struct {
	ID string
	driver.Access
}

// info is driver.ErrNotFound when the sandbox has ended, and with it its kernels. The machine is no sandbox, and says nothing.
func (b *Sandbox) info(ctx context.Context) (driver.Info, error) {
	if s, ok := b.Access.(interface {
		Info(context.Context) (driver.Info, error)
	}); ok {
		return s.Info(ctx)
	}
	return driver.Info{}, nil
}

func (b *Sandbox) gone(ctx context.Context) error {
	_, err := b.info(ctx)
	return err
}

// env are the variables of the sandbox.
func (b *Sandbox) env(ctx context.Context) (map[string]string, error) {
	in, err := b.info(ctx)
	env := map[string]string{}
	for _, some := range []map[string]string{driver.Told(in.ID, in.E2BTemplate), in.Run.Env, in.Env} {
		maps.Copy(env, some)
	}
	return env, err
}

// Context is a place for cells that see each other's variables.
type Context struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	// Dir is where its kernel has started.
	Dir string `json:"cwd"`
}

// Service has the contexts of all sandboxes. The zero value is ready. All methods may be called
// concurrently.
type Service struct {
	// Dir is where the programs of kernels are in each sandbox. Empty: the constant Dir, where the template has them.
	Dir string

	mu     sync.Mutex
	starts map[string]*start // of contexts whose kernel is being started; guarded by mu
}

// start is held by who starts a kernel, so that a context has one.
type start struct {
	sync.Mutex
	users int // guarded by Service.mu
}

// hold waits until nobody else starts or ends a kernel of this context.
func (s *Service) hold(sandbox, context string) (release func()) {
	key := sandbox + "/" + context
	s.mu.Lock()
	if s.starts == nil {
		s.starts = map[string]*start{}
	}
	st := s.starts[key]
	if st == nil {
		st = new(start)
		s.starts[key] = st
	}
	st.users++
	s.mu.Unlock()
	st.Lock()
	return func() {
		st.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		if st.users--; st.users == 0 {
			delete(s.starts, key)
		}
	}
}

// Serves reports whether kernels are installed in a sandbox.
func (s *Service) Serves(sandbox Sandbox) bool {
	f, err := sandbox.Files("", "")
	if err != nil {
		return false
	}
	_, err = f.Stat(s.dir() + "/kernels/python/zygote.py")
	return err == nil
}

// defaultID is the ID of the context for cells that name none.
func defaultID(sandbox, language string) string {
	sum := sha256.Sum256([]byte(sandbox + "/" + language))
	return hex.EncodeToString(sum[:16])
}

// Contexts returns the contexts of a sandbox, first those for cells that name none. Those of
// Python and JavaScript are always there, though their kernels start with the first cell.
func (s *Service) Contexts(ctx context.Context, sandbox Sandbox) ([]Context, error) {
	kernels, err := sandbox.Processes().List(ctx, process.Filter{Labels: map[string]string{labelRole: "kernel"}})
	if err != nil {
		return nil, err
	}
	var all []Context
	for _, l := range s.languages() {
		if !l.first {
			continue
		}
		c, err := s.defaultContext(sandbox, l.name)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	for i := range kernels {
		c := contextOf(&kernels[i])
		if !slices.ContainsFunc(all, func(other Context) bool { return other.ID == c.ID }) {
			all = append(all, c)
		}
	}
	return all, nil
}

func contextOf(in *process.Info) Context {
	l := in.Spec.Labels
	return Context{ID: l[labelContext], Language: l[labelLanguage], Dir: l[labelDir]}
}

func (s *Service) defaultContext(sandbox Sandbox, language string) (Context, error) {
	u, err := sandbox.User("")
	if err != nil {
		return Context{}, err
	}
	return Context{ID: defaultID(sandbox.ID, language), Language: language, Dir: u.Home}, nil
}

// find returns the context with an ID; "": the one of a language for cells that name none.
func (s *Service) find(ctx context.Context, sandbox Sandbox, id, lang string) (Context, error) {
	if id == "" {
		l, err := s.language(lang)
		if err != nil {
			return Context{}, err
		}
		return s.defaultContext(sandbox, l.name)
	}
	kernels, err := s.kernels(ctx, sandbox, id)
	if err != nil {
		return Context{}, err
	}
	if len(kernels) > 0 {
		return contextOf(&kernels[0]), nil
	}
	for _, l := range s.languages() {
		if id == defaultID(sandbox.ID, l.name) {
			return s.defaultContext(sandbox, l.name)
		}
	}
	return Context{}, &ContextError{id}
}

// Create makes a context, and starts its kernel. Dir "" is the home of the sandbox's user. Errors:
// *LanguageError, *DirError, *LimitError, *KernelError.
func (s *Service) Create(ctx context.Context, sandbox Sandbox, lang, dir string) (Context, error) {
	c, err := s.find(ctx, sandbox, "", lang)
	if err != nil {
		return Context{}, err
	}
	if dir != "" {
		c.Dir = dir
	}
	release := s.hold(sandbox.ID, "") // so that they are counted
	defer release()
	all, err := s.Contexts(ctx, sandbox)
	if err != nil {
		return Context{}, err
	}
	if len(all) >= MaxContexts {
		return Context{}, &LimitError{MaxContexts}
	}
	c.ID = strings.ToLower(rand.Text())
	_, err = s.launch(ctx, sandbox, c)
	return c, err
}

// Restart ends the kernel of a context and starts another. Errors: *ContextError, *KernelError.
func (s *Service) Restart(ctx context.Context, sandbox Sandbox, id string) error {
	c, err := s.find(ctx, sandbox, id, "")
	if err != nil {
		return err
	}
	release := s.hold(sandbox.ID, id)
	defer release()
	if err := s.end(ctx, sandbox, id, false); err != nil {
		return err
	}
	_, err = s.launch(ctx, sandbox, c)
	return err
}

// Remove ends the kernel of a context and forgets it. A context for cells that name none starts
// afresh when it is used again. Error: *ContextError.
func (s *Service) Remove(ctx context.Context, sandbox Sandbox, id string) error {
	if _, err := s.find(ctx, sandbox, id, ""); err != nil {
		return err
	}
	release := s.hold(sandbox.ID, id)
	defer release()
	return s.end(ctx, sandbox, id, true)
}

// kernels are the processes of a context, oldest first.
func (s *Service) kernels(ctx context.Context, sandbox Sandbox, id string) ([]process.Info, error) {
	return sandbox.Processes().List(process.Brief(ctx), process.Filter{Labels: map[string]string{labelRole: "kernel", labelContext: id}})
}

// end kills the kernels of a context. forget: also what is kept of them.
func (s *Service) end(ctx context.Context, sandbox Sandbox, id string, forget bool) error {
	all, err := s.kernels(ctx, sandbox, id)
	if err != nil {
		return err
	}
	for i := range all {
		p, err := sandbox.Processes().Get(ctx, process.Selector{ID: all[i].Spec.ID})
		if errors.Is(err, process.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if _, err := p.Kill(ctx); err != nil && !errors.Is(err, process.ErrExited) {
			return err
		}
		if _, err := p.Wait(ctx, process.Until{EOF: true}); err != nil {
			return err
		}
		if !forget && i == len(all)-1 { // executions of it can still be read
			return nil
		}
		if err := p.Remove(ctx); err != nil && !errors.Is(err, process.ErrNotFound) {
			return err
		}
	}
	return nil
}

// kernel returns the kernel of a context, and starts it if there is none.
func (s *Service) kernel(ctx context.Context, sandbox Sandbox, c Context) (p process.Process, warm bool, err error) {
	release := s.hold(sandbox.ID, c.ID)
	defer release()
	all, err := s.kernels(ctx, sandbox, c.ID)
	if err != nil {
		return nil, false, err
	}
	if n := len(all); n > 0 && all[n-1].Exit == nil {
		p, err := sandbox.Processes().Get(ctx, process.Selector{ID: all[n-1].Spec.ID})
		return p, all[n-1].Spec.Labels[labelWarm] != "", err
	}
	if err := s.end(ctx, sandbox, c.ID, false); err != nil {
		return nil, false, err
	}
	p, err = s.launch(ctx, sandbox, c)
	return p, false, err
}

// Warm starts the kernel of Python's own context in a sandbox that is nobody's yet, and the zygote before it. It gets the
// variables of the sandbox with its first cell.
func (s *Service) Warm(ctx context.Context, sandbox Sandbox) error {
	c, err := s.defaultContext(sandbox, Python)
	if err != nil {
		return err
	}
	lang, err := s.language(Python)
	if err != nil {
		return err
	}
	release := s.hold(sandbox.ID, c.ID)
	defer release()
	if err := s.startZygote(ctx, sandbox, lang); err != nil {
		return err
	}
	_, _, err = s.try(ctx, sandbox, c, lang.warm, map[string]string{labelWarm: "yes"})
	return err
}

// startTime bounds the start of a kernel: the zygote's first imports may come from a cold disk.
const startTime = 90 * time.Second

// launch starts a kernel, and returns when it is ready.
func (s *Service) launch(ctx context.Context, sandbox Sandbox, c Context) (process.Process, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	lang, err := s.language(c.Language)
	if err != nil {
		return nil, err // of a newer version of tend
	}
	p, status, err := s.try(ctx, sandbox, c, lang.argv, nil)
	if err != nil && status == noZygote && lang.zygote != nil {
		if err := s.startZygote(ctx, sandbox, lang); err != nil {
			return nil, err
		}
		p, status, err = s.try(ctx, sandbox, c, lang.again, nil)
	}
	if e, ok := errors.AsType[*KernelError](err); ok && status == noKernel {
		return nil, s.unknown(c.Language, e.said)
	}
	return p, err
}

func (s *Service) startZygote(ctx context.Context, sandbox Sandbox, lang language) error {
	_, err := sandbox.Processes().Start(ctx, process.Spec{Argv: lang.zygote, Dir: "/", Labels: map[string]string{labelRole: "zygote"},
		Retention: process.Retention{Limit: process.MinRetention, TTL: time.Minute}})
	return err
}

// kernelOutput is how much of the output of a kernel is kept, in bytes.
const kernelOutput = 64 << 20

// try starts a kernel once. status is its exit status, if it has ended at once.
func (s *Service) try(ctx context.Context, sandbox Sandbox, c Context, argv []string, more map[string]string) (_ process.Process,
	status int, err error) {
	labels := map[string]string{labelRole: "kernel", labelContext: c.ID, labelLanguage: c.Language, labelDir: c.Dir}
	maps.Copy(labels, more)
	p, err := sandbox.Processes().Start(ctx, process.Spec{
		Argv: argv, Dir: c.Dir, Stdin: process.StdinPipe, Labels: labels,
		Retention: process.Retention{Limit: kernelOutput, Pin: true},
	})
	if failed, ok := errors.AsType[*process.StartError](err); ok && failed.Reason == process.StartBadDir {
		return nil, 0, &DirError{c.Dir, err}
	} else if ok && failed.Reason == process.StartNotFound {
		return nil, 0, &LanguageError{c.Language, fmt.Sprintf("%s is not installed in this sandbox", argv[0])}
	}
	if err != nil {
		return nil, 0, err
	}
	exit, said, err := ready(ctx, p)
	if err == nil && exit == nil {
		return p, 0, nil
	}
	clean := context.WithoutCancel(ctx)
	if exit == nil {
		_, _ = p.Kill(clean) // what it is told, if anything, is err
	}
	if _, werr := p.Wait(clean, process.Until{EOF: true}); werr == nil {
		_ = p.Remove(clean)
	}
	if exit != nil {
		if err := sandbox.gone(clean); err != nil {
			return nil, 0, err
		}
		return nil, exit.Code, &KernelError{fmt.Sprintf("%v: %.2000s", exit, said), string(said)}
	}
	return nil, 0, err
}

// ready waits until a kernel has written its first line, or ended: then said is what it wrote.
func ready(ctx context.Context, p process.Process) (exit *process.Exit, said []byte, err error) {
	for ev, err := range process.Events(ctx, p, process.ReadOptions{MaxChunk: 4096}) {
		switch {
		case err != nil:
			return nil, nil, err
		case ev.Kind == process.EventOutput && ev.Stream == process.Stdout:
			return nil, nil, nil // a kernel writes it at once
		case ev.Kind == process.EventOutput && len(said) < 2000:
			said = append(said, ev.Data...)
		case ev.Kind == process.EventExited:
			exit = ev.Exit
		}
	}
	return exit, said, nil
}
