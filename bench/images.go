//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
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
)

const podman = "podman"

// limits are those of podman's containers: in some containers it may not set those of the machine, which it does else.
var limits = []string{"--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"}

// images are what the benches of images need: a registry on this machine, and a podman whose files are on
// the disk of the daemon's.
type images struct {
	ctx    context.Context
	e      *env
	hub    string // host:port
	podman []string
	dir    string
}

// withImages calls f, if there is a podman or it can be installed.
func withImages(ctx context.Context, e *env, f func(m *images)) {
	if e.d.dir == "" {
		return
	}
	if _, err := exec.LookPath(podman); err != nil {
		check(exec.CommandContext(ctx, "scripts/install", podman+"="+podman, "runc=runc").Run())
	}
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer s.Close()
	dir := must(os.MkdirTemp("", "tend-bench-images-"))
	m := &images{ctx: ctx, e: e, hub: strings.TrimPrefix(s.URL, "http://"), dir: dir, podman: []string{podman, "--root", filepath.Join(dir, "root"),
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
	cmd.Env = append(cmd.Environ(), "TEND_URL="+m.e.d.url)
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

// benchImagePull times pull and unpack of an image that nothing of is here, by the command line of each.
func benchImagePull(ctx context.Context, e *env) {
	const rounds = 3
	withImages(ctx, e, func(m *images) {
		large, size := bulk(4, 75*mib)
		var own, peer, tiny, peerTiny []float64
		for i := range rounds {
			salted := layerOf(programs("pull " + strconv.Itoa(i)))
			image := m.push("large"+strconv.Itoa(i), append([]v1.Layer{salted}, large...)...)
			peer = append(peer, m.pod("pull", "-q", "--tls-verify=false", image))
			own = append(own, m.tend("image", "pull", "-q", image))
			layers := []v1.Layer{salted}
			for n := range 99 {
				layers = append(layers, layerOf([][2]string{{"n/" + strconv.Itoa(n), fmt.Sprint(i, n)}}))
			}
			image = m.push("tiny"+strconv.Itoa(i), layers...)
			peerTiny = append(peerTiny, m.pod("pull", "-q", "--tls-verify=false", image))
			tiny = append(tiny, m.tend("image", "pull", "-q", image))
		}
		r := row{Name: "pull and unpack of an image of 5 layers", Unit: "ms", Tend: median(own), Peers: map[string]float64{podman: median(peer)}}
		e.add(r.goal(r.Tend <= r.Peers[podman], "≤ podman's").notes("%d MiB of files, registry on the loopback, on a disk; best of %d: %.0f beside %.0f",
			size/mib, rounds, quantile(own, 0), quantile(peer, 0)))
		r = row{Name: "of an image of 100 layers, 99 of them tiny", Unit: "ms", Tend: median(tiny), Peers: map[string]float64{podman: median(peerTiny)}}
		e.add(r.goal(r.Tend <= r.Peers[podman], "≤ podman's").notes("its base is there already"))
	})
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
