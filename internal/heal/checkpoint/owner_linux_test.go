package checkpoint

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// another is a user who has nothing to do with root.
const another = 65534

// give makes a path and all below it another's.
func (w *world) give(path string) {
	w.t.Helper()
	proctest.Must(w.t, filepath.WalkDir(path, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, another, another)
	}))
}

// arm makes the repository one that names a program wherever git knows a name for one. The
// program notes who ran it, and what as.
func (w *world) arm(dir string) (ran string) {
	w.t.Helper()
	ran = filepath.Join(filepath.Dir(w.root), "ran")
	proctest.Must(w.t, os.WriteFile(ran, nil, 0o666))
	proctest.Must(w.t, os.Chmod(ran, 0o666))
	evil := filepath.Join(filepath.Dir(w.root), "evil")
	proctest.Must(w.t, os.WriteFile(evil, []byte("#!/bin/sh\necho \"$(id -u) $0 $*\" >>"+ran+"\ncat\nexit 1\n"), 0o755))
	in := func(args ...string) string {
		w.t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "safe.directory=*"}, args...)...)
		cmd.Dir = dir
		return strings.TrimSpace(string(proctest.Value(cmd.Output())(w.t)))
	}
	commit := fmt.Sprintf("tree %s\nparent %s\nauthor a <a@b> 1700000000 +0000\ncommitter a <a@b> 1700000000 +0000\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n iQ\n -----END PGP SIGNATURE-----\n\nsigned\n",
		in("rev-parse", "HEAD^{tree}"), in("rev-parse", "HEAD"))
	file := filepath.Join(filepath.Dir(w.root), "commit")
	proctest.Must(w.t, os.WriteFile(file, []byte(commit), 0o644))
	in("update-ref", "HEAD", in("hash-object", "-t", "commit", "-w", file))
	hooks := filepath.Join(in("rev-parse", "--absolute-git-dir"), "hooks")
	for _, hook := range []string{"reference-transaction", "post-index-change", "pre-commit", "post-commit", "post-checkout", "fsmonitor-watchman", "pre-auto-gc"} {
		proctest.Must(w.t, os.MkdirAll(hooks, 0o755))
		proctest.Must(w.t, os.RemoveAll(filepath.Join(hooks, hook)))
		proctest.Must(w.t, os.Symlink(evil, filepath.Join(hooks, hook)))
	}
	for _, kv := range [][2]string{
		{"log.showSignature", "true"}, {"commit.gpgSign", "true"}, {"gpg.program", evil}, {"gpg.openpgp.program", evil}, {"gpg.ssh.program", evil}, {"gpg.x509.program", evil},
		{"filter.evil.clean", evil + " clean"}, {"filter.evil.smudge", evil + " smudge"}, {"filter.evil.required", "true"}, {"filter.long.process", evil + " process"},
		{"core.fsmonitor", evil}, {"core.pager", evil}, {"pager.log", evil}, {"core.editor", evil}, {"core.askPass", evil}, {"core.sshCommand", evil}, {"credential.helper", evil},
		{"diff.external", evil}, {"diff.evil.command", evil}, {"diff.evil.textconv", evil}, {"merge.evil.driver", evil}, {"core.alternateRefsCommand", evil}, {"trailer.Heal-Id.command", evil},
		{"gc.auto", "1"}, {"gc.autoDetach", "false"}, {"alias.log", "!" + evil}, {"submodule.recurse", "true"},
		{"extensions.partialClone", "origin"}, {"remote.origin.url", "ext::" + evil}, {"remote.origin.promisor", "true"}, {"protocol.ext.allow", "always"}, {"core.repositoryFormatVersion", "1"},
	} {
		in("config", kv[0], kv[1])
	}
	proctest.Must(w.t, os.WriteFile(filepath.Join(dir, ".gitattributes"), []byte("*.evil filter=evil diff=evil merge=evil\n*.long filter=long\n"), 0o644))
	proctest.Must(w.t, os.WriteFile(ran, nil, 0o666))
	return ran
}

// whatRan is what has noted itself.
func whatRan(t *testing.T, ran string) string {
	t.Helper()
	return string(proctest.Value(os.ReadFile(ran))(t))
}

// TestNoProgramOfARepositoryRuns: whatever its configuration names, and whosever it is.
func TestNoProgramOfARepositoryRuns(t *testing.T) {
	for what, others := range map[string]bool{"root's own": false, "another's": true} {
		t.Run(what, func(t *testing.T) {
			if others {
				proctest.Root(t)
			}
			w := newWorld(t, true, map[string]string{"a.txt": "a\n", "b.evil": "b\n", "c.long": "c\n"})
			ran := w.arm(w.root)
			if others {
				w.reachable()
				w.give(w.root)
			}
			later := filepath.Join(w.root, "b.evil")
			p := w.take()
			w.write(map[string]string{"a.txt": "repaired\n", "c.long": "changed\n"})
			proctest.Must(t, os.WriteFile(later, []byte("B\n"), 0o644))
			proctest.Must(t, p.Mark(t.Context()))
			done := proctest.Value(p.Commit(t.Context(), repair))(t)
			if done.Hash == "" || strings.Join(done.Paths, " ") != "a.txt" {
				t.Errorf("committed was %+v", done)
			}
			if hash, _, err := p.Made(t.Context(), repair.Trailers); hash != done.Hash || err != nil {
				t.Errorf("it is found as %q, %v", hash, err)
			}
			proctest.Must(t, p.Drop(t.Context()))
			back := Back{Root: w.root, Dir: w.opts.Dir, ID: "back", Commit: done.Hash, Message: "taken back"}
			if out, err := TakeBack(t.Context(), back); err != nil || out.Hash == "" {
				t.Errorf("taken back: %+v, %v", out, err)
			}
			if text := whatRan(t, ran); text != "" {
				t.Errorf("there ran:\n%s", text)
			}
		})
	}
}

