//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/sdk/go"
)

const podman = "podman"

// limits are those of podman's containers: in some containers it may not set those of the machine, which it does else.
var limits = []string{"--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"}

// images are what the benches of images need: a registry on this machine, a daemon, and a podman whose files are on
// the disk of the daemon's.
type images struct {
	ctx    context.Context
	e      *env
	d      *daemon
	hub    string // host:port
	podman []string
	dir    string
}

// withImages calls f, if there is a podman or it can be installed.
func withImages(ctx context.Context, e *env, f func(m *images)) {
	if e.d.dir != "" {
		withImagesOn(ctx, e, e.d, "", f)
	}
}

// withImagesInMemory calls f with the files of podman, and of a daemon, on a tmpfs: no disk, and nobody else's work on it.
func withImagesInMemory(ctx context.Context, e *env, f func(m *images)) {
	dir := must(os.MkdirTemp("", "tend-bench-"))
	defer also(func() { check(os.Remove(dir)) })
	check(unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID, "size=8g,mode=755"))
	defer also(func() { check(unix.Unmount(dir, unix.MNT_DETACH)) })
	d := must(serve(ctx, e.tend, dir))
	defer also(func() { check(d.stop()) })
	withImagesOn(ctx, e, d, dir, f)
}

func withImagesOn(ctx context.Context, e *env, d *daemon, base string, f func(m *images)) {
	if _, err := exec.LookPath(podman); err != nil {
		check(exec.CommandContext(ctx, "scripts/install", podman+"="+podman, "runc=runc").Run())
	}
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer s.Close()
	dir := must(os.MkdirTemp(base, "images-"))
	m := &images{ctx: ctx, e: e, d: d, hub: strings.TrimPrefix(s.URL, "http://"), dir: dir, podman: []string{podman, "--root",
		filepath.Join(dir, "root"),
		"--runroot", filepath.Join(dir, "run"), "--storage-driver", "overlay", "--runtime", "runc"}}
	defer also(func() {
		m.run(append(m.podman, "system", "reset", "--force")...)
		check(os.RemoveAll(dir))
	})
	f(m)
}

// run times a command to its end.
func (m *images) run(argv ...string) float64 {
	cmd := exec.CommandContext(m.ctx, argv[0], argv[1:]...)
	cmd.Env = append(cmd.Environ(), "TEND_URL="+m.d.url)
	var out []byte
	took := timed(func() {
		var err error
		if out, err = cmd.CombinedOutput(); err != nil {
			fail("%s: %v: %s", strings.Join(argv, " "), err, bytes.TrimSpace(out))
		}
	})
	return millis(took)
}

func (m *images) tend(args ...string) float64 { return m.run(append([]string{m.e.tend}, args...)...) }
func (m *images) pod(args ...string) float64 {
	return m.run(append(append([]string{}, m.podman...), args...)...)
}

// layerOf is a layer of files of this machine, by the names that they get.
func layerOf(files [][2]string) v1.Layer {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		body := []byte(f[1])
		if strings.HasPrefix(f[1], "/") {
			body = must(os.ReadFile(f[1]))
		}
		check(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f[0], Mode: 0o755, Size: int64(len(body)), ModTime: time.Unix(1_700_000_000, 0)}))
		must(w.Write(body))
	}
	check(w.Close())
	return must(tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }))
}

var library = regexp.MustCompile(`(/\S+) \(0x`)

// programs are a few programs with their libraries, enough for a Dockerfile, and an account.
func programs(salt string) [][2]string {
	all := [][2]string{{"salt", salt}, {"etc/passwd", "root:x:0:0::/:/bin/sh\n"}}
	seen := map[string]bool{}
	for _, name := range []string{"sh", "true"} {
		path := must(exec.LookPath(name))
		all = append(all, [2]string{"bin/" + name, path})
		for _, l := range library.FindAllSubmatch(must(exec.Command("ldd", path).Output()), -1) {
			if lib := string(l[1]); !seen[lib] {
				seen[lib] = true
				all = append(all, [2]string{strings.TrimPrefix(lib, "/"), lib})
			}
		}
	}
	return all
}

// bulk are layers of files of /usr, as many bytes each as are asked for.
func bulk(layers int, each int64) (all []v1.Layer, bytes int64) {
	var files [][2]string
	size := int64(0)
	_ = filepath.WalkDir("/usr", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil || info.Size() > 8*mib {
			return nil
		}
		files, size = append(files, [2]string{"bulk" + path, path}), size+info.Size()
		if size < each {
			return nil
		}
		all, bytes = append(all, layerOf(files)), bytes+size
		if files, size = nil, 0; len(all) == layers {
			return fs.SkipAll
		}
		return nil
	})
	return all, bytes
}

// push has the registry have an image, and returns its name.
func (m *images) push(repo string, layers ...v1.Layer) string {
	img := must(mutate.AppendLayers(empty.Image, layers...))
	c := must(img.ConfigFile()).DeepCopy()
	c.OS, c.Architecture, c.Config.Env = "linux", runtime.GOARCH, []string{"PATH=/bin"}
	img = must(mutate.ConfigFile(img, c))
	ref := must(name.NewTag(m.hub+"/"+repo+":1", name.Insecure))
	check(remote.Write(ref, img))
	return ref.String()
}

