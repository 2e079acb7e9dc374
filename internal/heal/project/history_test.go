package project

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/heal/guard"
	"github.com/tend-run/tend/internal/support/proctest"
)

// repository is one in a directory.
type repository struct {
	*testing.T
	dir string
}

func newRepository(t *testing.T, dir string) repository {
	r := repository{t, dir}
	proctest.Must(t, os.MkdirAll(dir, 0o755))
	r.git("init", "-q", "-b", "main")
	return r
}

func (r repository) git(args ...string) string {
	r.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.Fatalf("git %q: %v: %s", args, err, out)
	}
	return string(out)
}

func (r repository) write(name, text string) {
	r.Helper()
	proctest.Must(r, os.MkdirAll(filepath.Dir(filepath.Join(r.dir, name)), 0o755))
	proctest.Must(r, os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o644))
}

func (r repository) commit(name, text string) {
	r.Helper()
	r.write(name, text)
	r.git("add", "-f", "-A")
	r.git("commit", "-q", "-m", "change "+name)
}

// TestNoFormerSecretIsShown: what a secret file held at any time that git knows of is hidden, in
// whatever way git shows it.
func TestNoFormerSecretIsShown(t *testing.T) {
	base := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	r := newRepository(t, base)
	r.commit("app/index.js", "ordinary-text-of-the-project\n")
	r.commit("app/.env", "# OLD=commented-former-value\nAPI=former-value-of-env\n")
	r.commit("app/.env", "API=amended-value-of-env\n")
	r.write("app/.env", "API=second-value-of-env\n")
	r.git("commit", "-q", "-a", "--amend", "-m", "amended")
	r.git("checkout", "-q", "-b", "side")
	r.commit("app/Prod.ENV", "API=value-of-the-branch\n")
	r.git("checkout", "-q", "main")
	r.commit("app/a.js", "1\n")
	r.git("merge", "-q", "--no-ff", "-m", "merge", "side")
	r.git("branch", "-q", "-D", "side")
	r.write("app/.env", "API=value-of-a-dropped-stash\n")
	r.git("stash", "-q")
	r.git("stash", "drop", "-q")
	r.write("app/.env", "API=value-of-the-stash\n")
	r.git("stash", "-q")
	r.commit("app/.npmrc", "registry=https://registry.npmjs.org/\n//registry.npmjs.org/:_authToken=token-of-the-registry\n")
	r.commit(".netrc", "machine example.com login me password password-of-netrc\n")
	r.commit(".pgpass", "localhost:5432:app:me:password-of-postgres\n")
	r.commit("deploy/id_ed25519", "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU\nAAAAAAAAAAAAQyNTUxOQAAACBx\n-----END OPENSSH PRIVATE KEY-----\n")
	r.commit("key.p12", strings.Repeat("\x00\x01binary-key-material\xff", 5))
	r.git("rm", "-q", "-r", "-f", "app/.env", "app/Prod.ENV", "app/.npmrc", ".netrc", ".pgpass", "deploy", "key.p12")
	r.git("commit", "-q", "-m", "without secrets")
	r.write(".env", "API=value-of-the-index\n")
	r.git("add", "-f", ".env")
	r.write(".env", "API=value-of-the-file\n")
	inner := newRepository(t, filepath.Join(base, "vendor", "sub"))
	inner.commit(".env", "API=value-of-the-inner-one\n")
	inner.commit(".env", "API=value-of-the-inner-file\n")

	redact := guard.NewRedactor()
	l, opened, err := Open(Config{ID: "e1", Root: filepath.Join(base, "app"), Cwd: filepath.Join(base, "app"), StateDir: t.TempDir(), Redact: redact})
	proctest.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	whole, wholeOpened, err := Open(Config{ID: "e1", Root: base, Cwd: base, StateDir: t.TempDir()})
	proctest.Must(t, err)
	t.Cleanup(func() { _ = whole.Close() })
	if notes := slices.Concat(opened.Notes, wholeOpened.Notes); len(notes) > 0 {
		t.Errorf("noted: %q", notes)
	}
	worker := guard.NewRedactor() // as that of a worker whose project is elsewhere
	for _, f := range wholeOpened.Secrets {
		worker.AddFile(f.Path, f.Data)
	}

	texts := []string{
		r.git("log", "-p", "--all", "--reflog", "-m", "--text"), r.git("stash", "show", "-p"), r.git("cat-file", "-p", ":.env"),
		r.git("log", "-p", "--all", "--word-diff=porcelain"), r.git("cat-file", "--batch-all-objects", "--batch"), r.git("archive", "HEAD~3"),
	}
	secrets := []string{
		"commented-former-value", "former-value-of-env", "amended-value-of-env", "second-value-of-env", "value-of-the-branch", "value-of-the-stash",
		"value-of-a-dropped-stash",
		"token-of-the-registry", "password-of-netrc", "password-of-postgres", "b3BlbnNzaC1rZXktdjEAAAAABG5vbmU", "AAAAAAAAAAAAQyNTUxOQAAACBx",
		"binary-key-material", "value-of-the-index",
	}
	all := strings.Join(texts, "\n")
	for _, secret := range secrets {
		if !strings.Contains(all, secret) {
			t.Errorf("git does not show %q at all", secret)
		}
		for i, text := range texts {
			for name, r := range map[string]*guard.Redactor{"its own": redact, "the worker's": worker} {
				if strings.Contains(r.Text(text), secret) {
					t.Errorf("text %d has %q after %s redactor", i, secret, name)
				}
			}
		}
	}
	if text := inner.git("log", "-p"); strings.Contains(worker.Text(text), "value-of-the-inner-one") {
		t.Error("the history of an inner repository is shown")
	}
	if got := redact.Text(texts[0]); !strings.Contains(got, "ordinary-text-of-the-project") || !strings.Contains(got, "registry=https://registry.npmjs.org/") {
		t.Errorf("what is no secret is hidden: %.2000s", got)
	}
}

// TestAHistoryThatIsTooLargeIsHidden: nobody knows the secrets in it, so no command sees it.
func TestAHistoryThatIsTooLargeIsHidden(t *testing.T) {
	base := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	r := newRepository(t, base)
	var b strings.Builder
	for b.Len() <= maxHistory {
		fmt.Fprintf(&b, "KEY_%d=%x\n", b.Len(), rand.Uint64())
	}
	r.commit(".env", b.String())
	r.git("rm", "-q", ".env")
	r.git("commit", "-q", "-m", "gone")
	r.commit("app/index.js", "1\n")
	for _, root := range []string{base, filepath.Join(base, "app")} {
		l, opened, err := Open(Config{ID: "e1", Root: root, Cwd: root, StateDir: t.TempDir(), Dir: t.TempDir()})
		proctest.Must(t, err)
		if len(opened.Notes) != 1 || !strings.Contains(opened.Notes[0], "history") {
			t.Errorf("of %s: %q", root, opened.Notes)
		}
		seen := proctest.Value(l.Shown(t.Context()))(t)
		dir := filepath.Join(base, ".git")
		if slices.Contains(seen.Show, dir) || root == base && !slices.Contains(seen.Hide, ".git") {
			t.Errorf("a command in %s sees the repository: %+v", root, seen)
		}
		proctest.Must(t, l.Close())
	}
}
