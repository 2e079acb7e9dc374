package cli

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/files"
	"github.com/tend-run/tend/internal/sandbox/template"
	"github.com/tend-run/tend/sdk/go"
)

// buildFile is the build file of a directory.
const buildFile = "tend.template"

type templateCmd struct {
	Build templateBuildCmd `cmd:"" signals:"int,term,hup" help:"Build a template from a directory with a build file."`
	Ls    templateLsCmd    `cmd:"" aliases:"list" help:"List templates."`
	Rm    templateRmCmd    `cmd:"" aliases:"remove,delete" help:"Remove templates; sandboxes created from them stay."`
}

type templateBuildCmd struct {
	Name        string   `short:"t" name:"name" aliases:"tag" placeholder:"NAME[:TAG]" help:"The name of the template. Default: that of the directory."`
	File        string   `short:"f" placeholder:"FILE" help:"The build file or Dockerfile. Default: tend.template in the directory, else Dockerfile. A file is a Dockerfile if its name begins or ends so, as dev.Dockerfile."`
	Target      string   `placeholder:"STAGE" help:"The stage of a Dockerfile to build. Default: the last."`
	BuildArg    []string `name:"build-arg" placeholder:"NAME[=VALUE]" help:"Set an ARG of a Dockerfile; without a value, to that of the variable here."`
	Secret      []string `placeholder:"id=NAME,src=FILE" help:"A file, or by env=VARIABLE the value of a variable, for RUN --mount=type=secret. No layer and no log has it."`
	Force       bool     `aliases:"no-cache" help:"Take no step from the cache."`
	Quiet       bool     `short:"q" help:"Print only the name."`
	Memory      string   `short:"m" placeholder:"SIZE" help:"Memory limit of sandboxes created from it."`
	CPUs        float64  `name:"cpus" placeholder:"N" help:"CPU limit of sandboxes created from it."`
	Packages    []string `placeholder:"PACKAGE" help:"With code-interpreter: install this package of PyPI, too, as 'plotly>=6,<7'. It stays when tend builds the template again."`
	NpmPackages []string `name:"npm-packages" placeholder:"PACKAGE" help:"The same of npm, for JavaScript and TypeScript, as zod@4."`
	Dir         string   `arg:"" complete:"dirs" help:"The directory, or a tar (or tar.gz) of it; or code-interpreter: the template that E2B's code interpreter asks for."`
}

// buildFacts is a template that was built, as JSON.
type buildFacts struct {
	ID    string   `json:"id"`
	Name  string   `json:"name"`
	Tags  []string `json:"tags"`
	Build string   `json:"build"`
}

func (c *templateBuildCmd) Run(ctx context.Context, inv *invocation) error {
	spec, own, err := c.own()
	if err != nil {
		return err
	}
	if own {
		d, err := inv.connectOrStart(ctx)
		if err != nil {
			return err
		}
		return c.build(ctx, inv, d, spec)
	}
	dir, cleanup, err := c.directory()
	if err != nil {
		return err
	}
	defer cleanup()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	d, err := inv.connectOrStart(ctx)
	if err != nil {
		return err
	}
	if spec, err = c.spec(inv.environ(), root, dir, d.local); err != nil {
		return err
	}
	return c.build(ctx, inv, d, spec)
}

// build builds a template, and shows the log of it.
func (c *templateBuildCmd) build(ctx context.Context, inv *invocation, d *daemon, spec tend.TemplateSpec) error {
	bar := inv.fetching("send the files of "+spec.Name, c.Quiet)
	counts := func(files *func(io.Writer) error) {
		if write := *files; write != nil {
			*files = func(w io.Writer) error { return write(&counted{bar: bar, Writer: w}) }
		}
	}
	for i := range spec.Steps {
		counts(&spec.Steps[i].Files)
	}
	if spec.Dockerfile != nil {
		counts(&spec.Dockerfile.Context)
	}
	built, err := d.BuildTemplate(ctx, spec, func(l tend.BuildLog) {
		switch {
		case c.Quiet:
		case inv.flags.JSON:
			// if this fails, no reader is left
			_ = printJSONLine(inv.errs, map[string]any{"time": l.Time.UTC(), "level": l.Level, "step": l.Step, "message": l.Message})
		default:
			bar.line(l.Message)
		}
	})
	bar.end()
	if err != nil {
		return about(spec.Name, err)
	}
	return inv.answer(printJSON, buildFacts{built.TemplateID, built.Name, notNull(built.Tags), built.ID}, built.Name)
}

