package guard

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// project is a directory with files, those outside of it too, and a guard over it.
func project(t *testing.T, protected ...string) (*Guard, string) {
	t.Helper()
	base := proctest.Value(filepath.EvalSymlinks(t.TempDir()))(t)
	root := filepath.Join(base, "app")
	for name, text := range map[string]string{
		"../outside/secret.txt": "outside", "src/a.js": "let a\n", "src/deep/b.js": "let b // needle\n", "engine/core.js": "engine\n",
		".env": "API_KEY=hunter2-hunter2\nEMPTY=\n# OLD=was-secret-too\n", ".env.example": "API_KEY=change-me\n", "config/.env.local": "X=local-secret\n",
		".git/config": "url = https://u:p@h\n", ".git/hooks/pre-commit": "#!/bin/sh\n", "sub/.git": "gitdir: ../.git/modules/sub\n", ".tend/state": "x",
		"id_rsa": "key\n", "cert.pem": "key\n", ".npmrc": "//r/:_authToken=t\n", ".gitattributes": "* text\n", "tend.yaml": "services:\n", "data/orders.json": "[]\n",
		"node_modules/x/index.js": "needle\n", "bin.dat": "needle\x00",
	} {
		file := filepath.Join(root, name)
		proctest.Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		proctest.Must(t, os.WriteFile(file, []byte(text), 0o644))
	}
	g := proctest.Value(Open(Config{Root: root, Protected: append([]string{"engine/**", "data"}, protected...), Files: []string{filepath.Join(root, "tend.yaml")}}))(t)
	t.Cleanup(func() { g.Close() })
	return g, root
}

