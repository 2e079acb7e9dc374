package playbook

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"time"

	repository "github.com/tend-run/tend/internal/heal/git"
)

const (
	gitTimeout = 20 * time.Second
	maxGitOut  = 16 << 20 // bytes
)

// git reads the index and the objects of the project's repository, as package git of the healer
// runs it: no program runs that the repository's configuration names.
type git struct {
	ctx     context.Context // of the one Match
	root    string
	opened  bool
	repo    *repository.Repository // nil: there is none that may be used
	read    bool
	missing map[string]bool
}

// open finds the repository, once.
func (g *git) open() *repository.Repository {
	if !g.opened {
		ctx, cancel := context.WithTimeout(g.ctx, gitTimeout)
		defer cancel()
		g.repo, _ = repository.Open(ctx, g.root) // without one nothing is tracked
		g.opened = true
	}
	return g.repo
}

// out runs git in the root. ok is false if it fails, and if there is no repository.
func (g *git) out(args ...string) (out []byte, ok bool) {
	out, status := g.outcome(args...)
	return out, status == 0
}

// outcome runs git in the root; the status is -1 if it could not be run, or said too much.
func (g *git) outcome(args ...string) (out []byte, status int) {
	ctx, cancel := context.WithTimeout(g.ctx, gitTimeout)
	defer cancel()
	r := g.open()
	if r == nil {
		return nil, -1
	}
	return outcome(ctx, r.CommandIn(ctx, g.root, []string{"GIT_LITERAL_PATHSPECS=1"}, args...))
}

func outcome(ctx context.Context, cmd *exec.Cmd) (out []byte, status int) {
	var b limited
	cmd.Stdout = &b
	err := cmd.Run()
	switch {
	case cmd.ProcessState == nil || b.over || ctx.Err() != nil:
		return nil, -1
	case err != nil:
		return b.Bytes(), cmd.ProcessState.ExitCode()
	}
	return b.Bytes(), 0
}

// differ compares two files of a directory that is in no repository.
func differ(ctx context.Context, dir, a, b string) []byte {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	cmd, err := repository.Outside(ctx, dir, "diff", "--no-index", "--no-ext-diff", "--no-textconv", "--no-color", "--no-prefix", "--", a, b)
	if err != nil {
		return nil
	}
	out, _ := outcome(ctx, cmd) // it ends with 1 where they differ
	return out
}

// limited takes at most maxGitOut bytes.
type limited struct {
	bytes.Buffer
	over bool
}

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxGitOut {
		l.over = true
		return len(p), nil
	}
	return l.Buffer.Write(p)
}

// deleted are the files that git tracks and that are gone, though nobody told git: paths
// below the root.
func (g *git) deleted() map[string]bool {
	if g.read {
		return g.missing
	}
	g.read, g.missing = true, map[string]bool{}
	out, _ := g.out("ls-files", "--deleted", "-z")
	for _, name := range strings.Split(string(out), "\x00") {
		if name != "" {
			g.missing[name] = true
		}
	}
	return g.missing
}

// tracks reports whether git tracks a file, or something in a directory. With no
// repository nothing is tracked.
func (g *git) tracks(rel string) bool {
	out, ok := g.out("ls-files", "-z", "--", rel)
	return ok && len(out) > 0
}

// ignored reports whether .gitignore says so of a path.
func (g *git) ignored(rel string) bool {
	_, ok := g.out("check-ignore", "-q", "--no-index", "--", rel)
	return ok
}

// tracked returns the tracked files whose names end with one of the suffixes.
func (g *git) tracked(suffixes ...string) (files []string) {
	out, _ := g.out("ls-files", "-z")
	for _, name := range strings.Split(string(out), "\x00") {
		for _, s := range suffixes {
			if strings.HasSuffix(name, s) {
				files = append(files, name)
				break
			}
		}
	}
	return files
}

// staged returns a file as the index has it.
func (g *git) staged(rel string) ([]byte, bool) { return g.out("cat-file", "blob", ":./"+rel) }

// head returns a file as HEAD has it, unfiltered.
func (g *git) head(rel string) ([]byte, bool) { return g.out("cat-file", "blob", "HEAD:./"+rel) }

// repository reports whether there is one.
func (g *git) repository() bool { return g.open() != nil }
