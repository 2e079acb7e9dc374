package local

import (
	"strings"
	"sync"
	"testing"

	"github.com/tend-run/tend/internal/sandbox/driver"
	"github.com/tend-run/tend/internal/sandbox/oci/ocitest"
	"github.com/tend-run/tend/internal/support/proctest"
)

func TestCopyLeavesOutAndKeepsParents(t *testing.T) {
	t.Parallel()
	k := newDockered(t)
	files := []ocitest.File{{Name: "a/b/one.txt", Text: "1"}, {Name: "a/b/two.log", Text: "2"}, {Name: "a/c/three.txt", Text: "3"}, {Name: "four.txt", Text: "4"}}
	s, _ := k.sandbox(`# syntax=docker/dockerfile:1-labs
FROM IMAGE
COPY --exclude=b/*.log --exclude=c a /left/
COPY --exclude=*.log --exclude=two* a/* f* /each/
COPY --exclude=*.txt f* a/b /none/
COPY --parents a/*/*.txt four.txt /whole/
COPY --parents a/./b/*.txt /below/
ADD --exclude=**/*.txt a /added/
`, files, nil)
	k.sees(s, "cd /left; echo */*", "b/one.txt")
	k.sees(s, "cd /each; echo *", "four.txt one.txt three.txt")
	k.sees(s, "cd /none; echo *", "two.log")
	k.sees(s, "cd /whole; echo * a/*/*", "a four.txt a/b/one.txt a/c/three.txt")
	k.sees(s, "cd /below; echo */*", "b/one.txt")
	k.sees(s, "cd /added; echo */*", "b/two.log")
}

// What a base wants to be done is done first, in its order, and once: its own images do not pass it on.
func TestABaseHasItsOnBuildDone(t *testing.T) {
	t.Parallel()
	k := newDockered(t)
	base := toolsImage(t)
	base.Config.OnBuild = []string{"COPY app /app", "RUN cat /app > /seen", "ENV BY=base"}
	k.pushed.Push("onbuild", "1", base)
	name := strings.Replace(k.name, "/tools:1", "/onbuild:1", 1)
	s, log := k.sandbox("FROM "+name+" AS first\nRUN echo $BY >> /seen\nFROM first\nRUN cat /seen > /again\n", []ocitest.File{{Name: "app", Text: "mine\n"}}, nil)
	k.sees(s, "cat /again", "mine\nbase")
	if n := strings.Count(log, "RUN cat /app"); n != 1 {
		t.Errorf("it is done %d times:\n%s", n, log)
	}
	base.Config.OnBuild = []string{"FROM other"}
	k.pushed.Push("onbuild", "2", base)
	b, _ := built(t, k.d, k.spec("FROM "+strings.Replace(name, ":1", ":2", 1)[:len(name)]+"\n", nil))
	if b.Status == driver.BuildReady || !strings.Contains(b.Reason, "ONBUILD") {
		t.Errorf("an ONBUILD that is none: %v, %s", b.Status, b.Reason)
	}
}

// Two builds write to one cache at a time, one after the other if it is locked, and each to its own if it is private.
func TestCachesAreSharedAsIsSaid(t *testing.T) {
	t.Parallel()
	k := newDockered(t)
	for _, c := range []struct{ sharing, want string }{{"shared", "4"}, {"locked", "4"}} {
		var both sync.WaitGroup
		for n := range 2 {
			both.Go(func() {
				spec := k.spec("FROM IMAGE\nARG N\nRUN --mount=type=cache,target=/c,id="+c.sharing+",sharing="+c.sharing+
					` test "`+c.sharing+`" = shared || ! test -e /c/inside; echo > /c/inside; for i in 1 2; do echo $N > /c/$N-$i; done; rm -f /c/inside`, nil)
				spec.Name = c.sharing + string(rune('a'+n))
				spec.Dockerfile.Args = map[string]string{"N": string(rune('a' + n))}
				if b, log := built(t, k.d, spec); b.Status != driver.BuildReady {
					t.Errorf("%s: %s\n%s", c.sharing, b.Reason, log)
				}
			})
		}
		both.Wait()
		s, _ := k.sandbox("FROM IMAGE\nRUN --mount=type=cache,target=/c,id="+c.sharing+" ls /c > /seen", nil, nil)
		k.sees(s, "cat /seen", "a-1\na-2\nb-1\nb-2")
		proctest.Must(t, s.Destroy(t.Context()))
	}
	s, _ := k.sandbox("FROM IMAGE\nRUN --mount=type=cache,target=/c,id=own,sharing=private echo > /c/f\n"+
		"RUN --mount=type=cache,target=/c,id=own,sharing=private ls /c > /seen", nil, nil)
	k.sees(s, "cat /seen", "f")
}
