package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Repository is a git repository with a work tree that holds a project.
type Repository struct {
	Top    string // the top of the work tree
	Dir    string // its git directory
	Prefix string // of the project below the top: "" or "a/b/"
	SHA256 bool   // names of objects

	bin, path string // the git program, and the PATH that it has
	checked   bool   // Top is known
	off       []string
	drivers   map[string]bool // filters that have a program
	as        *user           // with whose rights git is run; nil: those of this process
}

// openTime is how long the first git may take that reads the configuration. A variable for a test.
var openTime = 30 * time.Second

// Open finds the repository of a project. The root has no links. The error completes
// "nothing is done with git: …": there is no repository, or none that may be used.
func Open(ctx context.Context, root string) (*Repository, error) {
	bin, err := exec.LookPath("git")
	if err != nil {
		return nil, errors.New("there is no git program")
	}
	p, err := find(root)
	if err != nil {
		return nil, err
	}
	uid, err := p.ownerOf(root)
	if err != nil {
		return nil, err
	}
	r := &Repository{Top: p.top, Dir: p.dir, bin: bin, path: searched(bin)}
	if uid != os.Geteuid() {
		if r.as, err = userOf(uid); err != nil {
			return nil, fmt.Errorf("git cannot be run as uid %d, the owner of its git repository: %w", uid, err)
		}
	}
	first, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	out, err := r.Run(first, nil, nil, "rev-parse", "--is-inside-work-tree", "--absolute-git-dir", "--show-toplevel", "--show-object-format")
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	switch {
	case first.Err() != nil && ctx.Err() == nil:
		return nil, fmt.Errorf("git stands still for %v there: its configuration may include a FIFO", openTime)
	case err != nil && r.as != nil:
		return nil, fmt.Errorf("git fails as uid %d, the owner of its git repository, who must be able to reach it: %w", uid, err)
	case err != nil || len(lines) != 4 || lines[0] != "true":
		return nil, ErrNone
	case lines[2] != p.top: // core.worktree
		return nil, errors.New("its git repository has its work tree elsewhere")
	}
	r.Dir, r.SHA256, r.checked = lines[1], lines[3] == "sha256", true
	if rel, err := filepath.Rel(r.Top, root); err != nil || rel != "." && !filepath.IsLocal(rel) {
		return nil, errors.New("its git repository has its work tree elsewhere")
	} else if rel != "." {
		r.Prefix = filepath.ToSlash(rel) + "/"
	}
	if err := r.Disarm(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

func searched(bin string) string {
	return filepath.Dir(bin) + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
}

// Others reports whether the repository belongs to another user than that of this process, so
// that what is done in its directory is done by [Repository.As].
func (r *Repository) Others() bool { return r.as != nil }

// Disarm turns off the programs that the repository's configuration names now by names of its
// own: git runs filters whenever it writes an index, to compare files that have just changed.
// Without them it leaves the comparison to the user's next git.
func (r *Repository) Disarm(ctx context.Context) error {
	r.off = nil
	forms := make([]string, len(programs))
	for i, p := range programs {
		forms[i] = p.form
	}
	out, err := r.Run(ctx, nil, nil, "config", "-z", "--name-only", "--get-regexp", strings.Join(forms, "|"))
	if err != nil && ExitCode(err) != 1 {
		return err
	}
	var pairs [][2]string
	r.drivers = map[string]bool{}
	for key := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if key == "" {
			continue
		}
		value := ""
		for _, p := range programs {
			if matches(p.form, key) {
				value = p.value
				break
			}
		}
		if strings.HasPrefix(key, "filter.") {
			r.drivers[driverOf(key)] = true
		}
		pairs = append(pairs, [2]string{key, value})
	}
	r.off = overrides(pairs)
	return nil
}

// Command is a git in the top of the work tree.
func (r *Repository) Command(ctx context.Context, env []string, args ...string) *exec.Cmd {
	return r.CommandIn(ctx, r.Top, env, args...)
}

// CommandIn is a git in a directory of the work tree.
func (r *Repository) CommandIn(ctx context.Context, dir string, env []string, args ...string) *exec.Cmd {
	return r.command(ctx, dir, unconverted, env, args)
}

func (r *Repository) command(ctx context.Context, dir string, more, env, args []string) *exec.Cmd {
	var all []string
	for _, s := range slices.Concat(settings, more) {
		all = append(all, "-c", s)
	}
	cmd := exec.CommandContext(ctx, r.bin, append(all, args...)...)
	cmd.Dir = dir
	cmd.Env = append(r.environment(), env...)
	if r.as != nil {
		r.as.run(cmd)
	}
	return cmd
}

// Outside is a git in a directory that is in no repository, whatever is above it.
func Outside(ctx context.Context, dir string, args ...string) (*exec.Cmd, error) {
	bin, err := exec.LookPath("git")
	if err != nil {
		return nil, err
	}
	r := &Repository{Dir: "/nonexistent/.git", bin: bin, path: searched(bin)}
	return r.CommandIn(ctx, dir, nil, args...), nil
}

// Run runs git in the top of the work tree and returns what it writes.
func (r *Repository) Run(ctx context.Context, env []string, stdin []byte, args ...string) ([]byte, error) {
	return output(r.Command(ctx, env, args...), stdin, args[0])
}

// What is kept at most of what git writes: a few bytes of a repository may stand for any number.
const (
	maxOutput = 256 << 20
	maxErrors = 64 << 10
)

func output(cmd *exec.Cmd, stdin []byte, verb string) ([]byte, error) {
	cmd.Stdin = bytes.NewReader(stdin)
	out, stderr := &bounded{most: maxOutput, ends: true}, &bounded{most: maxErrors}
	cmd.Stdout, cmd.Stderr = out, stderr
	err := cmd.Run()
	if out.over {
		return nil, fmt.Errorf("git %s: it writes more than %d MiB", verb, maxOutput>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("git %s: %w: %.500s", verb, err, bytes.TrimSpace(stderr.data))
	}
	return out.data, nil
}

// bounded keeps what is written, and is over if that was too much: then the rest is left out, or
// ends its writer.
type bounded struct {
	data []byte
	most int
	ends bool
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.over = b.over || len(b.data)+len(p) > b.most; !b.over {
		b.data = append(b.data, p...)
	} else if b.ends {
		return 0, errors.New("it is too much")
	}
	return len(p), nil
}

// ExitCode is the status that git ended with, or -1.
func ExitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}
