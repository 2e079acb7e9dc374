package tend

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tend-run/tend/process"
)

// Git is a git repository in a sandbox. Each method runs the sandbox's own git, as the sandbox's user;
// one that ends with another status than 0 is a [*GitError].
type Git struct {
	processes Processes
	dir       string
}

// Git returns the repository in a directory of the sandbox, which Init or Clone makes. A path that is not
// absolute starts at the sandbox's directory.
func (s *Sandbox) Git(dir string) *Git {
	return &Git{Processes{Ensure: func(ctx context.Context) (process.Manager, error) { return s.Client(ctx) }}, dir}
}

// GitError is a git command that has failed.
type GitError struct {
	Args   []string // without the options of every command
	Code   int      // as shells report it: 128+n after signal n
	Stderr string
}

func (e *GitError) Error() string {
	return fmt.Sprintf("git %s ended with %d: %s", strings.Join(e.Args, " "), e.Code, strings.TrimSpace(e.Stderr))
}

// GitRemote says how Clone, Pull and Push reach another repository. Username and Password (or a token) are for HTTP(S): git gets
// them by its stdin, for the remote's host alone, and they are in no command line, configuration or URL. Hooks of the repository see them.
type GitRemote struct {
	Name               string // of Pull and Push; "": origin
	Branch             string // "": the remote's own, or the current one
	Depth              int    // of Clone: so many commits; 0: all
	Username, Password string
}

// GitStatus is the state of a repository's files.
type GitStatus struct {
	Branch        string // "": none is checked out
	Upstream      string // "": it has none
	Ahead, Behind int    // commits, compared with Upstream
	Files         []GitFile
}

// GitFile is one that is not as in the last commit. Staged and Unstaged are git's letters: M, A, D, R, C, T, U; ".": not
// changed, "?": git does not know the file.
type GitFile struct {
	Path             string
	From             string // its former path, of R and C
	Staged, Unstaged string
}

// Run runs git with these arguments in the repository, and returns what it has printed, at most the newest 16 MiB.
func (g *Git) Run(ctx context.Context, args ...string) (string, error) {
	return g.run(ctx, GitRemote{}, append([]string{"-C", g.dir}, args...), args)
}

// gitAuth has a shell read user name and password, and git ask it for them: for the host of the remote, and for none that
// this one redirects to.
const gitAuth = `IFS= read -r TEND_GIT_USERNAME && IFS= read -r TEND_GIT_PASSWORD && export TEND_GIT_USERNAME TEND_GIT_PASSWORD || exit
dir=. past= remote=
[ "$1" != -C ] || dir=$2
for arg; do [ -z "$past" ] || { remote=$arg; break; }; [ "$arg" != -- ] || past=1; done
f='!f() { test "$1" != get || printf "username=%s\npassword=%s\n" "$TEND_GIT_USERNAME" "$TEND_GIT_PASSWORD"; }; f'
for url in "$(git -C "$dir" ls-remote --get-url -- "$remote")" "$(git -C "$dir" remote get-url --push -- "$remote" 2>/dev/null)"; do
  host=$(printf %s "$url" | sed 's|^[^:]*://||; s|[/?#].*||; s|.*@||')
  [ -z "$host" ] || set -- -c "credential.http://$host.helper=$f" -c "credential.https://$host.helper=$f" "$@"
done
exec git -c credential.helper= "$@" </dev/null`

func (g *Git) run(ctx context.Context, r GitRemote, all, shown []string) (string, error) {
	cmd := Command("git", all...)
	if r.Username != "" || r.Password != "" {
		if strings.ContainsAny(r.Username+r.Password, "\n\x00") {
			return "", &process.InvalidError{Field: "password", Reason: "has an end of line, or user name has"}
		}
		cmd = Command("sh", append([]string{"-c", gitAuth, "sh"}, all...)...)
		cmd.Stdin = strings.NewReader(r.Username + "\n" + r.Password + "\n")
	}
	cmd.Env, cmd.MaxOutput = map[string]string{"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8"}, 16<<20
	res, err := g.processes.Run(ctx, cmd)
	if err != nil {
		return "", err
	}
	if !res.Success {
		return "", &GitError{shown, res.ExitCode, res.Stderr}
	}
	return res.Stdout, nil
}

// noPassword refuses a URL with a password in it. git takes some that are no URLs to others.
func noPassword(field, address string) error {
	_, rest, _ := strings.Cut(address, "://")
	if at := strings.IndexAny(rest, "/?#"); at >= 0 {
		rest = rest[:at]
	}
	if user, _, ok := strings.Cut(rest, "@"); ok && strings.Contains(user, ":") {
		return &process.InvalidError{Field: field, Reason: "has a password, which git would show and keep; give it as Password"}
	}
	return nil
}

// noOption refuses what git would take for an option, or for an order to force, delete or rename, in place of a branch.
func noOption(branch string) error {
	if strings.HasPrefix(branch, "-") || strings.HasPrefix(branch, "+") || strings.Contains(branch, ":") {
		return &process.InvalidError{Field: "branch", Reason: fmt.Sprintf("is %.80q; a name without - or + before it and without : is needed",
			branch)}
	}
	return nil
}

