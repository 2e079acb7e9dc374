package cli

import (
	"archive/tar"
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/tend-run/tend/internal/sandbox/dockerfile"
	"github.com/tend-run/tend/sdk/go"
)

// dockerNames are the usual ones of a Dockerfile.
var dockerNames = []string{"Dockerfile", "Containerfile"}

// isDockerfile reports whether a name is that of one: Dockerfile, Dockerfile.dev, dev.Dockerfile.
func isDockerfile(name string) bool {
	name = filepath.Base(name)
	for _, usual := range dockerNames {
		begin, _, _ := strings.Cut(name, ".")
		if strings.EqualFold(begin, usual) || strings.EqualFold(filepath.Ext(name), "."+usual) {
			return true
		}
	}
	return false
}

// dockerfile finds the Dockerfile that is meant; "": none is.
func (c *templateBuildCmd) dockerfile(root *os.Root, dir string) string {
	if c.File != "" {
		if isDockerfile(c.File) {
			return c.File
		}
		return ""
	}
	if _, err := root.Lstat(buildFile); err == nil {
		return ""
	}
	for _, name := range dockerNames {
		if _, err := root.Lstat(name); err == nil {
			return filepath.Join(dir, name)
		}
	}
	return ""
}

// docker has a Dockerfile be built.
func (c *templateBuildCmd) docker(s *tend.TemplateSpec, environ []string, root *os.Root, shown string) error {
	f, err := os.Open(shown)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(f, dockerfile.MaxFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	d := &tend.Dockerfile{Text: strings.TrimPrefix(string(text), "\ufeff"), Target: c.Target}
	if d.Args, err = c.buildArgs(environ); err != nil {
		return err
	}
	if d.Secrets, err = c.secrets(environ); err != nil {
		return err
	}
	plan, err := dockerfile.Parse(d.Text, dockerfile.Options{Target: d.Target, Args: d.Args})
	if err != nil {
		return fmt.Errorf("%s: %w", shown, err)
	}
	s.Dockerfile = d
	if !plan.UsesContext() {
		return nil
	}
	ignore, err := ignored(root, shown)
	if err != nil {
		return err
	}
	d.Context = func(w io.Writer) error { return packContext(context.Background(), root, ignore, w) }
	return nil
}

func (c *templateBuildCmd) buildArgs(environ []string) (map[string]string, error) {
	all := map[string]string{}
	for _, a := range c.BuildArg {
		k, v, given := strings.Cut(a, "=")
		if k == "" {
			return nil, usageError(fmt.Sprintf("--build-arg %.80q is not NAME=VALUE, nor the NAME of a variable", a))
		}
		if !given {
			if v, given = lookup(environ, k); !given { // as if it were not there, as docker has it
				continue
			}
		}
		all[k] = v
	}
	return all, nil
}

// secrets reads the values of --secret, written as for docker.
func (c *templateBuildCmd) secrets(environ []string) (map[string][]byte, error) {
	all := map[string][]byte{}
	for _, text := range c.Secret {
		var id, src, env string
		for part := range strings.SplitSeq(text, ",") {
			k, v, _ := strings.Cut(part, "=")
			switch k {
			case "id":
				id = v
			case "src", "source":
				src = v
			case "env":
				env = v
			case "type":
			default:
				return nil, usageError(fmt.Sprintf("--secret has %.40q; id=NAME,src=FILE and id=NAME,env=VARIABLE are known", part))
			}
		}
		if id == "" || src != "" && env != "" {
			return nil, usageError("--secret is id=NAME,src=FILE or id=NAME,env=VARIABLE")
		}
		if src == "" {
			value, ok := lookup(environ, cmp.Or(env, id))
			if !ok {
				return nil, usageError(fmt.Sprintf("--secret id=%.80s: there is no variable %.80s; give a file by src=FILE", id, cmp.Or(env, id)))
			}
			all[id] = []byte(value)
			continue
		}
		value, err := os.ReadFile(src)
		if err != nil {
			return nil, fmt.Errorf("--secret id=%.80s: %w", id, err)
		}
		all[id] = value
	}
	return all, nil
}

// ignored reads what the context leaves out: the file beside the Dockerfile for it alone, or that
// of the context. nil: nothing.
func ignored(root *os.Root, file string) (*patternmatcher.PatternMatcher, error) {
	f, err := os.Open(file + ".dockerignore")
	shown := file + ".dockerignore"
	for _, name := range []string{".dockerignore", ".containerignore"} {
		if errors.Is(err, fs.ErrNotExist) {
			f, err = root.Open(name)
			shown = name
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	patterns, err := ignorefile.ReadAll(io.LimitReader(f, dockerfile.MaxFile))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown, err)
	}
	m, err := patternmatcher.New(patterns)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown, err)
	}
	return m, nil
}

// packContext writes the tar of a context. Links are links.
func packContext(ctx context.Context, root *os.Root, ignore *patternmatcher.PatternMatcher, w io.Writer) error {
	out := bufio.NewWriterSize(w, 256<<10)
	t := &treePacker{ctx: ctx, root: root, tar: tar.NewWriter(out), links: map[fileID]string{}, context: true}
	parents := map[string]patternmatcher.MatchInfo{}
	err := fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || ignore == nil || name == "." {
			return t.entry(name, e, err)
		}
		no, info, err := ignore.MatchesUsingParentResults(name, parents[filepath.Dir(name)])
		if err != nil {
			return fmt.Errorf(".dockerignore: %w", err)
		}
		if e.IsDir() {
			parents[name] = info
		}
		switch {
		case !no:
			return t.entry(name, e, nil)
		case e.IsDir() && !ignore.Exclusions(): // nothing in it comes back by '!'
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return err
	}
	return errors.Join(t.tar.Close(), out.Flush())
}