// directory is where the build file and what it copies are; a tar is unpacked first.
func (c *templateBuildCmd) directory() (dir string, cleanup func(), err error) {
	info, err := os.Stat(c.Dir)
	if err != nil || info.IsDir() {
		return c.Dir, func() {}, err
	}
	f, err := os.Open(c.Dir)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	r, err := files.Gunzip(f)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", c.Dir, err)
	}
	if dir, err = os.MkdirTemp("", "tend-build-"); err != nil {
		return "", nil, err
	}
	cleanup = func() { _ = os.RemoveAll(dir) }
	if err = (&unpacker{target: dir, tree: true, most: maxContext}).unpack(r); err != nil {
		cleanup()
		return "", nil, fmt.Errorf("%s: %w", c.Dir, err)
	}
	return dir, cleanup, nil
}

// maxContext bounds what a tar with a build file unpacks to, in bytes.
const maxContext = 8 << 30

func (c *templateBuildCmd) spec(environ []string, root *os.Root, dir string, local bool) (s tend.TemplateSpec, err error) {
	s = tend.TemplateSpec{Force: c.Force}
	name, tag, tagged := strings.Cut(c.Name, ":")
	if name == "" {
		abs, err := filepath.Abs(c.Dir)
		if err != nil {
			return s, err
		}
		base, _, _ := strings.Cut(filepath.Base(abs), ".")
		name = strings.ToLower(base)
	}
	if s.Name = name; tagged {
		s.Tags = []string{tag}
	}
	if err := c.sized(&s); err != nil {
		return s, err
	}
	if file := c.dockerfile(root, dir); file != "" {
		return s, c.docker(&s, environ, root, file)
	}
	if c.Target != "" || len(c.BuildArg) > 0 || len(c.Secret) > 0 {
		return s, usageError("--target, --build-arg and --secret are for a Dockerfile, and there is none; name it by -f")
	}
	shown := c.File
	read := func() ([]byte, error) { return limited(os.Open(c.File)) }
	if c.File == "" {
		shown = filepath.Join(c.Dir, buildFile)
		read = func() ([]byte, error) { return limited(root.Open(buildFile)) }
	}
	text, err := read()
	if errors.Is(err, fs.ErrNotExist) {
		return s,
			fmt.Errorf("there is no build file %s; write one, such as \"FROM base\" and \"RUN make\" on lines of their own, or name it by -f", shown)
	}
	if err != nil {
		return s, err
	}
	file, err := template.Parse(strings.TrimPrefix(string(text), "\ufeff"))
	if err != nil {
		return s, fmt.Errorf("%s: %w", shown, err)
	}
	switch {
	case file.FromDir != "" && !local:
		return s, fmt.Errorf("%s: FROM dir: is a directory of the daemon's machine, and this may be another one", shown)
	case file.FromDir != "":
		s.FromDir = file.FromDir
		if !filepath.IsAbs(s.FromDir) {
			if s.FromDir, err = filepath.Abs(filepath.Join(dir, s.FromDir)); err != nil {
				return s, err
			}
		}
	}
	s.From, s.FromImage, s.Start, s.Ready = file.From, file.FromImage, file.Start, file.Ready
	for _, step := range file.Steps {
		out := tend.TemplateStep{Kind: step.Kind, Args: step.Args}
		if step.Kind == "COPY" {
			source := step.Args[0]
			if err := selected(root, source, func(string) error { return nil }); err != nil {
				return s, fmt.Errorf("%s, line %d: COPY %s: %w", shown, step.Line, source, err)
			}
			out.Files = func(w io.Writer) error { return packSource(root, source, w) }
		}
		s.Steps = append(s.Steps, out)
	}
	return s, nil
}

