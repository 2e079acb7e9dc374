package native

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/lib/errtext"
	"github.com/tend-run/tend/internal/protocol/module"
	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

const (
	// MaxBuildFiles is the most bytes of files for one build.
	MaxBuildFiles = int64(8) << 30
	// MaxBuilds is how many builds hold files at a time.
	MaxBuilds = 16
	// lookBuild is how often a build that is followed is looked at.
	lookBuild = 100 * time.Millisecond
)

// builds keeps the files of builds until these are over, below its directory.
type builds struct {
	dir  string // "": no files are taken
	once sync.Once
	err  error // of the first use

	mu sync.Mutex
	n  int // builds that hold files; guarded by mu
	wg sync.WaitGroup
}

// open makes a directory for the files of a build.
func (b *builds) open() (dir string, release func(), err error) {
	if b.dir == "" {
		return "", nil, unsupported("files for builds")
	}
	b.once.Do(func() { // what a server before has left
		b.err = os.MkdirAll(b.dir, 0o700) // the directory itself stays whose it is
		left, err := os.ReadDir(b.dir)
		b.err = errors.Join(b.err, err)
		for _, e := range left {
			b.err = errors.Join(b.err, os.RemoveAll(filepath.Join(b.dir, e.Name())))
		}
	})
	if b.err != nil {
		return "", nil, b.err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n >= MaxBuilds {
		return "", nil, fmt.Errorf("%d builds hold files: %w", b.n, process.ErrLimit)
	}
	if dir, err = os.MkdirTemp(b.dir, "build-"); err != nil {
		return "", nil, err
	}
	b.n++
	return dir, sync.OnceFunc(func() {
		_ = os.RemoveAll(dir) // the next server does, if this fails
		b.mu.Lock()
		b.n--
		b.mu.Unlock()
	}), nil
}

// upload is the files of one step.
type upload struct {
	file *os.File
	sum  hash.Hash
}

// collect reads a build and its files. The steps get the hashes of their files.
func collect(stream *connect.ClientStream[tendv1.BuildTemplateRequest], dir string, spec *driver.BuildSpec) (err error) {
	var now *upload
	at, total := -1, int64(0)
	end := func() error {
		if now == nil {
			return nil
		}
		sum := hex.EncodeToString(now.sum.Sum(nil))
		if spec.Dockerfile != nil {
			spec.Dockerfile.Context = sum
		} else {
			spec.Steps[at].Hash = sum
		}
		err := now.file.Close()
		if err == nil {
			err = os.Rename(now.file.Name(), filepath.Join(dir, sum))
		}
		now = nil
		return err
	}
	defer func() {
		if now != nil {
			now.file.Close()
		}
	}()
	for stream.Receive() {
		m := stream.Msg()
		step := int(min(m.GetStep(), 1<<30))
		switch {
		case m.GetSpec() != nil:
			return &process.InvalidError{Field: "spec", Reason: "is set in a later message; the first one has it"}
		case spec.Dockerfile != nil && step > 0:
			return &process.InvalidError{Field: "step", Reason: fmt.Sprintf("is %d; the context of a Dockerfile is 0", step)}
		case spec.Dockerfile != nil:
		case step >= len(spec.Steps) || spec.Steps[step].Kind != "COPY":
			return &process.InvalidError{Field: "step", Reason: fmt.Sprintf("is %d, which is no COPY of the %d steps", step, len(spec.Steps))}
		}
		switch {
		case step < at:
			return &process.InvalidError{Field: "step", Reason: fmt.Sprintf("is %d after %d; files come in the order of the steps", step, at)}
		case step > at:
			if err := end(); err != nil {
				return err
			}
			f, err := os.CreateTemp(dir, "new-")
			if err != nil {
				return err
			}
			now, at = &upload{f, sha256.New()}, step
		}
		if total += int64(len(m.GetData())); total > MaxBuildFiles {
			return fmt.Errorf("the files of a build have more than %d bytes: %w", MaxBuildFiles, process.ErrLimit)
		}
		now.sum.Write(m.GetData()) // never fails
		if _, err := now.file.Write(m.GetData()); err != nil {
			return err
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	return end()
}

func (s *sandboxes) templater() (driver.Templater, error) {
	t, ok := s.driver.(driver.Templater)
	if !ok {
		return nil, s.lacks("templates")
	}
	return t, nil
}

// templateError says what was not found.
func templateError(key string, err error) error {
	if errors.Is(err, driver.ErrNotFound) {
		return wireError(errtext.New(fmt.Sprintf("there is no template %.200q", key), process.ErrNotFound))
	}
	return wireError(err)
}

func (s *sandboxes) Templates(ctx context.Context,
	_ *connect.Request[tendv1.ListTemplatesRequest]) (*connect.Response[tendv1.ListTemplatesResponse], error) {
	t, err := s.templater()
	if err != nil {
		return nil, err
	}
	all, err := t.Templates(ctx)
	if err != nil {
		return nil, wireError(err)
	}
	resp := &tendv1.ListTemplatesResponse{}
	for i := range all {
		resp.Templates = append(resp.Templates, template(&all[i]))
	}
	return connect.NewResponse(resp), nil
}

func template(t *driver.Template) *tendv1.Template {
	return &tendv1.Template{
		Id: t.ID, Name: t.Name, Aliases: t.Aliases, Tags: t.Tags, Build: string(t.Build),
		Size:  &tendv1.SandboxSize{Cpus: t.Size.CPUs, Memory: t.Size.Memory, Disk: t.Size.Disk, Tasks: t.Size.Tasks},
		Run:   &tendv1.SandboxRun{User: text(t.Run.User), Dir: text(t.Run.Dir), Env: texts(t.Run.Env)},
		Start: text(t.Start), Ready: text(t.Ready), Bytes: t.Bytes, Created: tendpb.Time(t.Created), Updated: tendpb.Time(t.Updated),
		LastUsed: tendpb.Time(t.LastUsed), Used: t.Used,
	}
}

func (s *sandboxes) DeleteTemplate(ctx context.Context,
	req *connect.Request[tendv1.DeleteTemplateRequest]) (*connect.Response[tendv1.DeleteTemplateResponse], error) {
	key := req.Msg.GetTemplate()
	if key == "" || len(key) > 2*driver.MaxName {
		return nil, wireError(&process.InvalidError{Field: "template", Reason: fmt.Sprintf("has %d bytes; 1 to %d are allowed",
			len(key), 2*driver.MaxName)})
	}
	t, err := s.templater()
	if err != nil {
		return nil, err
	}
	if err := t.DeleteTemplate(ctx, key); err != nil {
		return nil, templateError(key, err)
	}
	return connect.NewResponse(&tendv1.DeleteTemplateResponse{}), nil
}

func (s *sandboxes) BuildTemplate(ctx context.Context,
	stream *connect.ClientStream[tendv1.BuildTemplateRequest]) (*connect.Response[tendv1.BuildTemplateResponse], error) {
	t, err := s.templater()
	if err != nil {
		return nil, err
	}
	if !stream.Receive() {
		return nil, wireError(errors.Join(stream.Err(), &process.InvalidError{Field: "spec", Reason: "is missing"}))
	}
	m := stream.Msg()
	if m.GetSpec() == nil || len(m.GetData()) > 0 {
		return nil, wireError(&process.InvalidError{Field: "spec", Reason: "is missing in the first message, or comes with data"})
	}
	spec, err := toBuildSpec(m.GetSpec())
	if err != nil {
		return nil, wireError(err)
	}
	dir, release, err := s.builds.open()
	if err != nil {
		return nil, wireError(err)
	}
	kept := false
	defer func() {
		if !kept {
			release()
		}
	}()
	if err := collect(stream, dir, &spec); err != nil {
		return nil, wireError(err)
	}
	spec.Blob = func(hash string) (io.ReadCloser, error) {
		if hash == "" || hash != filepath.Base(hash) {
			return nil, fs.ErrNotExist
		}
		return os.Open(filepath.Join(dir, hash))
	}
	// The build continues without the caller.
	b, err := t.Build(context.WithoutCancel(ctx), spec)
	if err != nil {
		return nil, templateError(spec.From, err)
	}
	kept = true
	s.builds.wg.Go(func() {
		defer release()
		for {
			if b, _, err := t.GetBuild(context.Background(), b.ID, 1<<30); err != nil || b.Status >= driver.BuildReady {
				return
			}
			select {
			case <-s.stopping: // a build does not outlive the server
				return
			case <-time.After(lookBuild):
			}
		}
	})
	return connect.NewResponse(&tendv1.BuildTemplateResponse{Build: string(b.ID)}), nil
}

func toBuildSpec(m *tendv1.TemplateSpec) (driver.BuildSpec, error) {
	s := driver.BuildSpec{
		Name: m.GetName(), Tags: m.GetTags(), From: m.GetFrom(), FromDir: m.GetFromDir(), FromImage: m.GetFromImage(),
		Pull: driver.Pull{Owner: true}, Start: m.GetStart(), Ready: m.GetReady(), Force: m.GetForce(),
		Size: driver.Size{CPUs: m.GetSize().GetCpus(), Memory: m.GetSize().GetMemory(), Disk: m.GetSize().GetDisk(),
			Tasks: m.GetSize().GetTasks()},
	}
	if d := m.GetDockerfile(); d != nil {
		s.Dockerfile = &driver.Dockerfile{Text: d.GetText(), Target: d.GetTarget(), Args: d.GetArgs(), Secrets: d.GetSecrets()}
		if len(m.GetSteps()) > 0 {
			return s, &process.InvalidError{Field: "steps", Reason: "cannot be given together with a Dockerfile"}
		}
	}
	if n := len(m.GetSteps()); n > driver.MaxSteps {
		return s, &process.InvalidError{Field: "steps", Reason: fmt.Sprintf("has %d entries; the limit is %d", n, driver.MaxSteps)}
	}
	for _, step := range m.GetSteps() {
		s.Steps = append(s.Steps, driver.Step{Kind: step.GetKind(), Args: step.GetArgs()})
	}
	return s, nil
}

func (s *sandboxes) FollowBuild(ctx context.Context, req *connect.Request[tendv1.FollowBuildRequest],
	stream *connect.ServerStream[tendv1.FollowBuildResponse]) error {
	t, err := s.templater()
	if err != nil {
		return err
	}
	id, next := req.Msg.GetBuild(), min(req.Msg.GetFrom(), 1<<30)
	if !driver.LikeID(id) {
		return wireError(&process.InvalidError{Field: "build", Reason: fmt.Sprintf("is %.80q, and no ID", id)})
	}
	sent := time.Now()
	for first := true; ; first = false {
		b, logs, err := t.GetBuild(ctx, driver.BuildID(id), int(next))
		if errors.Is(err, driver.ErrNotFound) {
			return wireError(errtext.New(fmt.Sprintf("there is no build %s; it did not come to its end if the server was started again: build again",
				id), process.ErrNotFound))
		}
		if err != nil {
			return wireError(err)
		}
		over := b.Status >= driver.BuildReady
		if len(logs) > 0 || over || first || time.Since(sent) >= s.heartbeat {
			m := &tendv1.FollowBuildResponse{}
			for _, l := range logs[:min(len(logs), 1000)] {
				m.Logs = append(m.Logs, &tendv1.BuildLog{Time: tendpb.Time(l.Time), Level: l.Level, Message: text(l.Message), Step: l.Fields["step"]})
			}
			next += uint32(len(m.Logs))
			more := len(logs) > len(m.Logs)
			if m.Next = next; over && !more {
				m.Build = &tendv1.TemplateBuild{
					Id: string(b.ID), TemplateId: b.TemplateID, Name: b.Name, Tags: b.Tags, Ready: b.Status == driver.BuildReady,
					Reason: text(b.Reason), FailedStep: b.FailedStep,
				}
			}
			if err := stream.Send(m); err != nil || m.Build != nil {
				return err
			}
			if sent = time.Now(); more {
				continue
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.stopping:
			return wireError(fmt.Errorf("the server ends, and the build with it: %w", process.ErrUnavailable))
		case <-time.After(lookBuild):
		}
	}
}

func (s *sandboxes) Access(ctx context.Context,
	req *connect.Request[tendv1.SandboxAccessRequest]) (*connect.Response[tendv1.SandboxAccessResponse], error) {
	return with(ctx, s, req.Msg.GetSandbox(), func(sandbox driver.Sandbox) (*tendv1.SandboxAccessResponse, error) {
		info, err := sandbox.Info(ctx)
		if err != nil {
			return nil, err
		}
		id, by := string(info.ID), ""
		if s.page != nil {
			by = s.page.Visitor(module.LoginOf(ctx))
		}
		return &tendv1.SandboxAccessResponse{
			Token: string(s.secret.SandboxToken(id)), TrafficToken: string(s.secret.TrafficToken(id)), Domains: s.domains,
			Ticket: s.secret.Ticket(id, by, time.Now()),
		}, nil
	})
}
