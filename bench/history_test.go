//go:build linux

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tend-run/tend/internal/support/proctest"
)

// TestTheDocumentsShowTheNewestRecord: a figure in a table is one that bench
// measured.
func TestTheDocumentsShowTheNewestRecord(t *testing.T) {
	t.Parallel()
	root := ".."
	all := records(root)
	marks := 0
	for _, name := range drawn {
		text := proctest.Value(os.ReadFile(filepath.Join(root, name)))(t)
		want, err := draw(text, all)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if string(want) != string(text) {
			t.Errorf("%s does not show the newest record: go run ./bench -docs", name)
		}
		marks += len(mark.FindAll(text, -1))
	}
	if marks < 4 {
		t.Errorf("the documents have %d tables and plots, want 4", marks)
	}
}

func TestARecordIsDrawn(t *testing.T) {
	t.Parallel()
	r := func(name string, ratio float64) record {
		first := figure("Ordinary client: start", "ms", 1, ratio).ratioAtMost(1.5)
		first.Bench = "ordinary-true"
		second := figure("  16 at once", "processes/s", 0, 900)
		second.Bench = "ordinary-true"
		rows := []row{first, second}
		for _, bench := range plotted[2:] {
			rows = append(rows, row{Bench: bench})
		}
		return record{Name: name, Date: name, Machine: "a machine", Rows: append(rows, row{Bench: plotted[0]})}
	}
	const before = "a\n<!-- bench: ordinary-true -->\nold\n<!-- end -->\nb\n<!-- history -->\n<!-- end -->\nc <!-- end -->\n"
	got := proctest.Value(draw([]byte(before), []record{r("2026-01", 2), r("2026-02", 1)}))(t)
	for _, want := range []string{
		"Record `2026-02`: a machine; other programs used 0 % of a core as it began.\n",
		"|  | unit | bare | tend | tend : bare | goal |  |\n|---|---|---|---|---|---|---|\n",
		"| Ordinary client: start | ms | 1.00 | 1.00 | 1.00× | ≤ 1.50× | met |\n| … 16 at once | processes/s |  | 900 |",
		"start: tend : bare, less is better\n  2026-01   2.00× " + strings.Repeat("█", 40) + "\n  2026-02   1.00× " + strings.Repeat("█", 20) + "\n",
		"\n<!-- end -->\nb\n", "\nc <!-- end -->\n",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
	if strings.Contains(string(got), "old") {
		t.Errorf("the old table is left:\n%s", got)
	}
	again, err := draw(got, []record{r("2026-01", 2), r("2026-02", 1)})
	if err != nil || string(again) != string(got) {
		t.Errorf("drawn again it differs (%v):\n%s", err, again)
	}
	// A record of a part of the benches takes nothing away.
	part := record{Name: "2026-03", Rows: []row{{Bench: "pty"}}}
	if again, err := draw(got, []record{r("2026-01", 2), r("2026-02", 1), part}); err != nil || string(again) != string(got) {
		t.Errorf("with a record of one bench it differs (%v):\n%s", err, again)
	}
	if _, err := draw([]byte("<!-- bench: readers -->\n<!-- end -->\n"), []record{r("2026-01", 2)}); err == nil {
		t.Error("a table without a row is drawn")
	}
}

// TestRowsOfElsewhereAreThoseThatWerePrinted: what -json prints in another machine is what -emulated takes.
func TestRowsOfElsewhereAreThoseThatWerePrinted(t *testing.T) {
	t.Parallel()
	want := []row{figure("Linux 6.1: a", "ms", 2, 3).ratioAtMost(2).notes("n"), figure("  b", "ms", 0, 1)}
	var b bytes.Buffer
	if err := printJSON(&b, want); err != nil {
		t.Fatal(err)
	}
	if got := readRows(b.Bytes()); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestARecordTakesTheRowsOfABenchAnew(t *testing.T) {
	t.Parallel()
	r := record{Rows: []row{{Bench: "true", Name: "a"}, {Bench: "true", Name: "b"}, {Bench: "pty", Name: "c"}}}
	r.replace([]row{{Bench: "true", Name: "d"}, {Bench: "ordinary-true", Name: "e"}})
	var names []string
	for _, row := range r.Rows {
		names = append(names, row.Name)
	}
	if got := strings.Join(names, ""); got != "edc" {
		t.Errorf("the rows are %s, want edc", got)
	}
}