// benchImagePull times pull and unpack of an image that nothing of is here, by the command line of each: on a disk, and in memory.
func benchImagePull(ctx context.Context, e *env) {
	withImages(ctx, e, func(m *images) { m.pulls(true, 1) })
	if e.d.dir != "" && os.Getuid() == 0 {
		withImagesInMemory(ctx, e, func(m *images) { m.pulls(false, 0.8) })
	}
}

func (m *images) pulls(disk bool, most float64) {
	const rounds = 3
	large, size := bulk(4, 75*mib)
	var own, peer, tiny, peerTiny []float64
	for i := range rounds {
		salted := layerOf(programs("pull " + strconv.Itoa(i)))
		image := m.push("large"+strconv.Itoa(i), append([]v1.Layer{salted}, large...)...)
		peer = append(peer, m.pod("pull", "-q", "--tls-verify=false", image))
		own = append(own, m.tend("image", "pull", "-q", image))
		if !disk {
			continue
		}
		layers := []v1.Layer{salted}
		for n := range 99 {
			layers = append(layers, layerOf([][2]string{{"n/" + strconv.Itoa(n), fmt.Sprint(i, n)}}))
		}
		image = m.push("tiny"+strconv.Itoa(i), layers...)
		peerTiny = append(peerTiny, m.pod("pull", "-q", "--tls-verify=false", image))
		tiny = append(tiny, m.tend("image", "pull", "-q", image))
	}
	r := row{Name: "pull and unpack of an image of 5 layers", Unit: "ms", Tend: median(own), Peers: map[string]float64{podman: median(peer)}}
	where, goal := "on a disk", "≤ podman's"
	if !disk {
		r.Name, where, goal = "… with all files in memory", "on a tmpfs", fmt.Sprintf("≤ %g × podman's", most)
	}
	m.e.add(r.goal(r.Tend <= most*r.Peers[podman], goal).notes("%d MiB of files, registry on the loopback, %s; best of %d: %.0f beside %.0f",
		size/mib, where, rounds, quantile(own, 0), quantile(peer, 0)))
	if disk {
		r = row{Name: "of an image of 100 layers, 99 of them tiny", Unit: "ms", Tend: median(tiny),
			Peers: map[string]float64{podman: median(peerTiny)}}
		m.e.add(r.goal(r.Tend <= r.Peers[podman], "≤ podman's").notes("its base is there already"))
	}
}

// benchImageCreate times from nothing to the first output of a program in a new sandbox of an image, beside one of base, and counts
// what the page cache of a hundred of one image takes.
func benchImageCreate(ctx context.Context, e *env) {
	withImages(ctx, e, func(m *images) {
		layers := []v1.Layer{layerOf(append(programs("create"), [2]string{"bin/cat", must(exec.LookPath("cat"))}, [2]string{"large",
			strings.Repeat("x", cachedFile)}))}
		of := []tend.SandboxSpec{isolated}
		for n := range 100 {
			if n == 3 || n == 40 || n == 99 {
				spec := isolated
				spec.Image = m.push(fmt.Sprint("of", n), layers...)
				m.tend("image", "pull", "-q", spec.Image)
				of = append(of, spec)
			}
			layers = append(layers, layerOf([][2]string{{"n/" + strconv.Itoa(n), strconv.Itoa(n)}}))
		}
		took, created := make([][]float64, len(of)), make([][]float64, len(of))
		for range max(e.n/20, 10) { // in turns
			for i, spec := range of {
				pause(ctx, apart)
				var s *tend.Sandbox
				took[i] = append(took[i], millis(timed(func() {
					created[i] = append(created[i], millis(timed(func() { s = must(m.d.sdk.CreateSandbox(ctx, spec)) })))
					p := must(tend.Spawn(ctx, must(s.Client(ctx)), tend.Command("/bin/sh", "-c", "echo x")))
					must(p.Stdout().Read(make([]byte, 1)))
					check(p.Close())
				})))
				check(s.Destroy(ctx))
			}
		}
		base := median(took[0])
		for i, c := range []struct {
			name string
			most float64
		}{{"create a sandbox of base, and first output of a program", 0}, {"… of an image of 4 layers", 1.2}, {"… of 41 layers",
			1.2}, {"… of 100 layers", 1.5}} {
			r := row{Name: c.name, Unit: "ms", Tend: median(took[i])}
			if c.most > 0 {
				r = r.goal(r.Tend <= c.most*base, fmt.Sprintf("≤ %g × that of base", c.most))
			}
			e.add(r.notes("p95 %.1f", quantile(took[i], 0.95)))
		}
		e.add(row{Name: "the creation alone, of an image of 4 layers", Unit: "ms", Tend: median(created[1])}.atMost(5).notes("of base %.1f",
			median(created[0])))
		m.cache(of[1])
	})
}