func TestWhatMayBeReadAndChanged(t *testing.T) {
	g, root := project(t, "Locked/*.md")
	proctest.Must(t, os.Symlink("../outside", filepath.Join(root, "out")))
	proctest.Must(t, os.Symlink(".git/config", filepath.Join(root, "innocent.txt")))
	proctest.Must(t, os.Symlink(".env", filepath.Join(root, "notes.txt")))
	proctest.Must(t, os.Symlink("../engine", filepath.Join(root, "src/lib")))
	proctest.Must(t, os.Symlink(filepath.Join(root, "src"), filepath.Join(root, "absolute")))
	proctest.Must(t, os.Symlink("/etc", filepath.Join(root, "etc")))
	proctest.Must(t, os.Symlink("loop", filepath.Join(root, "loop")))
	proctest.Must(t, os.Symlink("/proc/self/root/etc/passwd", filepath.Join(root, "proc")))
	proctest.Must(t, os.Link(filepath.Join(root, ".env"), filepath.Join(root, "linked.txt")))
	proctest.Must(t, os.Link(filepath.Join(root, "engine/core.js"), filepath.Join(root, "src/core.js")))
	proctest.Must(t, os.Link(filepath.Join(root, "src/a.js"), filepath.Join(root, "src/a2.js")))
	proctest.Must(t, syscall.Mkfifo(filepath.Join(root, "fifo"), 0o644))
	proctest.Must(t, syscall.Mknod(filepath.Join(root, "zero"), syscall.S_IFCHR|0o666, 1<<8|5))
	long := strings.Repeat("x/", 3000)
	const no, read, write = "", "r", "w"
	for _, c := range []struct{ path, may, rel string }{
		{"src/a.js", write, "src/a.js"},
		{"src/new/dir/file.js", write, "src/new/dir/file.js"},
		{root + "/src/a.js", write, "src/a.js"},
		{"./src/../src//a.js", write, "src/a.js"},
		{"absolute/a.js", write, "src/a.js"},
		{"src/a2.js", write, "src/a2.js"},
		{".env.example", write, ".env.example"},
		{".", read, "."},
		{"engine/core.js", read, "engine/core.js"},
		{"ENGINE/new.js", read, "ENGINE/new.js"},
		{"src/lib/core.js", read, "engine/core.js"},
		{"src/lib/new.js", read, "engine/new.js"},
		{"src/core.js", read, "src/core.js"},
		{"data", read, "data"},
		{"data/orders.json", read, "data/orders.json"},
		{"locked/A.MD", read, "locked/A.MD"},
		{"tend.yaml", read, "tend.yaml"},
		{".gitattributes", read, ".gitattributes"},
		{".env", read, ".env"},
		{"notes.txt", read, ".env"},
		{"config/.env.local", read, "config/.env.local"},
		{"deploy/prod.env", read, "deploy/prod.env"},
		{"deploy/Prod.ENV", read, "deploy/Prod.ENV"},
		{"example.env", write, "example.env"},
		{"prod.sample.env", write, "prod.sample.env"},
		{"linked.txt", no, ""},
		{".git/config", no, ""},
		{".GIT/hooks/pre-push", no, ""},
		{"sub/.git", no, ""},
		{"innocent.txt", no, ""},
		{".tend/state", no, ""},
		{"id_rsa", no, ""},
		{"cert.PEM", no, ""},
		{".npmrc", no, ""},
		{"fifo", no, ""},
		{"zero", no, ""},
		{"", no, ""},
		{"..", no, ""},
		{"../outside/secret.txt", no, ""},
		{"src/../../outside/secret.txt", no, ""},
		{"out/secret.txt", no, ""},
		{"etc/passwd", no, ""},
		{"proc", no, ""},
		{"loop", no, ""},
		{"/etc/passwd", no, ""},
		{root + "/../outside/secret.txt", no, ""},
		{root + "-other/x", no, ""},
		{"a\x00b", no, ""},
		{long, no, ""},
		{"new/../../outside", no, ""},
	} {
		rel, err := g.Check(c.path, false)
		if (err == nil) != (c.may != no) || err == nil && rel != c.rel {
			t.Errorf("reading %.60q: %q, %v; want %q", c.path, rel, err, c.rel)
		}
		wrel, werr := g.Check(c.path, true)
		if (werr == nil) != (c.may == write) || werr == nil && wrel != c.rel {
			t.Errorf("changing %.60q: %q, %v; want %q", c.path, wrel, werr, c.rel)
		}
		if werr := g.WriteFile(c.path, []byte("overwritten")); (werr == nil) != (c.may == write) {
			t.Errorf("writing %.60q: %v", c.path, werr)
		}
		var denied *DeniedError
		if werr != nil && !errors.As(werr, &denied) && !errors.Is(werr, fs.ErrNotExist) {
			t.Errorf("changing %.60q: %v is no *DeniedError", c.path, werr)
		}
	}
	if b := proctest.Value(os.ReadFile(filepath.Join(root, "../outside/secret.txt")))(t); string(b) != "outside" {
		t.Errorf("a file outside was changed: %q", b)
	}
	if b := proctest.Value(os.ReadFile(filepath.Join(root, "engine/core.js")))(t); string(b) != "engine\n" {
		t.Errorf("a protected file was changed: %q", b)
	}
}

