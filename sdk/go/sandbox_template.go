package tend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"

	tendv1 "github.com/tend-run/tend/gen/tend/v1"
	"github.com/tend-run/tend/internal/tendpb"
	"github.com/tend-run/tend/process"
)

// TemplateSpec says what a template is built from.
type TemplateSpec struct {
	// Name has 1 to 128 of [a-z0-9_-], with one namespace and '/' before them or none.
	Name string
	// Tags; none: "default".
	Tags []string
	// From is the template that it begins with; "": the server's default. FromDir is a
	// directory of the server's machine that is the whole root; one of them at most.
	From, FromDir string
	// FromImage is an image that it begins with, in their place: its ID or a name, such as
	// "python:3", which is fetched if the server has it not.
	FromImage string
	// Dockerfile is built in the place of a base, Steps, Start and Ready; nil: none.
	Dockerfile *Dockerfile
	Steps      []TemplateStep // at most 1000
	// Start is a command that runs in each sandbox made from it, and Ready one that ends
	// with 0 when that is up. Both for a shell; "": none.
	Start, Ready string
	// Size of sandboxes made from it.
	Size SandboxSize
	// Force: no step is taken from the cache.
	Force bool
}

// Dockerfile is the text of one, and what its build is given.
type Dockerfile struct {
	Text   string            // at most 1 MiB
	Target string            // the name or number of a stage; "": the last
	Args   map[string]string // values of ARG; at most 256
	// Secrets are files for RUN --mount=type=secret by their ids; at most 64, of 500 KiB each.
	// They are in no layer, no record and no log.
	Secrets map[string][]byte
	// Context writes the tar of all files that it may copy; nil: there are none.
	Context func(io.Writer) error
}

// TemplateStep is one step of a build.
type TemplateStep struct {
	// Kind and Args: COPY source, destination[, user[, mode]]; RUN line[, user]; WORKDIR
	// directory; USER name; ENV name, value, ….
	Kind string
	Args []string
	// Files writes the tar (or tar.gz) with the files of a COPY.
	Files func(io.Writer) error
}

// TemplateInfo is what is known of a template.
type TemplateInfo struct {
	ID, Name         string
	Aliases, Tags    []string
	Build            string
	Size             SandboxSize
	User, Dir        string
	Env              map[string]string
	Start, Ready     string
	Bytes            int64
	Created, Updated time.Time
	LastUsed         time.Time // zero: never
	Used             int64     // sandboxes made from it
}

// BuildLog is a line of the log of a build.
type BuildLog struct {
	Time           time.Time
	Level, Message string
	Step           string // "base", the number of a step from 1, or "finalize"
}

// TemplateBuild is a build that has ended.
type TemplateBuild struct {
	ID, TemplateID, Name string
	Tags                 []string
}

// BuildError says that a build failed.
type BuildError struct {
	Step   string // as BuildLog.Step
	Reason string
}

func (e *BuildError) Error() string {
	switch e.Step {
	case "", "base", "finalize":
		return "the build failed: " + e.Reason
	}
	return "step " + e.Step + " failed: " + e.Reason
}

// Templates returns all templates, oldest first.
func (c *Client) Templates(ctx context.Context) (all []TemplateInfo, err error) {
	req := &tendv1.ListTemplatesRequest{}
	err = c.aboutSandboxes(ctx, c.call, unary(c.sandboxes.Templates, req, func(m *tendv1.ListTemplatesResponse) error {
		all = mapped(m.GetTemplates(), toTemplate)
		return nil
	}))
	return all, knownCall(err, "is")
}

func toTemplate(m *tendv1.Template) TemplateInfo {
	return TemplateInfo{
		ID: tendpb.CleanName(m.GetId()), Name: tendpb.CleanName(m.GetName()), Aliases: m.GetAliases(), Tags: m.GetTags(),
		Build: tendpb.CleanName(m.GetBuild()), Size: toSize(m.GetSize()),
		User: tendpb.CleanName(m.GetRun().GetUser()), Dir: m.GetRun().GetDir(), Env: m.GetRun().GetEnv(), Start: m.GetStart(),
		Ready: m.GetReady(), Bytes: m.GetBytes(), Used: m.GetUsed(),
		Created: tendpb.ToTime(m.GetCreated()), Updated: tendpb.ToTime(m.GetUpdated()), LastUsed: tendpb.ToTime(m.GetLastUsed()),
	}
}

// DeleteTemplate removes a template and its tags. Sandboxes created from it stay. If
// there is no such template, the error is [process.ErrNotFound].
func (c *Client) DeleteTemplate(ctx context.Context, key string) error {
	req := &tendv1.DeleteTemplateRequest{Template: key}
	return knownCall(c.aboutSandboxes(ctx, c.once, checked("template", c.sandboxes.DeleteTemplate, req, nil)), "is")
}

