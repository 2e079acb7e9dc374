//go:build linux

// Package dockerfiles builds Dockerfiles as people write them, and compares files, owners, modes, variables, user, directory
// and command with what buildah made of them.
//
// Each file of testdata is a txtar archive with a Dockerfile, its context, and what buildah made of it. Lines before the first
// file say what a txtar cannot: "mode 755 FILE", "link TARGET FILE", "dir DIR", "tar FILE" (of a file a, and b of 7:8), and what
// the build is given: "arg NAME=VALUE", "target STAGE". "hand": the buildah of Debian 12 cannot build it, and what is recorded was
// written by hand. With -buildah the test has buildah build them again, and with -record it writes down what that makes.
package dockerfiles

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/tend-run/tend/internal/sandbox/oci/ocitest"
	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/internal/support/testbin"
	"github.com/tend-run/tend/internal/support/testdaemon"
)

var (
	tend     string
	byOthers = flag.Bool("buildah", false, "build with buildah, too, and compare with what is recorded of it")
	record   = flag.Bool("record", false, "with -buildah: write down what it makes")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(testbin.Main(func(dir string) int {
		tend = testbin.Released.Tend(dir)
		return m.Run()
	}, testbin.Released))
}

// wanted is the file of an archive with what buildah made.
const wanted = "MADE"

// listing prints each file: name, kind, mode, owner, group, and a link's target or a file's digest.
const listing = `find / -xdev '(' -path /proc -o -path /dev -o -path /sys -o -path /run -o -path /tmp ')' -prune -o -printf '%P|%y|%m|%U|%G|%l\n' | sort
echo ====
find / -xdev '(' -path /proc -o -path /dev -o -path /sys -o -path /run -o -path /tmp ')' -prune -o -type f -exec sha256sum '{}' +`

// ofEngines are files that engines themselves make or mount.
var ofEngines = []string{"", "proc", "dev", "sys", "run", "tmp", "etc/hosts", "etc/resolv.conf", "etc/hostname", "etc/mtab"}

// filesOf reads a listing.
func filesOf(text string) map[string]string {
	names, sums, _ := strings.Cut(text, "====\n")
	sum := map[string]string{}
	for line := range strings.Lines(sums) {
		if digest, name, ok := strings.Cut(strings.TrimSpace(line), "  /"); ok {
			sum[name] = digest[:min(16, len(digest))]
		}
	}
	files := map[string]string{}
	for line := range strings.Lines(names) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		if len(f) == 6 && !slices.Contains(ofEngines, f[0]) {
			files[f[0]] = strings.TrimSpace(strings.Join(f[1:], " ") + " " + sum[f[0]])
		}
	}
	return files
}

// conf is what is configured for programs.
type conf struct {
	env   []string
	user  string
	dir   string
	start []string
}

// shown is what differs from the base, as it is recorded.
func shown(base, files map[string]string, c conf) string {
	var lines []string
	for name, is := range files {
		if base[name] != is {
			lines = append(lines, strconv.Quote(name)+" "+is)
		}
	}
	for name := range base {
		if _, ok := files[name]; !ok {
			lines = append(lines, strconv.Quote(name)+" gone")
		}
	}
	slices.Sort(lines)
	slices.Sort(c.env)
	for _, e := range c.env {
		lines = append(lines, "env "+e)
	}
	start, _ := json.Marshal(c.start)
	return strings.Join(append(lines, "user "+c.user, "dir "+c.dir, "start "+string(start)), "\n") + "\n"
}

// job is a Dockerfile with its context in a directory. By hand: buildah cannot build it.
type job struct {
	hand bool
	dir  string
	args []string // of the command line, as tend and buildah have them
}

func unpack(t *testing.T, a *txtar.Archive) *job {
	t.Helper()
	j := &job{dir: t.TempDir()}
	root := filepath.Join(j.dir, "context")
	proctest.Must(t, os.Mkdir(root, 0o755))
	for _, f := range a.Files {
		name := filepath.Join(root, f.Name)
		if f.Name == "Dockerfile" {
			name = filepath.Join(j.dir, f.Name)
		}
		if f.Name == wanted {
			continue
		}
		proctest.Must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		proctest.Must(t, os.WriteFile(name, f.Data, 0o644))
	}
	for line := range strings.Lines(string(a.Comment)) {
		w := strings.Fields(line)
		if len(w) == 0 {
			continue
		}
		at := filepath.Join(root, w[len(w)-1])
		switch w[0] {
		case "mode":
			mode := proctest.Value(strconv.ParseUint(w[1], 8, 32))(t)
			proctest.Must(t, os.Chmod(at, os.FileMode(mode)))
		case "link":
			proctest.Must(t, os.Symlink(w[1], at))
		case "dir":
			proctest.Must(t, os.MkdirAll(at, 0o755))
		case "tar":
			proctest.Must(t, os.WriteFile(at, packed(t), 0o644))
		case "arg":
			j.args = append(j.args, "--build-arg", w[1])
		case "target":
			j.args = append(j.args, "--target", w[1])
		case "hand":
			j.hand = true
		default:
			t.Fatalf("%q is not known", line)
		}
	}
	return j
}

