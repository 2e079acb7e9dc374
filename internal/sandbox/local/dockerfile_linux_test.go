package local

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/oci/ocitest"
	"github.com/tend-run/tend/internal/support/proctest"
)

// toolsImage is an image with what steps of the tests use.
func toolsImage(t testing.TB) *ocitest.Image {
	return &ocitest.Image{
		Layers: [][]byte{ocitest.Layer(t, append(ocitest.Programs(t, "sh", "cat", "id", "ls", "stat", "mkdir", "chmod", "rm"),
			ocitest.File{Name: "etc/passwd", Text: "root:x:0:0::/root:/bin/sh\nweb:x:33:44::/srv:/bin/sh\n"},
			ocitest.File{Name: "etc/group", Text: "web:x:44:\nstaff:x:50:web\n"}, ocitest.File{Name: "srv/", UID: 33, GID: 44})...)},
		Config: v1.Config{Env: []string{"PATH=/bin", "GREETING=hello"}, Cmd: []string{"sh"}},
	}
}

// dockered is a driver with the image tools, and a build of a Dockerfile on it.
type dockered struct {
	*testing.T
	d      *Driver
	name   string // of the image
	pushed *ocitest.Registry
}

func newDockered(t *testing.T) *dockered {
	d, _ := boxed(t)
	p := ocitest.NewRegistry(t)
	p.Push("tools", "1", toolsImage(t))
	return &dockered{t, d, p.Host + "/tools:1", p}
}

// spec is a build of a Dockerfile, in which IMAGE is the image.
func (k *dockered) spec(text string, files []ocitest.File) driver.BuildSpec {
	spec := driver.BuildSpec{Name: "built", Pull: driver.Pull{Owner: true},
		Dockerfile: &driver.Dockerfile{Text: strings.ReplaceAll(text, "IMAGE", k.name)}}
	if files != nil {
		name := filepath.Join(k.TempDir(), "context")
		proctest.Must(k, os.WriteFile(name, ocitest.Tar(k, files...), 0o600))
		spec.Dockerfile.Context = "context"
		spec.Blob = func(hash string) (io.ReadCloser, error) {
			if hash != "context" {
				return nil, fs.ErrNotExist
			}
			return os.Open(name)
		}
	}
	return spec
}

// sandbox is one of what was built.
func (k *dockered) sandbox(text string, files []ocitest.File, change func(*driver.Dockerfile)) (driver.Sandbox, string) {
	k.Helper()
	spec := k.spec(text, files)
	if change != nil {
		change(spec.Dockerfile)
	}
	b, log := built(k.T, k.d, spec)
	if b.Status != driver.BuildReady {
		k.Fatalf("%s\n%s", b.Reason, log)
	}
	s, err := k.d.Create(k.Context(), driver.Spec{Template: b.Name})
	proctest.Must(k, err)
	return s, log
}

// sees compares what a line prints in a sandbox.
func (k *dockered) sees(s driver.Sandbox, line, want string) {
	k.Helper()
	if got := strings.TrimSpace(shOut(k, s, line)); got != want {
		k.Errorf("%s: %q, not %q", line, got, want)
	}
}