// BuildTemplate sends a build with its files. It calls log, if it is not nil, with each
// line of the log until the build ends. A [*BuildError] names the step that failed. The
// build continues on the server when ctx ends. It does not survive the server's death,
// and it is not repeated; finished steps are in the server's cache.
func (c *Client) BuildTemplate(ctx context.Context, spec TemplateSpec, log func(BuildLog)) (TemplateBuild, error) {
	id, err := c.startBuild(ctx, spec)
	if err != nil {
		return TemplateBuild{}, err
	}
	var done *tendv1.TemplateBuild
	var next uint32
	ended := connect.NewError(connect.CodeUnavailable, errors.New("the server ended the log of a build without its end"))
	err = c.repeat(ctx, "follow build", never, func(a *attempts) error {
		req := &tendv1.FollowBuildRequest{Build: id, From: next}
		return receive(ctx, c, c.sandboxes.FollowBuild, req, ended, func(m *tendv1.FollowBuildResponse) error {
			a.progress()
			for _, l := range m.GetLogs() {
				if log != nil {
					log(BuildLog{Time: tendpb.ToTime(l.GetTime()), Level: tendpb.CleanName(l.GetLevel()), Message: tendpb.CleanText(l.GetMessage()),
						Step: tendpb.CleanName(l.GetStep())})
				}
			}
			if next = m.GetNext(); m.GetBuild() != nil {
				done = m.GetBuild()
				return io.EOF
			}
			return nil
		})
	})
	switch {
	case err != nil:
		return TemplateBuild{ID: id}, err
	case !done.GetReady():
		return TemplateBuild{ID: id}, &BuildError{tendpb.CleanName(done.GetFailedStep()), tendpb.CleanText(done.GetReason())}
	}
	return TemplateBuild{ID: id, TemplateID: tendpb.CleanName(done.GetTemplateId()), Name: tendpb.CleanName(done.GetName()),
		Tags: done.GetTags()}, nil
}

func (c *Client) startBuild(ctx context.Context, spec TemplateSpec) (id string, err error) {
	first := &tendv1.BuildTemplateRequest{Spec: spec.message()}
	if err := sendable("spec", first); err != nil {
		return "", err
	}
	for i, s := range spec.Steps {
		if (s.Files != nil) != (s.Kind == "COPY") {
			return "", &process.InvalidError{Field: fmt.Sprintf("steps[%d].files", i), Reason: "is for COPY, and each COPY needs it"}
		}
	}
	if err := c.needsSandboxes(ctx); err != nil {
		return "", err
	}
	ctx, cancel := c.stream(ctx)
	defer cancel(nil)
	stream := c.sandboxes.BuildTemplate(ctx)
	err = stream.Send(first)
	files := make([]func(io.Writer) error, 0, len(spec.Steps)+1)
	if spec.Dockerfile != nil {
		files = append(files, spec.Dockerfile.Context)
	}
	for i := range spec.Steps {
		files = append(files, spec.Steps[i].Files)
	}
	for i, write := range files {
		if err != nil || write == nil {
			continue
		}
		w := &pieceWriter{step: uint32(i), stream: stream}
		if err = write(w); err != nil && w.err == nil {
			cancel(err) // half of the files must not look whole
			_, _ = stream.CloseAndReceive()
			return "", err
		}
		err = w.err
	}
	resp, err := stream.CloseAndReceive() // also says why a piece was not taken
	if err != nil {
		return "", knownCall(c.domainError(ctx, err), "is")
	}
	return resp.Msg.GetBuild(), nil
}

// pieceWriter sends the files of a step.
type pieceWriter struct {
	step   uint32
	stream *connect.ClientStreamForClient[tendv1.BuildTemplateRequest, tendv1.BuildTemplateResponse]
	err    error
}

func (w *pieceWriter) Write(b []byte) (int, error) {
	for sent := 0; sent < len(b); {
		n := min(len(b)-sent, writePiece)
		if w.err = w.stream.Send(&tendv1.BuildTemplateRequest{Step: w.step, Data: b[sent : sent+n]}); w.err != nil {
			return sent, w.err
		}
		sent += n
	}
	return len(b), nil
}

func (s *TemplateSpec) message() *tendv1.TemplateSpec {
	m := &tendv1.TemplateSpec{
		Name: s.Name, Tags: s.Tags, From: s.From, FromDir: s.FromDir, FromImage: s.FromImage, Start: s.Start, Ready: s.Ready, Force: s.Force,
		Size: s.Size.message(),
	}
	if d := s.Dockerfile; d != nil {
		m.Dockerfile = &tendv1.Dockerfile{Text: d.Text, Target: d.Target, Args: d.Args, Secrets: d.Secrets}
	}
	for _, step := range s.Steps {
		m.Steps = append(m.Steps, &tendv1.TemplateStep{Kind: step.Kind, Args: step.Args})
	}
	return m
}
