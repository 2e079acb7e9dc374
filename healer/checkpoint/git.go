package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// repository is a git repository with a work tree that holds the root. Git is run
// without the user's configuration, and with what could run programs of the user's or of the
// repository's turned off: hooks, filters, monitors, signatures, the network.
type repository struct {
	bin    string   // the git program
	top    string   // the top of the work tree
	dir    string   // its git directory
	prefix string   // of the root below the top: "" or "a/b/"
	sha256 bool     // names of objects
	off    []string // the environment that turns filters off
}

// openRepository returns nil and the reason if there is no repository that can be used.
func openRepository(ctx context.Context, root string) (*repository, string) {
	bin, err := exec.LookPath("git")
	if err != nil {
		return nil, "there is no git program"
	}
	r := &repository{bin: bin, top: root}
	out, err := r.run(ctx, nil, nil, "rev-parse", "--is-inside-work-tree", "--absolute-git-dir", "--show-toplevel", "--show-object-format")
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if err != nil || len(lines) != 4 || lines[0] != "true" {
		return nil, "it is in no git repository"
	}
	r.dir, r.top, r.sha256 = lines[1], lines[2], lines[3] == "sha256"
	rel, err := filepath.Rel(r.top, root)
	if err != nil || rel != "." && !filepath.IsLocal(rel) {
		return nil, "its git repository has its work tree elsewhere"
	}
	if rel != "." {
		r.prefix = filepath.ToSlash(rel) + "/"
		if _, err := r.run(ctx, nil, nil, "check-ignore", "-q", "--", "./"+rel); err == nil {
			return nil, "the git repository that it is in ignores it"
		}
	}
	if err := r.disarm(ctx); err != nil {
		return nil, err.Error()
	}
	return r, ""
}

// disarm turns off the filters that the repository's configuration has now: git runs them
// whenever it writes an index, to compare files that have just changed. Without them it
// leaves the comparison to the user's next git.
func (r *repository) disarm(ctx context.Context) error {
	r.off = nil
	out, err := r.run(ctx, nil, nil, "config", "-z", "--name-only", "--get-regexp", `^filter\..*\.(clean|smudge|process|required)$`)
	if err != nil && exitCode(err) != 1 {
		return err
	}
	keys := records(out)
	for i, key := range keys {
		value := ""
		if strings.HasSuffix(key, ".required") {
			value = "false"
		}
		r.off = append(r.off, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, key), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, value))
	}
	if len(keys) > 0 {
		r.off = append(r.off, fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(keys)))
	}
	return nil
}

// settings override those of the repository and of the user.
var settings = []string{
	"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false", "core.attributesFile=/dev/null",
	"core.autocrlf=false", "core.safecrlf=false", "core.splitIndex=false", "core.logAllRefUpdates=true", "core.quotePath=true",
	"commit.gpgSign=false", "gc.auto=0", "maintenance.auto=false", "protocol.allow=never", "submodule.recurse=false",
	"diff.external=", "safe.directory=*", "fastimport.unpackLimit=100", "i18n.commitEncoding=utf-8", "index.sparse=false", "core.pager=cat",
}

func (r *repository) command(ctx context.Context, env []string, args ...string) *exec.Cmd {
	all := []string{"-C", r.top, "--no-replace-objects"}
	if args[0] == "ls-files" {
		all = append(all, "--literal-pathspecs")
	}
	for _, s := range settings {
		all = append(all, "-c", s)
	}
	cmd := exec.CommandContext(ctx, r.bin, append(all, args...)...)
	cmd.Env = append([]string{
		"PATH=" + filepath.Dir(r.bin) + ":/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent", "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_SYSTEM=" + os.DevNull, "GIT_ATTR_NOSYSTEM=1",
		"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none", "GIT_EDITOR=false", "GIT_PAGER=cat",
		"GIT_AUTHOR_NAME=tend healer", "GIT_AUTHOR_EMAIL=healer@tend.invalid", "GIT_COMMITTER_NAME=tend healer", "GIT_COMMITTER_EMAIL=healer@tend.invalid",
	}, slices.Concat(r.off, env)...)
	return cmd
}

// run runs git in the top of the work tree and returns what it writes.
func (r *repository) run(ctx context.Context, env []string, stdin []byte, args ...string) ([]byte, error) {
	cmd := r.command(ctx, env, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(stderr.String())
		return nil, fmt.Errorf("git %s: %w: %.500s", args[0], err, text)
	}
	return out.Bytes(), nil
}

// exitCode is the status that git ended with, or -1.
func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

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

// sweep removes the reports that fast-import has left since a time: it makes one when the
// Take that feeds it is killed.
func (r *repository) sweep(since time.Time) {
	reports, _ := filepath.Glob(filepath.Join(r.dir, "fast_import_crash_*"))
	for _, report := range reports {
		if info, err := os.Lstat(report); err == nil && !info.ModTime().Before(since) {
			_ = os.Remove(report) // it does no harm
		}
	}
}

// refFile opens the directory that has a reference as a file, by its name. Whoever owns the
// repository may put links there; none leads out.
func (r *repository) refFile(ctx context.Context, ref string) (*os.Root, error) {
	out, err := r.run(ctx, nil, nil, "rev-parse", "--git-path", ref)
	if err != nil {
		return nil, err
	}
	path := strings.TrimSuffix(string(out), "\n")
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.top, path)
	}
	dir, ok := strings.CutSuffix(path, "/"+ref)
	if !ok {
		return nil, fmt.Errorf("git has %s at %s", ref, path)
	}
	return os.OpenRoot(dir)
}

// unlock removes the lock that a git which was killed has left of a reference. It is one of
// a checkpoint, which nobody else changes.
func (r *repository) unlock(ctx context.Context, ref string) error {
	root, err := r.refFile(ctx, ref)
	if err != nil {
		return err
	}
	defer root.Close()
	return remove(root, ref+".lock")
}

// remove removes what may not be there.
func remove(root *os.Root, name string) error {
	if err := root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeRef removes a reference of a checkpoint. Where it is a file it needs no git, which would
// lock all packed references meanwhile, also if it has none to change: that lock stays if it is
// killed, and stops the user's own git.
func (r *repository) removeRef(ctx context.Context, ref string) error {
	root, err := r.refFile(ctx, ref)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := errors.Join(remove(root, ref+".lock"), remove(root, ref)); err != nil {
		return err
	}
	_ = root.Remove(path.Dir(ref)) // unless there are others
	_ = root.Remove(path.Dir(path.Dir(ref)))
	if _, err := r.run(ctx, nil, nil, "rev-parse", "-q", "--verify", ref); exitCode(err) == 1 {
		return nil
	}
	_, err = r.run(ctx, nil, nil, "update-ref", "-d", ref) // the user's git has packed it
	return err
}

func (r *repository) write(ctx context.Context, data []byte) (string, error) {
	out, err := r.run(ctx, nil, data, "hash-object", "-w", "--no-filters", "--stdin")
	return strings.TrimSpace(string(out)), err
}

func (r *repository) read(ctx context.Context, oid string) ([]byte, error) {
	return r.run(ctx, nil, nil, "cat-file", "blob", oid)
}