func TestADockerfileIsBuilt(t *testing.T) {
	t.Parallel()
	k := newDockered(t)
	packed := ocitest.Gzip(t, ocitest.Tar(t, ocitest.File{Name: "in/a", Text: "packed", UID: 7, GID: 8}))
	files := []ocitest.File{{Name: "app/", Mode: 0o755}, {Name: "app/main", Text: "main", Mode: 0o755, UID: 5}, {Name: "app/sub/deep", Text: "deep"},
		{Name: "one.txt", Text: "1"}, {Name: "two.txt", Text: "2"}, {Name: "pack.tar.gz", Text: string(packed)}}
	s, _ := k.sandbox(`# escape=\
ARG BASE=IMAGE
FROM ${BASE} AS made
ARG WORD=none
ENV SAID=$GREETING-$WORD
RUN echo "$SAID $WORD" > /said && \
    mkdir /tree && echo x > /tree/x && chmod 640 /tree/x
FROM scratch AS unused
COPY nowhere /nowhere
FROM made
WORKDIR /home/here
COPY app /app
COPY --chown=web:staff --chmod=600 *.txt ./
COPY --from=made --chown=33 /tree /copied
COPY --from=IMAGE /etc/group /group
ADD pack.tar.gz /unpacked/
COPY <<EOF <<OTHER /docs/
hello $SAID
EOF
other
OTHER
RUN <<EOF
echo first > /lines
echo second >> /lines
EOF
SHELL ["/bin/sh", "-ec"]
USER web
RUN id -un > /srv/who; cat /proc/self/cmdline /proc/$$/cmdline > /srv/shell
WORKDIR /srv/mine
ENTRYPOINT ["/bin/sh", "-c"]
CMD ["echo started > /srv/started; exec cat /dev/zero > /dev/null"]
HEALTHCHECK --interval=1s CMD cat /srv/started
`, files, func(f *driver.Dockerfile) { f.Args = map[string]string{"WORD": "given"} })
	k.sees(s, "cat /said", "hello-given given")
	k.sees(s, "stat -c '%a %u:%g' /app /app/main /app/sub/deep", "755 0:0\n755 0:0\n644 0:0")
	k.sees(s, "stat -c '%n %a %u:%g' /home/here/*", "/home/here/one.txt 600 33:50\n/home/here/two.txt 600 33:50")
	k.sees(s, "stat -c '%a %u:%g' /copied/x /unpacked/in/a /srv/mine", "640 33:33\n644 7:8\n755 33:44")
	k.sees(s, "cat /group", "web:x:44:\nstaff:x:50:web")
	k.sees(s, "cat /docs/EOF /docs/OTHER /lines", "hello hello-given\nother\nfirst\nsecond")
	k.sees(s, "cat /srv/who; id -un; echo $PWD $SAID", "web\nweb\n/srv/mine hello-given")
	k.sees(s, "cat /srv/started", "started")
	if got := shOut(t, s, "cat /srv/shell"); !strings.Contains(got, "-ec") {
		t.Errorf("the shell was %q", got)
	}
}

func TestMountsOfADockerfileAreInNoLayer(t *testing.T) {
	t.Parallel()
	k := newDockered(t)
	text := `FROM IMAGE AS other
RUN echo other > /other
FROM IMAGE
RUN --mount=type=secret,id=key,target=/etc/key,mode=0440,gid=44 --mount=type=secret,id=word,env=WORD \
    stat -c '%a %u:%g' /etc/key > /mode && cat /etc/key > /dev/null && echo "${#WORD}" > /length
RUN --mount=type=secret,id=none ls -A /run/secrets > /none 2>&1 || true
RUN --mount=type=cache,target=/cache,id=c,uid=33 echo LINE >> /cache/lines && cat /cache/lines > /cached && stat -c %u /cache >> /cached
RUN --mount=type=bind,source=dir,target=/mnt/dir --mount=type=bind,from=other,source=/other,target=/from-other \
    cat /mnt/dir/file /from-other > /bound; { echo no > /mnt/dir/new; } 2>/dev/null || echo read-only >> /bound
RUN --mount=type=bind,source=dir,target=/mnt/dir,rw echo yes > /mnt/dir/new && cat /mnt/dir/new > /written
RUN --mount=type=tmpfs,target=/scratch echo x > /scratch/x
RUN --network=none cat /proc/net/dev > /devices
RUN <<SCRIPT
#!/bin/sh -e
echo "$0" > /script
SCRIPT
`
	secrets := func(f *driver.Dockerfile) {
		f.Secrets = map[string][]byte{"key": []byte("hidden-value"), "word": []byte("hidden-word")}
	}
	files := []ocitest.File{{Name: "dir/file", Text: "of the context\n"}}
	s, log := k.sandbox(strings.ReplaceAll(text, "LINE", "one"), files, secrets)
	k.sees(s, "cat /mode /length", "440 0:44\n11")
	k.sees(s, "cat /cached /bound /written /script", "one\n33\nof the context\nother\nread-only\nyes\n/run/heredoc/SCRIPT")
	k.sees(s, "ls -d /cache /etc/key /mnt /from-other /scratch 2>/dev/null || true", "")
	if strings.Contains(shOut(t, s, "cat /devices"), "eth") {
		t.Error("--network=none has one")
	}
	if strings.Contains(log, "hidden") {
		t.Errorf("a secret is in the log:\n%s", log)
	}
	proctest.Must(t, filepath.WalkDir(k.d.cfg.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil //nolint:nilerr // it is gone
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte("hidden-")) {
			t.Errorf("a secret is in %s", path)
		}
		return nil
	}))
	// Another line: the cache is as the build before has left it, and what came before it is taken from the cache.
	s, log = k.sandbox(strings.ReplaceAll(text, "LINE", "two"), files, secrets)
	k.sees(s, "cat /cached", "one\ntwo\n33")
	if n := strings.Count(log, "taken from the cache"); n != 3 {
		t.Errorf("%d steps were taken from the cache:\n%s", n, log)
	}
	if left, err := filepath.Glob(filepath.Join(memoryDir, k.d.secretsName()+"*")); len(left) > 0 || err != nil {
		t.Errorf("secrets are left: %v %v", left, err)
	}
}

