package template

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/sandbox/driver"
)

func TestABuildFile(t *testing.T) {
	t.Parallel()
	f, err := Parse(strings.ReplaceAll(`# comment
FROM my/base:v1

ENV A=1 B="two words" C="a \"quoted\" \\ one" D=
  # indented comment
RUN apt-get install \
    -y  "x y" \
    z
COPY a.txt b/*.txt /srv/
COPY "with blank" d
WORKDIR /srv
USER user
START ./serve --port 80
READY curl -s localhost:80 `, "\n", "\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	step := func(line int, kind string, args ...string) Step {
		return Step{driver.Step{Kind: kind, Args: args}, line}
	}
	want := &File{
		From: "my/base:v1", Start: "./serve --port 80", Ready: "curl -s localhost:80",
		Steps: []Step{
			step(4, "ENV", "A", "1", "B", "two words", "C", `a "quoted" \ one`, "D", ""),
			step(6, "RUN", `apt-get install  -y  "x y"  z`),
			step(9, "COPY", "a.txt", "/srv/"), step(9, "COPY", "b/*.txt", "/srv/"), step(10, "COPY", "with blank", "d"),
			step(11, "WORKDIR", "/srv"), step(12, "USER", "user"),
		},
	}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]File{"": {}, "FROM host": {}, "FROM dir:../r": {FromDir: "../r"}, "FROM image:python:3": {FromImage: "python:3"}} {
		if f, err := Parse(text); err != nil || !cmp.Equal(*f, want) {
			t.Errorf("%q: %+v, %v", text, f, err)
		}
	}
}

func TestMistakesHaveAPlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"FORM x":                       `1:1 "FORM" is no instruction`,
		"run x":                        `1:1 "run" is no instruction`,
		"RUN":                          "1:4 RUN needs something",
		"RUN  \\\n  ":                  "1:4 RUN needs something",
		"RUN x \\":                     "1:1 the instruction goes on",
		"RUN x\nFROM y":                "2:1 FROM must be the first",
		"FROM a b":                     "1:8 FROM has one word",
		"FROM A":                       `1:6 "A" is no template`,
		"FROM dir:":                    "1:6 dir: needs a path",
		"FROM image:":                  "1:6 image: needs a name",
		"FROM tar:r.tgz":               "tend image import -t NAME r.tgz",
		"FROM -x":                      "no template",
		"FROM ubuntu@sha256:x":         "no template",
		"ENV A":                        `1:5 "A" is not NAME=VALUE`,
		"ENV A=1 =2":                   `1:9 "=2" is not`,
		"ENV A=\"1":                    "1:5 the quotes are not closed",
		"COPY x":                       "1:7 COPY needs a source and a destination",
		"COPY a b c":                   "1:10 the destination of several",
		"COPY /etc/shadow x":           "1:6 a source is relative",
		"COPY a/../../x y":             "1:6 a source does not lead up",
		"COPY ok \\\n ../x y/":         "2:2 a source does not lead up",
		"COPY a[ b":                    `1:6 "a[" is a pattern`,
		"COPY */a b":                   "1:6 only the last name",
		"COPY \"\" b":                  "1:6 an empty word",
		"USER a b":                     "1:8 USER has one word",
		"START a\nSTART b":             "2:1 there is a second START",
		"RUN a\x00b":                   "1:6 is no printable UTF-8",
		"RUN ä\xff":                    "1:6 is no printable UTF-8",
		"ENV ä=1 b":                    `1:9 "b" is not`,
		strings.Repeat("x", MaxFile+1): "1:1 the file has",
		strings.Repeat("USER a\n", driver.MaxSteps+1): fmt.Sprintf("%d:1 there are more than", driver.MaxSteps+1),
	} {
		_, err := Parse(text)
		e, ok := errors.AsType[*Error](err)
		if !ok {
			t.Errorf("%.40q: %v", text, err)
			continue
		}
		if got := fmt.Sprintf("%d:%d %s", e.Line, e.Column, e.Reason); !strings.Contains(got, want) {
			t.Errorf("%.40q: %s; want %s", text, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("FROM host\nRUN a \\\n b\nCOPY \"a b\" c\nENV A=\"\\\"\"\n# x")
	f.Add("COPY a b/ c/\nSTART x\nREADY \\\n\\\ny")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := Parse(text)
		if e, ok := errors.AsType[*Error](err); err != nil && (!ok || e.Line < 1 || e.Column < 1 || e.Line > strings.Count(text, "\n")+1) {
			t.Errorf("%v", err)
		}
		if err != nil {
			return
		}
		for _, s := range file.Steps {
			for _, a := range s.Args {
				if strings.ContainsAny(a, "\x00\n") {
					t.Errorf("%q", a)
				}
			}
			if s.Kind == "COPY" && (strings.HasPrefix(s.Args[0], "/") || strings.HasPrefix(s.Args[0], "../")) {
				t.Errorf("source %q", s.Args[0])
			}
		}
	})
}