func TestFilesAreReadInPartsAndWrittenWhole(t *testing.T) {
	g, root := project(t)
	huge := filepath.Join(root, "huge.log")
	proctest.Must(t, os.WriteFile(huge, []byte("head"), 0o644))
	proctest.Must(t, os.Truncate(huge, 10<<30))
	if data, size, err := g.ReadFile("huge.log", 0, 1<<40); err != nil || len(data) != MaxFile || size != 10<<30 {
		t.Errorf("%d bytes of %d, %v", len(data), size, err)
	}
	if data, _, err := g.ReadFile("huge.log", 2, 2); err != nil || string(data) != "ad" {
		t.Errorf("%q, %v", data, err)
	}
	if data, _, err := g.ReadFile("src/a.js", 100, 10); err != nil || len(data) != 0 {
		t.Errorf("behind the end: %q, %v", data, err)
	}
	if _, _, err := g.ReadFile("src/a.js", -1, 10); err == nil {
		t.Error("a negative offset is taken")
	}
	script := filepath.Join(root, "run.sh")
	proctest.Must(t, os.WriteFile(script, []byte("old"), 0o644))
	proctest.Must(t, os.Chmod(script, 0o751))
	proctest.Must(t, os.Chown(script, 1234, 1235))
	proctest.Must(t, g.WriteFile("run.sh", []byte("new")))
	info := proctest.Value(os.Stat(script))(t)
	if st := info.Sys().(*syscall.Stat_t); info.Mode() != 0o751 || st.Uid != 1234 || st.Gid != 1235 {
		t.Errorf("%v of %d:%d after the write", info.Mode(), st.Uid, st.Gid)
	}
	// Another name keeps what it had, as a store of packages needs it.
	proctest.Must(t, os.Link(script, filepath.Join(root, "store")))
	proctest.Must(t, g.WriteFile("run.sh", []byte("newer")))
	if b := proctest.Value(os.ReadFile(filepath.Join(root, "store")))(t); string(b) != "new" {
		t.Errorf("the other name has %q", b)
	}
	if err := g.WriteFile("large", make([]byte, MaxFile+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v; want ErrTooLarge", err)
	}
	if err := g.WriteFile("src", []byte("x")); err == nil {
		t.Error("a directory was written")
	}
	if err := g.WriteFile("src/a.js/below", []byte("x")); err == nil {
		t.Error("a file was made below a file")
	}
	if err := g.WriteFile(strings.Repeat("n", 300), []byte("x")); !errors.Is(err, syscall.ENAMETOOLONG) {
		t.Errorf("a name of 300 bytes: %v", err)
	}
	names := proctest.Value(filepath.Glob(filepath.Join(root, ".tend-*")))(t)
	if len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

func TestValuesOfVariablesAreNeverShownNorLost(t *testing.T) {
	g, root := project(t)
	data, _, err := g.ReadFile(".env", 0, 1000)
	if want := "API_KEY=[value hidden]\nEMPTY=\n# OLD=[value hidden]\n"; err != nil || string(data) != want {
		t.Errorf("%q, %v; want %q", data, err, want)
	}
	var denied *DeniedError
	if err := g.SetEnv(".env", "API_KEY", "x"); !errors.As(err, &denied) {
		t.Errorf("a value was replaced: %v", err)
	}
	if err := g.SetEnv("src/a.js", "A", "x"); !errors.As(err, &denied) {
		t.Errorf("a program was taken for variables: %v", err)
	}
	if err := g.SetEnv(".env", "A B", "x"); err == nil {
		t.Error("a wrong name was taken")
	}
	for _, variable := range []string{"LD_PRELOAD", "ld_library_path", "NODE_OPTIONS", "PATH", "BASH_ENV", "GIT_SSH_COMMAND", "PYTHONPATH"} {
		if err := g.SetEnv(".env", variable, "/tmp/x"); !errors.As(err, &denied) {
			t.Errorf("%s was set: %v", variable, err)
		}
	}
	proctest.Must(t, g.SetEnv(".env", "EMPTY", "it's\n\"$HOME\" \\ #"))
	proctest.Must(t, g.SetEnv(".env", "ISSUER", "notes app"))
	proctest.Must(t, g.SetEnv("fresh/.env", "A", "b"))
	want := "API_KEY=hunter2-hunter2\nEMPTY=\"it's\\n\\\"\\$HOME\\\" \\\\ #\"\n# OLD=was-secret-too\nISSUER='notes app'\n"
	if b := proctest.Value(os.ReadFile(filepath.Join(root, ".env")))(t); string(b) != want {
		t.Errorf("%q; want %q", b, want)
	}
	if info := proctest.Value(os.Stat(filepath.Join(root, "fresh/.env")))(t); info.Mode() != 0o600 {
		t.Errorf("a new file has mode %v", info.Mode())
	}
	for text, want := range map[string]string{
		"KEY=\"one\ntwo-secret\"\nB=1\n": "KEY=[value hidden]\nB=[value hidden]\n",
		"export K=v":                     "K=[value hidden]",
		"just-a-secret\n\n# words\nA=":   "[line hidden]\n\n[line hidden]\nA=",
		"key: value":                     "key=[value hidden]",
	} {
		if got := namesOnly(text); got != want {
			t.Errorf("%q is shown as %q; want %q", text, got, want)
		}
	}
}

func TestListAndSearch(t *testing.T) {
	g, root := project(t)
	entries, more, err := g.List(".", 100)
	if err != nil || more {
		t.Fatal(more, err)
	}
	kinds := map[string]Entry{}
	for _, e := range entries {
		kinds[e.Name] = e
	}
	if e := kinds["src"]; e.Kind != "directory" || e.Protected || !kinds[".git"].Protected || !kinds["data"].Protected || !kinds[".env"].Protected || kinds["tend.yaml"].Size != 10 {
		t.Errorf("%+v", kinds)
	}
	if _, more, err := g.List(".", 3); err != nil || !more {
		t.Errorf("%v, %v", more, err)
	}
	for _, dir := range []string{".git", "..", "src/a.js", "missing"} {
		if _, _, err := g.List(dir, 10); err == nil {
			t.Errorf("%s was listed", dir)
		}
	}
	proctest.Must(t, os.WriteFile(filepath.Join(root, "outside"), []byte("needle"), 0o644))
	proctest.Must(t, os.Symlink("../outside", filepath.Join(root, "link")))
	proctest.Must(t, os.WriteFile(filepath.Join(root, ".env.x"), []byte("needle=1"), 0o644))
	proctest.Must(t, os.Link(filepath.Join(root, ".env.x"), filepath.Join(root, "x.txt")))
	proctest.Must(t, syscall.Mkfifo(filepath.Join(root, "fifo"), 0o644))
	hits, more, err := g.Search(t.Context(), "need.e", "", 10)
	if want := []Hit{{"outside", 1, "needle"}, {"src/deep/b.js", 1, "let b // needle"}}; err != nil || more || !slices.Equal(hits, want) {
		t.Errorf("%+v, %v, %v; want %+v", hits, more, err, want)
	}
	if hits, _, err := g.Search(t.Context(), "let", "*.js", 10); err != nil || len(hits) != 2 {
		t.Errorf("%+v, %v", hits, err)
	}
	if hits, more, err := g.Search(t.Context(), "let", "src/**", 1); err != nil || len(hits) != 1 || !more {
		t.Errorf("%+v, %v, %v", hits, more, err)
	}
	// No part of a line: it could end in the middle of a secret.
	long := strings.Repeat("x", 390) + " needle-" + strings.Repeat("s", 40)
	proctest.Must(t, os.WriteFile(filepath.Join(root, "src/min.js"), []byte(long+"\n"+long+strings.Repeat("y", 4<<10)+"\n"+strings.Repeat("z\n", MaxFile/2)+long), 0o644))
	proctest.Must(t, os.WriteFile(filepath.Join(root, "src/cut.js"), []byte(strings.Repeat("z\n", MaxFile/2-10)+long), 0o644))
	hits, _, err = g.Search(t.Context(), "needle", "src/*", 10)
	if want := []Hit{{"src/min.js", 1, long}, {"src/min.js", 2, "[a line of 4534 bytes, which is not shown]"}}; err != nil || !slices.Equal(hits, want) {
		t.Errorf("%+v, %v", hits, err)
	}
	if _, _, err := g.Search(t.Context(), "(", "", 10); err == nil {
		t.Error("a wrong expression was taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := g.Search(ctx, "x", "", 10); !errors.Is(err, context.Canceled) {
		t.Errorf("%v; want that of the context", err)
	}
}

// Somebody swaps a directory for a link to outside, and a file for a link to a secret,
// over and over while files are read and written.
func TestASwapBetweenCheckAndUseLeadsNowhere(t *testing.T) {
	g, root := project(t)
	outside := filepath.Join(root, "../outside/secret.txt")
	proctest.Must(t, os.MkdirAll(filepath.Join(root, "a"), 0o755))
	proctest.Must(t, os.WriteFile(filepath.Join(root, "a/secret.txt"), []byte("inside"), 0o644))
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		a, b, c := filepath.Join(root, "a"), filepath.Join(root, "b"), filepath.Join(root, "c")
		os.Symlink("../outside", c)
		for {
			select {
			case <-stop:
				return
			default:
			}
			os.Rename(a, b)
			os.Rename(c, a)
			os.Rename(a, c)
			os.Rename(b, a)
			os.Symlink(".git/config", filepath.Join(root, "t"))
			os.Remove(filepath.Join(root, "t"))
			os.WriteFile(filepath.Join(root, "t"), []byte("inside"), 0o644)
			os.Remove(filepath.Join(root, "t"))
		}
	})
	for range 300 {
		for _, name := range []string{"a/secret.txt", "t"} {
			if data, _, err := g.ReadFile(name, 0, 100); err == nil && !bytes.HasPrefix([]byte("inside"), data) {
				t.Fatalf("%s: read %q", name, data)
			}
			g.WriteFile(name, []byte("inside"))
		}
	}
	close(stop)
	swapping.Wait()
	if b := proctest.Value(os.ReadFile(outside))(t); string(b) != "outside" {
		t.Errorf("the file outside was changed: %q", b)
	}
	if b := proctest.Value(os.ReadFile(filepath.Join(root, ".git/config")))(t); !strings.HasPrefix(string(b), "url") {
		t.Errorf("git's file was changed: %q", b)
	}
}

func TestOpenRefuses(t *testing.T) {
	root := t.TempDir()
	for _, c := range []Config{{Root: "relative"}, {Root: root + "/missing"}, {Root: root, Protected: []string{"[a"}}, {Root: root, Protected: []string{""}}, {Root: root, Protected: []string{"/etc/**"}}} {
		if g, err := Open(c); err == nil {
			g.Close()
			t.Errorf("%+v was taken", c)
		}
	}
}

// FuzzPath: whatever a path is and whatever the links in it say, what the guard reads
// is below the root and under no rule, and it writes nowhere else.
func FuzzPath(f *testing.F) {
	f.Add("src/../l/a", "../outside")
	f.Add("l", "/etc/passwd")
	f.Add("l/../.git/config", "src/deep")
	f.Add("l/hooks", ".GIT")
	f.Add("src/l", "../../app/.git/config")
	base := proctest.Value(filepath.EvalSymlinks(f.TempDir()))(f)
	root := filepath.Join(base, "app")
	for _, dir := range []string{"src/deep", ".git/hooks", "../outside"} {
		proctest.Must(f, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	inside, secret := filepath.Join(root, "src/a"), []string{filepath.Join(root, ".git/config"), filepath.Join(root, "../outside/a"), filepath.Join(root, ".git/hooks/a")}
	proctest.Must(f, os.WriteFile(inside, []byte("fine"), 0o644))
	for _, s := range secret {
		proctest.Must(f, os.WriteFile(s, []byte("secret"), 0o644))
	}
	g := proctest.Value(Open(Config{Root: root}))(f)
	f.Cleanup(func() { g.Close() })
	f.Fuzz(func(t *testing.T, path, link string) {
		for _, l := range []string{"l", "src/l"} {
			os.Remove(filepath.Join(root, l))
			os.Symlink(link, filepath.Join(root, l))
		}
		if data, _, err := g.ReadFile(path, 0, 100); err == nil && string(data) != "fine" && string(data) != "new" {
			t.Fatalf("%q with a link to %q: read %q", path, link, data)
		}
		rel, err := g.Check(path, true)
		if err == nil && (!filepath.IsLocal(rel) || slices.Contains(strings.Split(strings.ToLower(rel), "/"), ".git")) {
			t.Fatalf("%q with a link to %q may be changed as %q", path, link, rel)
		}
		if strings.Count(rel, "/") > 4 {
			return
		}
		if g.WriteFile(path, []byte("new")) == nil {
			for _, s := range secret {
				if b := proctest.Value(os.ReadFile(s))(t); string(b) != "secret" {
					t.Fatalf("%q with a link to %q changed %s", path, link, s)
				}
			}
			if rel != "src/a" && rel != "l" && rel != "src/l" {
				os.RemoveAll(filepath.Join(root, rel))
				os.MkdirAll(filepath.Join(root, "src/deep"), 0o755)
			}
		}
	})
}

func TestAFIFOIsNoFileOfVariables(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), ".env")
	proctest.Must(t, syscall.Mkfifo(fifo, 0o600))
	if _, err := ReadVariables(fifo); err == nil {
		t.Error("it is read")
	}
}