func TestADockerfileThatFailsSaysWhere(t *testing.T) {
	t.Parallel()
	k := newDockered(t)
	out := ocitest.Tar(t, ocitest.File{Name: "../../out", Text: "x"}, ocitest.File{Name: "link", To: "/"}, ocitest.File{Name: "link/tmp/out", Text: "y"})
	files := []ocitest.File{{Name: "a", Text: "a"}, {Name: "loop", To: "loop"}, {Name: "up", To: "../../../../etc/passwd"}, {Name: "out.tar", Text: string(out)},
		{Name: "x.tar.xz", Text: "\xfd7zXZ\x00..."}}
	for text, want := range map[string]string{
		"FROM IMAGE\nRUN exit 3":                                       "line 2: the command ended with exit status 3",
		"FROM IMAGE\nUSER nobody-here\nRUN true":                       "line 3: USER nobody-here: the image has no such user",
		"FROM IMAGE\nUSER nobody-here":                                 "USER nobody-here: the image has no such user",
		"FROM IMAGE\nCOPY none /":                                      `line 2: "none": file does not exist`,
		"FROM IMAGE\nCOPY *.none /":                                    "line 2: \"*.none\": nothing matches it",
		"FROM IMAGE\nCOPY loop /":                                      "there are more than 40 links",
		"FROM IMAGE\nCOPY up /":                                        "file does not exist",
		"FROM IMAGE\nCOPY ../../../../etc/passwd /":                    "file does not exist",
		"FROM IMAGE\nCOPY --chown=nobody-here a /":                     "--chown=nobody-here: the image has no such user",
		"FROM IMAGE\nCOPY a /bin/sh/b":                                 "line 2: ",
		"FROM IMAGE\nWORKDIR /bin/sh":                                  "line 2: ",
		"FROM IMAGE\nADD x.tar.xz /":                                   "compressed by xz",
		"FROM IMAGE\nADD http://REGISTRY/v2/ /x":                       "no address that a sandbox may reach",
		"FROM IMAGE\nADD http://169.254.169.254/x /x":                  "no address that a sandbox may reach",
		"FROM IMAGE-none\n":                                            "line 1: ",
		"FROM IMAGE AS a\nRUN exit 4\nFROM IMAGE\nCOPY --from=a /x /x": "line 2: the command ended with exit status 4",
	} {
		text = strings.ReplaceAll(text, "REGISTRY", k.pushed.Host)
		if b, log := built(t, k.d, k.spec(text, files)); b.Status != driver.BuildFailed || !strings.Contains(b.Reason, want) {
			t.Errorf("%q: %v %q, not %q\n%s", text, b.Status, b.Reason, want, log)
		}
	}
	// An archive writes to the image alone, wherever its links lead.
	s, _ := k.sandbox("FROM IMAGE\nADD out.tar /in/it/", files, nil)
	k.sees(s, "ls -A /in/it; cat /in/it/out /tmp/out", "link\nout\nxy")
	// A mistake is told at once, and nothing of the build is left.
	if _, err := k.d.Build(t.Context(), k.spec("FROM IMAGE\nRUN --network=host true", nil)); err == nil || !strings.Contains(err.Error(), "line 2, column 5") {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(k.d.cfg.Dir, buildsName)); len(left) > 0 && err == nil {
		t.Errorf("%v is left", left)
	}
}

func TestCachesOfBuildsAreBounded(t *testing.T) {
	t.Parallel()
	k := newDockered(t)
	for _, id := range []string{"old", "new"} {
		k.sandbox("FROM IMAGE\nRUN --mount=type=cache,target=/c,id="+id+" echo 12345 > /c/x", nil, nil)
	}
	proctest.Must(t, k.d.shrinkCaches(7))
	s, _ := k.sandbox("FROM IMAGE\nRUN --mount=type=cache,target=/c,id=old --mount=type=cache,target=/d,id=new,sharing=locked ls /c /d > /seen", nil, nil)
	k.sees(s, "cat /seen", "/c:\n\n/d:\nx")
}