// packed is a tar.gz.
func packed(t *testing.T) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, h := range []tar.Header{{Name: "in/", Typeflag: tar.TypeDir, Mode: 0o750}, {Name: "in/a", Mode: 0o640, Size: 1},
		{Name: "b", Mode: 0o755, Uid: 7, Gid: 8, Size: 1}, {Name: "l", Typeflag: tar.TypeSymlink, Linkname: "in/a"}} {
		proctest.Must(t, w.WriteHeader(&h))
		if h.Size > 0 {
			proctest.Value(w.Write([]byte("x")))(t)
		}
	}
	proctest.Must(t, w.Close())
	proctest.Must(t, z.Close())
	return b.Bytes()
}

func run(t *testing.T, env []string, argv ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = append(cmd.Environ(), env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", argv, err, out, errs.Bytes())
	}
	return string(out)
}

// engine builds, and says what it made.
type engine interface {
	build(t *testing.T, name string, j *job) (map[string]string, conf)
}

type ours struct{ env []string }

func (o ours) build(t *testing.T, name string, j *job) (map[string]string, conf) {
	t.Helper()
	argv := append([]string{tend, "template", "build", "-t", name, "-f", filepath.Join(j.dir, "Dockerfile")}, j.args...)
	run(t, o.env, append(argv, filepath.Join(j.dir, "context"))...)
	run(t, o.env, tend, "sandbox", "create", "--template", name, name)
	text := run(t, o.env, tend, "sandbox", "exec", "-u", "0:0", name, "--", "/bin/sh", "-c", listing)
	dir := strings.TrimSpace(run(t, o.env, tend, "sandbox", "exec", name, "--", "/bin/sh", "-c", "pwd"))
	type facts struct {
		Name  string            `json:"name"`
		User  string            `json:"user"`
		Env   map[string]string `json:"env"`
		Start string            `json:"start"`
	}
	var sandboxes, templates []facts
	proctest.Must(t, json.Unmarshal([]byte(run(t, o.env, tend, "sandbox", "inspect", name)), &sandboxes))
	proctest.Must(t, json.Unmarshal([]byte(run(t, o.env, tend, "template", "ls", "--json")), &templates))
	run(t, o.env, tend, "sandbox", "rm", name)
	c := conf{user: sandboxes[0].User, dir: dir}
	for k, v := range sandboxes[0].Env {
		c.env = append(c.env, k+"="+v)
	}
	for _, one := range templates {
		if one.Name == name && one.Start != "" {
			proctest.Must(t, json.Unmarshal([]byte(one.Start), &c.start))
		}
	}
	return filesOf(text), c
}

type theirs struct{ root []string }

func (b theirs) build(t *testing.T, name string, j *job) (map[string]string, conf) {
	t.Helper()
	storage := func(argv ...string) []string { return slices.Concat([]string{"buildah"}, b.root, argv) }
	argv := storage(slices.Concat([]string{"bud", "-q", "--format", "docker", "--isolation", "chroot", "-t", name, "-f", filepath.Join(j.dir, "Dockerfile")}, j.args)...)
	run(t, nil, append(argv, filepath.Join(j.dir, "context"))...)
	sandbox := strings.TrimSpace(run(t, nil, storage("from", "--pull-never", "localhost/"+name)...))
	dir := strings.TrimSpace(run(t, nil, storage("mount", sandbox)...))
	text := run(t, []string{"PATH=/bin:/usr/bin"}, "chroot", dir, "/bin/sh", "-c", listing)
	var is struct {
		OCIv1 struct {
			Config v1.Config `json:"config"`
		}
	}
	proctest.Must(t, json.Unmarshal([]byte(run(t, nil, storage("inspect", "--type", "image", name)...)), &is))
	c := is.OCIv1.Config
	run(t, nil, storage("rm", sandbox)...)
	return filesOf(text), conf{env: c.Env, user: c.User, dir: c.WorkingDir, start: slices.Concat(c.Entrypoint, c.Cmd)}
}

