package tend_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
	"github.com/tend-run/tend/sdk/go"
)

// TestGit does what a person does with a repository, by real git.
func TestGit(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := proctest.Value(withSandboxes(t, nil).CreateSandbox(ctx, tend.SandboxSpec{}))(t)
	dir := proctest.Value(s.Files().Stat(ctx, "."))(t).Path
	theirs, g, other := filepath.Join(t.TempDir(), "theirs"), s.Git("a repo"), s.Git("other")
	write := func(name, text string) {
		proctest.Must(t, os.WriteFile(filepath.Join(dir, "a repo", name), []byte(text), 0o600))
	}
	proctest.Must(t, g.Init(ctx))
	proctest.Value(g.Run(ctx, "init", "--quiet", "--bare", "--initial-branch=main", theirs))(t)
	proctest.Value(g.Run(ctx, "remote", "add", "origin", theirs))(t)
	write("one file", "1\n")
	write("-two\nlines", "2\n")
	status := func(g *tend.Git) tend.GitStatus {
		st := proctest.Value(g.Status(ctx))(t)
		slices.SortFunc(st.Files, func(a, b tend.GitFile) int { return strings.Compare(a.Path, b.Path) })
		return st
	}
	fresh := []tend.GitFile{{Path: "-two\nlines", Staged: "?", Unstaged: "?"}, {Path: "one file", Staged: "?", Unstaged: "?"}}
	if got := status(g); !cmp.Equal(got, tend.GitStatus{Branch: "main", Files: fresh}) {
		t.Errorf("new files: %+v", got)
	}
	proctest.Must(t, g.Add(ctx))
	first := proctest.Value(g.Commit(ctx, "-m is no flag\n\nhere", "A Person", "a@example.org"))(t)
	shown := proctest.Value(g.Run(ctx, "log", "-1", "--format=%H|%an|%ae|%B"))(t)
	if shown != first+"|A Person|a@example.org|-m is no flag\n\nhere\n\n" {
		t.Errorf("the commit is %q", shown)
	}
	proctest.Must(t, g.Push(ctx, tend.GitRemote{}))
	proctest.Must(t, other.Clone(ctx, theirs, tend.GitRemote{Branch: "main"}))

	proctest.Value(g.Run(ctx, "mv", "one file", "moved"))(t)
	write("-two\nlines", "3\n")
	proctest.Must(t, g.Checkout(ctx, "next", true))
	want := tend.GitStatus{Branch: "next", Files: []tend.GitFile{
		{Path: "-two\nlines", Staged: ".", Unstaged: "M"}, {Path: "moved", From: "one file", Staged: "R", Unstaged: "."}}}
	if got := status(g); !cmp.Equal(got, want) {
		t.Errorf("changed files: %s", cmp.Diff(want, got))
	}
	proctest.Must(t, g.Add(ctx, "-two\nlines"))
	proctest.Value(g.Commit(ctx, "second", "A Person", "a@example.org"))(t)
	if got := proctest.Value(g.Branches(ctx))(t); !slices.Equal(got, []string{"main", "next"}) {
		t.Errorf("branches: %q", got)
	}
	proctest.Must(t, g.Checkout(ctx, "main", false))
	proctest.Value(g.Run(ctx, "merge", "--quiet", "next"))(t)
	if got := status(g); got.Ahead != 1 || got.Behind != 0 || got.Upstream != "origin/main" {
		t.Errorf("before the push: %+v", got)
	}
	proctest.Must(t, g.Push(ctx, tend.GitRemote{Name: "origin", Branch: "main"}))
	proctest.Must(t, other.Pull(ctx, tend.GitRemote{}))
	if text := proctest.Value(os.ReadFile(filepath.Join(dir, "other", "moved")))(t); string(text) != "1\n" {
		t.Errorf("after the pull there is %q", text)
	}

	e, ok := errors.AsType[*tend.GitError](g.Checkout(ctx, "nowhere", false))
	const said = "git switch --quiet --no-guess nowhere ended with 128: fatal: invalid reference: nowhere"
	if !ok || e.Code != 128 || !strings.Contains(e.Error(), said) {
		t.Errorf("a branch that is not there: %v", e)
	}
	if left := proctest.Value(proctest.Value(s.Client(ctx))(t).List(ctx, process.Filter{}))(t); len(left) != 0 {
		t.Errorf("%d processes are left", len(left))
	}
}

