package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tend-run/tend/internal/heal/git"
)

// repository is a git repository with a work tree that holds the root, as package git runs it.
type repository struct {
	*git.Repository
	top    string // the top of the work tree
	dir    string // its git directory
	prefix string // of the root below the top: "" or "a/b/"
	sha256 bool   // names of objects
}

// openRepository returns nil and the reason if there is no repository that can be used.
func openRepository(ctx context.Context, root string) (*repository, string) {
	found, err := git.Open(ctx, root)
	if err != nil {
		return nil, err.Error()
	}
	r := &repository{found, found.Top, found.Dir, found.Prefix, found.SHA256}
	if r.prefix != "" {
		if _, err := r.run(ctx, nil, nil, "check-ignore", "-q", "--", "./"+strings.TrimSuffix(r.prefix, "/")); err == nil {
			return nil, "the git repository that it is in ignores it"
		}
	}
	return r, ""
}

// run runs git in the top of the work tree and returns what it writes.
func (r *repository) run(ctx context.Context, env []string, stdin []byte, args ...string) ([]byte, error) {
	if args[0] == "ls-files" {
		env = append([]string{"GIT_LITERAL_PATHSPECS=1"}, env...)
	}
	return r.Run(ctx, env, stdin, args...)
}

func exitCode(err error) int { return git.ExitCode(err) }

// records splits what git writes with -z.
func records(b []byte) []string {
	s := strings.TrimSuffix(string(b), "\x00")
	if s == "" {
		return nil
	}
	return strings.Split(s, "\x00")
}

// blob is an entry of a tree or of the index.
type blob struct {
	mode string
	oid  string
}

// head returns the commit and its files by path below the top; "" if there is no commit.
func (r *repository) head(ctx context.Context) (commit string, files map[string]blob, err error) {
	out, err := r.run(ctx, nil, nil, "rev-parse", "-q", "--verify", "HEAD^{commit}")
	if exitCode(err) == 1 {
		return "", nil, nil
	} else if err != nil {
		return "", nil, err
	}
	commit = strings.TrimSpace(string(out))
	if out, err = r.run(ctx, nil, nil, "ls-tree", "-r", "-z", "--full-tree", commit); err != nil {
		return "", nil, err
	}
	files = map[string]blob{}
	for _, rec := range records(out) {
		meta, path, ok := strings.Cut(rec, "\t")
		f := strings.Fields(meta)
		if ok && len(f) == 3 {
			files[path] = blob{f[0], f[2]}
		}
	}
	return commit, files, nil
}

// indexed is an entry of the index.
type indexed struct {
	blob
	unmerged bool
	hidden   bool // assume-unchanged or skip-worktree
}

func (r *repository) index(ctx context.Context, env ...string) (map[string]indexed, error) {
	out, err := r.run(ctx, env, nil, "ls-files", "-s", "-v", "-z", "--full-name")
	if err != nil {
		return nil, err
	}
	files := map[string]indexed{}
	for _, rec := range records(out) {
		meta, path, ok := strings.Cut(rec, "\t")
		f := strings.Fields(meta) // tag mode oid stage
		if ok && len(f) == 4 {
			files[path] = indexed{blob{f[1], f[2]}, f[3] != "0", f[0] != "H" && f[0] != "M"}
		}
	}
	return files, nil
}

// ignored returns what git ignores below the root, relative to it; directories
// end with a slash.
func (r *repository) ignored(ctx context.Context) (map[string]bool, error) {
	args := []string{"ls-files", "-o", "-i", "--exclude-standard", "--directory", "-z", "--full-name"}
	if r.prefix != "" {
		args = append(args, "--", strings.TrimSuffix(r.prefix, "/"))
	}
	out, err := r.run(ctx, nil, nil, args...)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, path := range records(out) {
		if rel, ok := strings.CutPrefix(path, r.prefix); ok && rel != "" {
			found[rel] = true
		}
	}
	return found, nil
}

// busy says what git is in the middle of, or "".
func (r *repository) busy() string {
	for file, what := range map[string]string{
		"MERGE_HEAD": "a merge", "CHERRY_PICK_HEAD": "a cherry-pick", "REVERT_HEAD": "a revert", "rebase-merge": "a rebase",
		"rebase-apply": "a rebase", "BISECT_LOG": "a bisect", "sequencer": "a sequence of cherry-picks or reverts",
	} {
		if _, err := os.Lstat(filepath.Join(r.dir, file)); !errors.Is(err, fs.ErrNotExist) {
			return what
		}
	}
	return ""
}

func (r *repository) write(ctx context.Context, data []byte) (string, error) {
	out, err := r.run(ctx, nil, data, "hash-object", "-w", "--no-filters", "--stdin")
	return strings.TrimSpace(string(out)), err
}

func (r *repository) read(ctx context.Context, oid string) ([]byte, error) {
	return r.run(ctx, nil, nil, "cat-file", "blob", oid)
}