func TestDockerfilesAreBuiltAsByBuildah(t *testing.T) {
	proctest.Root(t)
	base := &ocitest.Image{
		Layers: [][]byte{ocitest.Layer(t, append(ocitest.Programs(t, "sh", "cat", "id", "ls", "stat", "mkdir", "chmod", "chown", "rm", "ln", "env", "sort",
			"grep", "find", "sha256sum", "sleep"), ocitest.File{Name: "etc/passwd", Text: "root:x:0:0::/root:/bin/sh\nweb:x:33:44::/srv:/bin/sh\n"},
			ocitest.File{Name: "etc/group", Text: "root:x:0:\nweb:x:44:\nstaff:x:50:web\n"}, ocitest.File{Name: "srv/", UID: 33, GID: 44},
			ocitest.File{Name: "tmp/", Mode: 0o1777})...)},
		Config: v1.Config{Env: []string{"PATH=/bin", "GREETING=hello"}, Cmd: []string{"sh"}},
	}
	saved := filepath.Join(t.TempDir(), "saved.tar")
	proctest.Must(t, os.WriteFile(saved, base.Saved(t, "localhost/tools:1"), 0o600))
	d := proctest.Value(testdaemon.Start(testdaemon.Config{Command: []string{tend}, Dir: filepath.Join(t.TempDir(), "daemon")}))(t)
	t.Cleanup(func() { proctest.Must(t, d.Stop()) })
	o := ours{env: []string{"TEND_URL=" + d.URL}}
	run(t, o.env, tend, "image", "import", saved)
	engines := map[string]engine{"tend": o}
	if *byOthers {
		dir := t.TempDir()
		b := theirs{root: []string{"--root", filepath.Join(dir, "root"), "--runroot", filepath.Join(dir, "run"), "--storage-driver", "vfs"}}
		run(t, nil, slices.Concat([]string{"buildah"}, b.root, []string{"pull", "-q", "docker-archive:" + saved})...)
		// It wants a history, which it writes itself.
		again := filepath.Join(t.TempDir(), "Dockerfile")
		proctest.Must(t, os.WriteFile(again, []byte("FROM localhost/tools:1\nENV GREETING=hello\n"), 0o644))
		run(t, nil, slices.Concat([]string{"buildah"}, b.root, []string{"bud", "-q", "--squash", "-t", "localhost/tools:1", "-f", again, filepath.Dir(again)})...)
		engines["buildah"] = b
	}
	bare := map[string]map[string]string{}
	j := &job{dir: t.TempDir()}
	proctest.Must(t, os.Mkdir(filepath.Join(j.dir, "context"), 0o755))
	proctest.Must(t, os.WriteFile(filepath.Join(j.dir, "Dockerfile"), []byte("FROM localhost/tools:1\n"), 0o644))
	for name, e := range engines {
		bare[name], _ = e.build(t, "bare", j)
	}
	cases := proctest.Value(filepath.Glob("testdata/*.txtar"))(t)
	if len(cases) < 40 {
		t.Fatalf("there are %d Dockerfiles", len(cases))
	}
	for _, file := range cases {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			a := proctest.Value(txtar.ParseFile(file))(t)
			want, at := "", -1
			for i := range a.Files {
				if f := &a.Files[i]; f.Name == wanted {
					want, at = string(f.Data), i
				} else if f.Name == "Dockerfile" {
					f.Data = bytes.ReplaceAll(f.Data, []byte("IMAGE"), []byte("localhost/tools:1"))
				}
			}
			j := unpack(t, a)
			if b := engines["buildah"]; b != nil && !j.hand {
				files, c := b.build(t, name, j)
				got := shown(bare["buildah"], files, c)
				if *record {
					a = proctest.Value(txtar.ParseFile(file))(t)
					if at < 0 {
						at, a.Files = len(a.Files), append(a.Files, txtar.File{Name: wanted})
					}
					a.Files[at].Data = []byte(got)
					proctest.Must(t, os.WriteFile(file, txtar.Format(a), 0o644))
					want = got
				}
				differ(t, "buildah", got, want)
			}
			files, c := o.build(t, name, j)
			differ(t, "tend", asRecorded(shown(bare["tend"], files, c), want), want)
		})
	}
}

// asRecorded is what tend has made, where it says the same otherwise: a user by numbers, and no start command where a shell
// alone would start.
func asRecorded(got, want string) string {
	for _, same := range [][2]string{{"user root\n", "user \n"}, {"user 33:50\n", "user web:staff\n"}, {"start null\n", `start ["sh"]` + "\n"},
		{"dir /\n", "dir \n"}} {
		if strings.Contains(want, "\n"+same[1]) || strings.HasPrefix(want, same[1]) {
			got = strings.Replace(got, same[0], same[1], 1)
		}
	}
	return got
}

func differ(t *testing.T, who, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	var text strings.Builder
	for _, l := range g {
		if !slices.Contains(w, l) {
			fmt.Fprintf(&text, "+ %s\n", l)
		}
	}
	for _, l := range w {
		if !slices.Contains(g, l) {
			fmt.Fprintf(&text, "- %s\n", l)
		}
	}
	t.Errorf("%s makes another one (+) than recorded (-):\n%s", who, text.String())
}