// TestGitPasswords reach the server, and no command line, configuration or URL.
func TestGitPasswords(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	var mu sync.Mutex
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, ok := r.BasicAuth()
		mu.Lock()
		defer mu.Unlock()
		if seen = append(seen, user+"|"+password); !ok {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	s := proctest.Value(withSandboxes(t, nil).CreateSandbox(ctx, tend.SandboxSpec{}))(t)
	g := s.Git("repo")
	const password = `p'"$(x) %s\n`
	e, ok := errors.AsType[*tend.GitError](g.Clone(ctx, server.URL+"/r.git", tend.GitRemote{Username: "me", Password: password, Depth: 1}))
	if !ok || !strings.Contains(e.Stderr, "not found") || strings.Contains(e.Error(), password) {
		t.Errorf("clone: %v", e)
	}
	if !slices.Equal(seen, []string{"|", "me|" + password}) {
		t.Errorf("the server has seen %q", seen)
	}
	// A host that the remote redirects to gets none, whether it is named by a URL or by the repository.
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, strings.Replace(server.URL, "127.0.0.1", "localhost", 1)+r.URL.RequestURI(), http.StatusMovedPermanently)
	}))
	t.Cleanup(other.Close)
	here := s.Git("here")
	proctest.Must(t, here.Init(ctx))
	proctest.Value(here.Run(ctx, "-c", "user.name=A", "-c", "user.email=a@example.org",
		"commit", "--quiet", "--allow-empty", "--message=first"))(t)
	proctest.Value(here.Run(ctx, "remote", "add", "origin", other.URL+"/r.git"))(t)
	proctest.Value(here.Run(ctx, "remote", "add", "direct", server.URL+"/r.git"))(t)
	for _, c := range []struct {
		name string
		want []string
	}{{"", []string{"|"}}, {other.URL + "/r.git", []string{"|"}}, {"direct", []string{"|", "me|x"}}} {
		for what, do := range map[string]func(tend.GitRemote) error{
			"pull": func(r tend.GitRemote) error { return here.Pull(ctx, r) },
			"push": func(r tend.GitRemote) error { return here.Push(ctx, r) },
		} {
			mu.Lock()
			seen = nil
			mu.Unlock()
			if err := do(tend.GitRemote{Name: c.name, Username: "me", Password: "x"}); err == nil || !slices.Equal(seen, c.want) {
				t.Errorf("%s of %q: %v, and the server has seen %q", what, c.name, err, seen)
			}
		}
	}
	if err := g.Clone(ctx, server.URL+"/r.git", tend.GitRemote{}); err == nil || !strings.Contains(err.Error(), "terminal prompts disabled") {
		t.Errorf("without a password: %v", err)
	}
	for field, err := range map[string]error{
		"url":      g.Clone(ctx, "http://me:secret@127.0.0.1/r", tend.GitRemote{}),
		"password": g.Pull(ctx, tend.GitRemote{Username: "a\nb"}),
		"name":     g.Pull(ctx, tend.GitRemote{Name: "https://me:secret@127.0.0.1/r"}),
	} {
		if in, ok := errors.AsType[*process.InvalidError](err); !ok || in.Field != field || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", field, err)
		}
	}
	// What is no URL to Go is one to git.
	if err := g.Clone(ctx, "http://me:sec%ret@127.0.0.1/r", tend.GitRemote{}); err == nil || strings.Contains(err.Error(), "sec%ret") {
		t.Errorf("a password that is no part of a URL: %v", err)
	}
	// The name of a branch may be somebody else's: it is neither an option nor an order to force or to delete.
	for _, branch := range []string{"--discard-changes", "-f", "+main", ":main", "main:other"} {
		r := tend.GitRemote{Branch: branch}
		for what, err := range map[string]error{"clone": g.Clone(ctx, server.URL, r), "checkout": g.Checkout(ctx, branch, false),
			"create": g.Checkout(ctx, branch, true), "pull": g.Pull(ctx, r), "push": g.Push(ctx, r)} {
			if in, ok := errors.AsType[*process.InvalidError](err); !ok || in.Field != "branch" {
				t.Errorf("%s %s: %v", what, branch, err)
			}
		}
	}
}