// TestARepositoryIsUsedByItsOwnerAlone: one that another user has put where root's project finds it
// is none of root's; nor is one that others may write, nor root's own by way of another's file.
func TestARepositoryIsUsedByItsOwnerAlone(t *testing.T) {
	proctest.Root(t)
	for what, c := range map[string]struct {
		spoil func(w *world)
		why   string
	}{
		"root's own": {func(*world) {}, ""},
		"another's, above, in a directory that all may write": {func(w *world) {
			up := filepath.Dir(w.root)
			proctest.Must(w.t, os.RemoveAll(w.path(".git")))
			proctest.Must(w.t, os.Chmod(up, 0o777|fs.ModeSticky))
			cmd := exec.Command("git", "init", "-q", up)
			proctest.Must(w.t, cmd.Run())
			w.give(filepath.Join(up, ".git"))
		}, "belongs to uid 65534"},
		"another's, in root's project": {func(w *world) { w.give(w.path(".git")) }, "belongs to uid 65534"},
		"root's, in a directory that all may write": {func(w *world) {
			proctest.Must(w.t, os.Chmod(filepath.Dir(w.root), 0o777))
		}, "everybody"},
		"root's, whose configuration all may write": {func(w *world) {
			proctest.Must(w.t, os.Chmod(w.path(".git/config"), 0o666))
		}, "everybody"},
		"root's, whose configuration a group may write": {func(w *world) {
			proctest.Must(w.t, os.Chown(w.path(".git/config"), 0, another))
			proctest.Must(w.t, os.Chmod(w.path(".git/config"), 0o664))
		}, "gid 65534"},
		"root's private one, by another's file": {func(w *world) {
			private := filepath.Join(filepath.Dir(w.root), "private")
			proctest.Must(w.t, os.Mkdir(private, 0o700))
			proctest.Must(w.t, os.Rename(w.path(".git"), filepath.Join(private, ".git")))
			w.write(map[string]string{".git": "gitdir: " + filepath.Join(private, ".git") + "\n"})
			w.reachable()
			proctest.Must(w.t, os.Chmod(private, 0o700))
			w.give(w.root)
		}, "uid 65534"},
		"root's, by another's link": {func(w *world) {
			private := filepath.Join(filepath.Dir(w.root), "private")
			proctest.Must(w.t, os.Rename(w.path(".git"), private))
			proctest.Must(w.t, os.Symlink(private, w.path(".git")))
			w.reachable()
			w.give(w.root)
		}, "uid 65534"},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, true, map[string]string{"a.txt": "a\n"})
			c.spoil(w)
			p := w.take()
			if (p.git != nil) != (c.why == "") || !strings.Contains(p.noGit, c.why) {
				t.Errorf("git: %v, %q", p.git != nil, p.noGit)
			}
			w.write(map[string]string{"a.txt": "changed\n"}) // it is a checkpoint all the same
			proctest.Must(t, p.Mark(t.Context()))
			if w.restore(p); w.read("a.txt") != "a\n" {
				t.Errorf("restored was %q", w.read("a.txt"))
			}
			proctest.Must(t, p.Drop(t.Context()))
		})
	}
}

// TestWhatAnOwnerMayNotReadStaysThatWay: root's checkpoint of another's project neither puts
// root's private files into their repository, nor reads by it what they may not.
func TestWhatAnOwnerMayNotReadStaysThatWay(t *testing.T) {
	proctest.Root(t)
	w := newWorld(t, true, map[string]string{"a.txt": "a\n"})
	w.reachable()
	private := newWorld(t, true, map[string]string{"key": "the key of root\n"})
	private.reachable()
	proctest.Must(t, os.Chmod(private.path(".git/objects"), 0o700))
	oid := strings.TrimSpace(private.git("rev-parse", "HEAD:key"))
	w.write(map[string]string{".git/objects/info/alternates": private.path(".git/objects") + "\n"})
	w.give(w.root)
	w.write(map[string]string{"secret": "of root\n"})
	proctest.Must(t, os.Chmod(w.path("secret"), 0o600))
	p := w.take()
	if p.git == nil {
		t.Fatalf("there is no git: %s", p.noGit)
	}
	if data, err := p.git.read(t.Context(), oid); err == nil {
		t.Errorf("read was %q", data)
	}
	cmd := exec.Command("git", "-c", "safe.directory=*", "cat-file", "-e", p.git.oid([]byte("of root\n")))
	cmd.Dir = w.root
	if cmd.Run() == nil {
		t.Error("root's file is in the repository of another")
	}
	proctest.Must(t, os.Remove(w.path("secret")))
	proctest.Must(t, p.Mark(t.Context()))
	if w.restore(p); w.read("secret") != "of root\n" {
		t.Errorf("it came back as %q", w.read("secret"))
	}
	w.write(map[string]string{"secret": "repaired\n"})
	proctest.Must(t, p.Mark(t.Context()))
	if done := proctest.Value(p.Commit(t.Context(), repair))(t); done.Hash != "" || len(done.Left) != 1 {
		t.Errorf("committed was %+v", done)
	}
	proctest.Must(t, p.Drop(t.Context()))
}