// Clone clones a repository into the directory, which must be empty or missing.
func (g *Git) Clone(ctx context.Context, from string, r GitRemote) error {
	if err := errors.Join(noPassword("url", from), noOption(r.Branch)); err != nil {
		return err
	}
	args := []string{"clone", "--quiet"}
	if r.Branch != "" {
		args = append(args, "--branch="+r.Branch)
	}
	if r.Depth != 0 {
		args = append(args, "--depth="+strconv.Itoa(r.Depth))
	}
	args = append(args, "--", from, g.dir)
	_, err := g.run(ctx, r, args, args)
	return err
}

// Init makes an empty repository in the directory, whose branch is main.
func (g *Git) Init(ctx context.Context) error {
	args := []string{"init", "--quiet", "--initial-branch=main", "--", g.dir}
	_, err := g.run(ctx, GitRemote{}, args, args)
	return err
}

// Status returns the state of the files.
func (g *Git) Status(ctx context.Context) (GitStatus, error) {
	out, err := g.Run(ctx, "status", "--porcelain=v2", "--branch", "--untracked-files=all", "-z")
	return gitStatus(out), err
}

// gitStatus reads git's format for programs, in which each part ends with NUL.
func gitStatus(out string) (s GitStatus) {
	parts := strings.Split(out, "\x00")
	for i := 0; i < len(parts); i++ {
		kind, rest, _ := strings.Cut(parts[i], " ")
		fields := map[string]int{"1": 8, "2": 9, "u": 10}[kind]
		switch f := strings.SplitN(rest, " ", fields); {
		case kind == "#":
			name, value, _ := strings.Cut(rest, " ")
			switch name {
			case "branch.head":
				s.Branch = strings.TrimPrefix(value, "(detached)")
			case "branch.upstream":
				s.Upstream = value
			case "branch.ab":
				_, _ = fmt.Sscanf(value, "+%d -%d", &s.Ahead, &s.Behind)
			}
		case kind == "?":
			s.Files = append(s.Files, GitFile{rest, "", "?", "?"})
		case fields > 0 && len(f) == fields && len(f[0]) == 2:
			file := GitFile{f[fields-1], "", f[0][:1], f[0][1:]}
			if i++; kind == "2" && i < len(parts) {
				file.From = parts[i]
			} else {
				i--
			}
			s.Files = append(s.Files, file)
		}
	}
	return s
}

// Add stages files, also those that were removed; without paths, all.
func (g *Git) Add(ctx context.Context, paths ...string) error {
	_, err := g.Run(ctx, append([]string{"add", "--all", "--"}, paths...)...)
	return err
}

// Commit commits what is staged and returns the commit's name. author and email may be empty: git's configuration has them then.
func (g *Git) Commit(ctx context.Context, message, author, email string) (string, error) {
	var args []string
	if author != "" {
		args = append(args, "-c", "user.name="+author)
	}
	if email != "" {
		args = append(args, "-c", "user.email="+email)
	}
	if _, err := g.Run(ctx, append(args, "commit", "--quiet", "--message="+message)...); err != nil {
		return "", err
	}
	out, err := g.Run(ctx, "rev-parse", "HEAD")
	return strings.TrimSpace(out), err
}

// Branches returns the names of the local branches.
func (g *Git) Branches(ctx context.Context) ([]string, error) {
	out, err := g.Run(ctx, "for-each-ref", "--format=%(refname:short)", "refs/heads")
	return strings.Fields(out), err
}

// Checkout goes to a branch, or with create to a new one from here.
func (g *Git) Checkout(ctx context.Context, branch string, create bool) error {
	if err := noOption(branch); err != nil {
		return err
	}
	how := "--no-guess"
	if create {
		how = "--create"
	}
	_, err := g.Run(ctx, "switch", "--quiet", how, branch)
	return err
}

// Pull fetches a branch and moves the current one forward to it; it merges nothing.
func (g *Git) Pull(ctx context.Context, r GitRemote) error {
	return g.remote(ctx, r, "pull", "--ff-only")
}

// Push sends the current branch, or r.Branch, and has it follow the remote's.
func (g *Git) Push(ctx context.Context, r GitRemote) error {
	if r.Branch == "" {
		r.Branch = "HEAD"
	}
	return g.remote(ctx, r, "push", "--set-upstream")
}

func (g *Git) remote(ctx context.Context, r GitRemote, args ...string) error {
	if r.Name == "" {
		r.Name = "origin"
	}
	if err := errors.Join(noPassword("name", r.Name), noOption(r.Branch)); err != nil {
		return err
	}
	args = append(args, "--quiet", "--", r.Name)
	if r.Branch != "" {
		args = append(args, r.Branch)
	}
	_, err := g.run(ctx, r, append([]string{"-C", g.dir}, args...), args)
	return err
}