// sized sets the size of sandboxes.
func (c *templateBuildCmd) sized(s *tend.TemplateSpec) (err error) {
	s.Size.CPUs = c.CPUs
	if s.Size.Memory, err = sizeOf("--memory", c.Memory); err != nil {
		return err
	}
	if c.CPUs < 0 {
		return usageError("--cpus is not negative; 0 is no limit")
	}
	return nil
}

// limited reads a build file, which is not large.
func limited(f *os.File, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, template.MaxFile+1))
	if err == nil && len(b) > template.MaxFile {
		err = fmt.Errorf("%s has more than %d bytes", f.Name(), template.MaxFile)
	}
	return b, err
}

// selected calls do for what a source of COPY stands for.
func selected(root *os.Root, source string, do func(name string) error) error {
	source = path.Clean(source)
	names := []string{source}
	if strings.ContainsAny(source, "*?[") {
		entries, err := fs.ReadDir(root.FS(), path.Dir(source))
		if err != nil {
			return err
		}
		names = nil
		for _, e := range entries {
			if ok, err := path.Match(path.Base(source), e.Name()); err != nil {
				return err
			} else if ok {
				names = append(names, path.Join(path.Dir(source), e.Name()))
			}
		}
		if len(names) == 0 {
			return errors.New("nothing matches")
		}
	}
	for _, name := range names {
		if _, err := root.Stat(name); err != nil { // no link leads out of the directory
			return err
		}
		if err := do(name); err != nil {
			return err
		}
	}
	return nil
}

// packSource writes the tar of a source, which is the same whenever the files are, so that a
// step is found in the cache.
func packSource(root *os.Root, source string, w io.Writer) error {
	out := bufio.NewWriterSize(w, 256<<10)
	t := tar.NewWriter(out)
	p := &packer{root: root, exact: true}
	err := selected(root, source, func(name string) error { return p.tree(context.Background(), t, name) })
	if err != nil {
		return err
	}
	return errors.Join(t.Close(), out.Flush())
}

// templateFacts is a template as JSON.
type templateFacts struct {
	ID       string           `json:"id"`
	Name     string           `json:"name"`
	Tags     []string         `json:"tags"`
	Build    string           `json:"build"`
	Size     sandboxSizeFacts `json:"size"`
	Start    string           `json:"start"`
	Ready    string           `json:"ready"`
	Bytes    int64            `json:"bytes"`
	Created  time.Time        `json:"created"`
	Updated  time.Time        `json:"updated"`
	LastUsed *time.Time       `json:"last_used"` // null: never
	Used     int64            `json:"used"`
}

func templateFactsOf(t *tend.TemplateInfo) templateFacts {
	return templateFacts{
		t.ID, t.Name, notNull(t.Tags), t.Build, sandboxSizeFacts(t.Size), t.Start, t.Ready, t.Bytes,
		t.Created.UTC(), t.Updated.UTC(), timeOrNull(t.LastUsed), t.Used,
	}
}

type templateLsCmd struct {
	Quiet bool `short:"q" help:"Print only names, one on each line."`
}

func (c *templateLsCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	all, err := d.Templates(ctx)
	if err != nil {
		return err
	}
	rows := [][]string{{"NAME", "TAGS", "SIZE", "AGE", "USED"}}
	for i := range all {
		t := &all[i]
		slices.Sort(t.Tags)
		rows = append(rows, []string{printable(t.Name), printable(strings.Join(t.Tags, ",")), sizeText(t.Bytes),
			age(time.Since(t.Updated)), fmt.Sprint(t.Used)})
	}
	return inv.printList(mapped(all, templateFactsOf), rows, c.Quiet)
}

type templateRmCmd struct {
	Names []string `arg:"" name:"template" complete:"template" help:"The templates."`
}

func (c *templateRmCmd) Ask(ctx context.Context, inv *invocation, d *daemon) error {
	return each(c.Names, func(name string) error {
		if err := d.DeleteTemplate(ctx, name); err != nil {
			return &keyError{explainTemplate(name, err), err}
		}
		return inv.answer(printJSONLine, map[string]string{"name": name}, name)
	})
}

func explainTemplate(name string, err error) string {
	return fmt.Sprintf("%.80s: %v (tend template ls lists them)", printable(name), err)
}
