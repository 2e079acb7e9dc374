package dockerfile

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestWhatIsNotDoneIsRefusedWithItsPlace(t *testing.T) {
	t.Parallel()
	other := "arm64"
	if runtime.GOARCH == "arm64" {
		other = "amd64"
	}
	for text, want := range map[string]string{
		"":                                      "line 1, column 1: file with no instructions",
		"RUN a":                                 "line 1, column 1: no build stage in current context",
		"FROM a\nRNU x":                         `line 2, column 1: "RNU" is no instruction of a Dockerfile`,
		"FROM a\nCOPY x":                        "line 2, column 1: COPY requires at least two arguments",
		"FROM --platform=linux/" + other + " a": "line 1, column 17: FROM --platform=linux/" + other + " is not done",
		"ARG X\nFROM $X":                        `line 2, column 6: "$X" is empty`,
		"FROM a\nONBUILD RUN x":                 "line 2, column 1: ONBUILD is not done",
		"FROM a\nRUN \\\n  --network=host x":    "line 3, column 3: RUN --network=host is not done",
		"FROM a\nRUN --security=insecure x":     "line 2, column 5: RUN --security=insecure is not done",
		"FROM a\nRUN --device=vendor.com/gpu x": "line 2, column 5: RUN --device is not done",
		"FROM a\nRUN --mount=type=ssh x":        "line 2, column 13: RUN --mount=type=ssh is not done",
		"FROM a\nRUN --mount=type=cache,target=/c,from=b x":  "line 2, column 13: RUN --mount=type=cache with from",
		"FROM a\nRUN --mount=type=tmpfs,target=/c,size=1m x": "line 2, column 34: RUN --mount with size",
		"FROM a\nRUN --mount=type=cache x":                   "line 2, column 5: a mount of the type cache needs a target",
		"FROM a\nADD https://e.com/x.git /x":                 "line 2, column 5: ADD of a git repository",
		"FROM a\nADD --checksum=sha256:0 x /x":               "line 2, column 5: --checksum is for one address",
		"FROM a\nCOPY --chmod=u+x a b":                       "line 2, column 6: --chmod=u+x is not done",
		"FROM a AS b\nCOPY --from=b x y":                     "line 2, column 8: a stage does not take from itself",
		"FROM a\nCOPY --from=b x y\nFROM c AS b":             "line 2, column 8: the stage \"b\" comes later",
		"FROM a\nCOPY --from=3 x y":                          "line 2, column 8: there is no stage 3",
		"FROM a\nRUN \xff":                                   "line 2, column 5: is no UTF-8 text",
		"FROM a\nRUN \x00":                                   "line 2, column 5: is no UTF-8 text",
		"FROM a\n" + strings.Repeat("RUN a\n", maxSteps+1):   "there are more than 1000 instructions",
		strings.Repeat("#", MaxFile+1):                       "the limit is 1048576",
	} {
		_, err := Parse(text, Options{})
		if e, ok := errors.AsType[*Error](err); !ok || !strings.Contains(e.Error(), want) {
			t.Errorf("%.80q: %v, not %q", text, err, want)
		}
	}
	if _, err := Parse("FROM a\nFROM b AS c", Options{Target: "d"}); err == nil || !strings.Contains(err.Error(), `there is no stage "d"; there are: 0, c`) {
		t.Error(err)
	}
}

func TestATargetNeedsItsStagesAlone(t *testing.T) {
	t.Parallel()
	text := `# syntax=docker/dockerfile:1
ARG TAG=1
FROM base:$TAG AS one
FROM other AS two
COPY --from=one /x /x
FROM third AS three
RUN --mount=type=bind,from=two,target=/t true
VOLUME /data
FROM two
COPY --from=alpine /x /y
`
	for target, want := range map[string]string{"": "one two 3", "3": "one two 3", "THREE": "one two three", "0": "one", "two": "one two"} {
		p, err := Parse(text, Options{Target: target, Args: map[string]string{"TAG": "2"}})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range p.Stages {
			names = append(names, s.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%q needs %s, not %s", target, got, want)
		}
		if p.Stages[0].Image != "base:2" || len(p.Notes) != 2 || p.UsesContext() {
			t.Errorf("%q, %q", p.Stages[0].Image, p.Notes)
		}
	}
	for text, want := range map[string]bool{"COPY a b": true, "ADD https://e.com/a b": false, "ADD a b": true, "COPY --from=b a b": false,
		"RUN --mount=type=bind,target=/x y": true, "COPY <<A /x\nA": false} {
		if p, err := Parse("FROM a\n"+text, Options{}); err != nil || p.UsesContext() != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestExpandQuoted(t *testing.T) {
	for text, want := range map[string]string{`/opt:$PATH`: "/opt:/bin", `${HOME}/x`: "/root/x", `${NONE:-a b}`: "a b", `$NONE`: "",
		`'$HOME' "$HOME"`: `'/root' "/root"`,
		`\$HOME`:          `\/root`, "$(id) `id`": "$(id) `id`", `a\b`: `a\b`, `$`: "$", `100$ `: "100$ "} {
		if got, err := ExpandQuoted(text, map[string]string{"PATH": "/bin", "HOME": "/root"}); got != want || err != nil {
			t.Errorf("%s is %q, %v; want %q", text, got, err, want)
		}
	}
	long := map[string]string{"A": strings.Repeat("x", 100<<10)}
	for text, want := range map[string]string{"${PATH": "", strings.Repeat("$A", 1000): "more than 1048576 bytes",
		strings.Repeat("${A:-", 20_000):               "the limit is 65536",
		"${A//x/" + strings.Repeat("y", 60<<10) + "}": "is not replaced here", "${B:-${A/x/y}}": "is not replaced here"} {
		if got, err := ExpandQuoted(text, long); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20s is %.20q, %v; want %q", text, got, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"FROM a\nRUN --mount=type=cache,target=/x y", "FROM a AS b\nCOPY --from=b <<E /x\nE", "# escape=`\nARG A=$B\nFROM ${A:-x}",
		"FROM a\nHEALTHCHECK --interval=1s CMD [\"x\"]", "FROM a\nONBUILD ADD --chmod=7 x y", "FROM a\nSHELL []\nENV A B"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text, Options{})
		if err != nil {
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Line < 1 || e.Column < 1 || e.Line > strings.Count(text, "\n")+1 || !utf8.ValidString(e.Error()) {
				t.Fatalf("%#v", err)
			}
			return
		}
		p.UsesContext()
		_, _ = ExpandQuoted(text, map[string]string{"A": "b"})
		for _, s := range p.Stages {
			for _, step := range s.Steps {
				_ = p.Expand(step.Command, map[string]string{"A": "b"})
			}
		}
	})
}