// cachedFile is the size of the file that all sandboxes read.
const cachedFile = 32 * mib

// cache counts the page cache of this machine while sandboxes of one image read a file of it that no cache has.
func (m *images) cache(spec tend.SandboxSpec) {
	const sandboxes = 100
	for _, path := range must(filepath.Glob(filepath.Join(m.d.own.StateDir(), "sandboxes/.layers/*/*/large"))) {
		f := must(os.Open(path))
		check(errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close()))
	}
	var all []*tend.Sandbox
	defer also(func() {
		for _, s := range all {
			check(s.Destroy(m.ctx))
		}
	})
	for range sandboxes {
		all = append(all, must(m.d.sdk.CreateSandbox(m.ctx, spec)))
	}
	before := cached()
	for _, s := range all {
		p := must(tend.Spawn(m.ctx, must(s.Client(m.ctx)), tend.Command("/bin/sh", "-c", "cat /large > /dev/null")))
		must(p.Wait(m.ctx, tend.WaitOptions{}))
		check(p.Close())
	}
	r := row{Name: "page cache of 100 sandboxes that read a file of their image", Unit: "MiB", Tend: float64(cached()-before) / mib}
	m.e.add(r.atMost(2*cachedFile/mib).notes("the file has %d MiB; each on its own would take %d", cachedFile/mib, sandboxes*cachedFile/mib))
}

// cached is the size of this machine's page cache.
func cached() int64 {
	for line := range strings.Lines(string(must(os.ReadFile("/proc/meminfo")))) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Cached:" {
			return must(strconv.ParseInt(f[1], 10, 64)) << 10
		}
	}
	fail("no size of the page cache")
	return 0
}

// benchImageRun times `true` in a new sandbox of an image, removed at its end, by the command line of each.
func benchImageRun(ctx context.Context, e *env) {
	const rounds = 7
	withImages(ctx, e, func(m *images) {
		base := layerOf(programs("run"))
		few, many := []v1.Layer{base}, []v1.Layer{base}
		for n := range 99 {
			l := layerOf([][2]string{{"n/" + strconv.Itoa(n), strconv.Itoa(n)}})
			if many = append(many, l); n < 2 {
				few = append(few, l)
			}
		}
		for _, c := range []struct {
			name  string
			image string
		}{{"run `true` in an image of 3 layers, and remove it", m.push("few", few...)}, {"in one of 100 layers", m.push("many", many...)}} {
			m.pod("pull", "-q", "--tls-verify=false", c.image)
			m.tend("image", "pull", "-q", c.image)
			var own, peer []float64
			for range rounds {
				own = append(own, m.tend("sandbox", "run", "--rm", "--network", "none", "--image", c.image, "--", "true"))
				peer = append(peer, m.pod(append(append([]string{"run", "--rm", "--network", "none"}, limits...), c.image, "true")...))
			}
			r := row{Name: c.name, Unit: "ms", Tend: median(own), Peers: map[string]float64{podman: median(peer)}}
			e.add(r.goal(r.Tend <= r.Peers[podman]/10, "≤ a tenth of podman's").notes("best: %.0f beside %.0f", quantile(own, 0), quantile(peer, 0)))
		}
	})
}

// benchImageBuild times a Dockerfile of ten steps: nothing cached, all, and with a COPY that changes.
func benchImageBuild(ctx context.Context, e *env) {
	const rounds = 3
	withImages(ctx, e, func(m *images) {
		image := m.push("base", layerOf(programs("build")))
		m.pod("pull", "-q", "--tls-verify=false", image)
		m.tend("image", "pull", "-q", image)
		at := filepath.Join(m.dir, "context")
		check(os.Mkdir(at, 0o755))
		write := func(file, text string) { check(os.WriteFile(filepath.Join(at, file), []byte(text), 0o600)) }
		var own, peer [3][]float64
		for i := range rounds {
			var text strings.Builder
			fmt.Fprintf(&text, "FROM %s\nENV ROUND=%d\n", image, i)
			for n := range 8 {
				fmt.Fprintf(&text, "RUN echo %d > /f%d\n", n, n)
			}
			write("Dockerfile", text.String()+"COPY file /file\nRUN echo last > /last\n")
			for j := range own {
				write("file", cmp.Or(map[int]string{2: "changed"}[j], "as it was"))
				own[j] = append(own[j], m.tend("template", "build", "-t", "bench", "-f", filepath.Join(at, "Dockerfile"), at))
				peer[j] = append(peer[j], m.pod(append(append([]string{"build", "-q", "--layers", "--network", "none", "-t", "bench"}, limits...), at)...))
			}
		}
		for j, name := range []string{"build a Dockerfile of ten steps, nothing cached", "all cached", "its COPY changed"} {
			r := row{Name: name, Unit: "ms", Tend: median(own[j]), Peers: map[string]float64{podman: median(peer[j])}}
			if r = r.goal(r.Tend <= r.Peers[podman], "≤ podman's"); j == 1 {
				r = r.atMost(50)
			}
			e.add(r)
		}
	})
}
