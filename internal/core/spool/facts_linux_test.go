package spool

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/process"
)

var large = process.Spec{ID: "large", Name: "web", Tag: strings.Repeat("t", 1000), Shell: "true " + strings.Repeat("y", 5000), Dir: "/",
	Env:       map[string]string{"BIG": strings.Repeat("z", 100_000)},
	Labels:    map[string]string{"box": "b1", "big": strings.Repeat("l", 100_000)},
	Retention: process.Retention{TTL: time.Hour}}

// What was freed is known by its facts: a reader is told the gap, and a start
// of the same spec is known for what it is, however often and wherever the
// freeing was cut short.
func TestFactsOutliveTheOutput(t *testing.T) {
	for name, spec := range map[string]process.Spec{"small": {ID: "small", Name: "web", Argv: []string{"true"}}, "large": large} {
		for cutShort, how := range map[string]func(dir string, end [4]int64){
			"not at all": func(string, [4]int64) {},
			"after the record": func(dir string, end [4]int64) {
				j, err := ReadJournal(dir)
				if err == nil {
					err = appendTo(dir, j.Size, appendFreed(nil, time.Now(), end))
				}
				if err != nil {
					t.Fatal(err)
				}
			},
			"in the record": func(dir string, end [4]int64) {
				j, _ := ReadJournal(dir)
				rec := appendFreed(nil, time.Now(), end)
				proctest.Must(t, appendTo(dir, j.Size, rec[:len(rec)-1]))
			},
			"after the index": func(dir string, end [4]int64) {
				j, _ := ReadJournal(dir)
				_ = appendTo(dir, j.Size, appendFreed(nil, time.Now(), end))
				os.Remove(filepath.Join(dir, IndexName))
				os.Truncate(filepath.Join(dir, FileName(process.Stdout)), 10)
			},
			"while the journal was replaced": func(dir string, end [4]int64) {
				j, _ := ReadJournal(dir)
				_ = appendTo(dir, j.Size, appendFreed(nil, time.Now(), end))
				os.WriteFile(filepath.Join(dir, newJournal), []byte("half"), 0o600)
			},
		} {
			t.Run(name+", cut short "+cutShort, func(t *testing.T) {
				dir, asked, end := over(t, spec)
				how(dir, end)
				for range 2 { // once more changes nothing
					proctest.Value(Free(dir, end, false))(t)
				}
				left, err := os.ReadDir(dir)
				if err != nil || len(left) != 1 || left[0].Name() != JournalName {
					t.Fatalf("left are %v, %v", left, err)
				}
				if fi, err := left[0].Info(); err != nil || fi.Size() > BlockSize {
					t.Errorf("the journal has %d bytes, %v", fi.Size(), err)
				}
				src, j, err := Finished(dir)
				if err != nil {
					t.Fatal(err)
				}
				p := src.Progress()
				if p.Base != end || p.End != end || p.Exit == nil || p.Exit.Code != 7 || p.Exit.Cause != process.CauseTimeout || p.PID != 42 || j.Damaged != "" {
					t.Errorf("its facts are %+v, %q", p, j.Damaged)
				}
				if j.Spec.ID != asked.ID || j.Spec.Name != "web" || j.Spec.Tag != asked.Tag || j.Spec.Retention != asked.Retention || j.Pinned || j.ExitBoot == 0 {
					t.Errorf("of its spec there is %+v", j.Spec)
				}
				if diff := cmp.Diff(Input{Accepted: 9, EOF: true}, j.Input); diff != "" {
					t.Error(diff)
				}
				if b, _ := wholeJournal(dir); !bytes.Contains(b, []byte("of a newer version")) {
					t.Error("the record of a newer version is gone")
				}
				if j.IsCut() != (name == "large") {
					t.Errorf("cut is %v", j.IsCut())
				}
				other := asked
				other.Shell, other.Argv = "other", nil
				if !j.Asked(&asked) || j.Asked(&other) {
					t.Errorf("the same spec is known: %v; another one: %v", j.Asked(&asked), j.Asked(&other))
				}
				if name == "large" && (j.Spec.Labels["box"] != "b1" || j.Spec.Labels["big"] != "" || len(j.Spec.Env) > 0) {
					t.Errorf("of labels and environment there is %v, %v", len(j.Spec.Labels), len(j.Spec.Env))
				}
				wantGap(t, dir, src, end)
			})
		}
	}
}

func wantGap(t *testing.T, dir string, src Source, end [4]int64) {
	t.Helper()
	r := proctest.Value(NewReader(dir, "id", outputs, src, process.ReadOptions{Drain: -1, From: [4]int64{process.Stdout: 500}}))(t)
	defer r.Close()
	var gaps []process.Gap
	for {
		ev, ok, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil || !ok {
			t.Fatalf("%v, %v", ok, err)
		}
		if ev.Kind == process.EventOutput {
			t.Errorf("output: %q", ev.Data)
		}
		if ev.Kind == process.EventGap {
			gaps = append(gaps, ev.Gap)
		}
	}
	if diff := cmp.Diff([]process.Gap{{Stream: process.Stdout, From: 500, To: end[process.Stdout]}}, gaps); diff != "" {
		t.Errorf("gaps (-want +got):\n%s", diff)
	}
}

// A reader that has the files open when they are freed gets a gap, no zeros.
func TestAReaderMeetsWhatIsFreedUnderItAsAGap(t *testing.T) {
	dir, _, end := over(t, process.Spec{ID: "p", Shell: "true"})
	fin, _, err := Finished(dir)
	if err != nil {
		t.Fatal(err)
	}
	src := &moving{p: fin.Progress()}
	r := proctest.Value(NewReader(dir, "p", outputs, src, process.ReadOptions{MaxChunk: 1000}))(t)
	defer r.Close()
	r.Next()
	ev, _, err := r.Next()
	if err != nil || ev.Kind != process.EventOutput || len(ev.Data) != 1000 {
		t.Fatalf("%+v, %v", ev, err)
	}
	src.p.Base, src.p.IndexEnd = end, 0
	proctest.Value(Free(dir, end, false))(t)
	ev, _, err = r.Next()
	if want := (process.Gap{Stream: process.Stdout, From: 1000, To: end[process.Stdout]}); err != nil || ev.Gap != want {
		t.Errorf("%+v, %v; want the gap %+v", ev, err, want)
	}
}

type moving struct{ p Progress }

func (m *moving) Progress() Progress             { return m.p }
func (*moving) Subscribe(chan<- struct{}) func() { return func() {} }

func TestFreeSaysWhyItCannot(t *testing.T) {
	if _, err := Free(t.TempDir(), [4]int64{}, false); !errors.Is(err, process.ErrNotFound) {
		t.Errorf("without a journal: %v", err)
	}
}
