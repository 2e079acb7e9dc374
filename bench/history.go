//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/tend-run/tend/internal/support/testbin"
)

// record is what was measured of a release, a file of bench/history.
type record struct {
	Name    string  `json:"name"` // of the release, and of the file
	Date    string  `json:"date"` // 2026-11-22
	Machine string  `json:"machine"`
	Version string  `json:"version,omitempty"` // what was measured, as tend version says
	Before  string  `json:"before,omitempty"`  // what was measured with -beside
	Others  float64 `json:"others"`            // cores that other programs used at the beginning; -1: unknown
	Rows    []row   `json:"rows"`
}

var recordName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

func historyDir(root string) string { return filepath.Join(root, "bench", "history") }

// keep writes the rows of the benches that have not failed to a record. One that
// is there loses the rows of the benches that were measured again.
func keep(ctx context.Context, o *options, rows []row) {
	r := record{Name: o.record}
	path := filepath.Join(historyDir(must(testbin.Root())), o.record+".json")
	if b, err := os.ReadFile(path); err == nil {
		as(path, func() { check(json.Unmarshal(b, &r)) })
	}
	r.Date, r.Machine, r.Version, r.Others = time.Now().UTC().Format(time.DateOnly), machine(), o.version, math.Round(100*o.busy)/100
	if o.emulated != "" {
		r.Machine, r.Others = "qemu without KVM on "+r.Machine, -1
	}
	if o.beside != "" {
		r.Before = versionOf(ctx, o.beside)
	}
	r.replace(rows)
	check(os.MkdirAll(filepath.Dir(path), 0o755))
	check(os.WriteFile(path, append(must(json.MarshalIndent(r, "", "\t")), '\n'), 0o644))
	drawDocuments()
}

// readRows reads what -json has printed.
func readRows(text []byte) (rows []row) {
	for line := range bytes.Lines(text) {
		var r row
		check(json.Unmarshal(line, &r))
		rows = append(rows, r)
	}
	return rows
}

// replace takes the rows in place of those of the same benches, in the order of
// the benches.
func (r *record) replace(rows []row) {
	all := slices.Clone(rows)
	for _, old := range r.Rows {
		if !slices.ContainsFunc(rows, func(n row) bool { return n.Bench == old.Bench }) {
			all = append(all, old)
		}
	}
	place := map[string]int{}
	for i, b := range benches() {
		place[b.name] = i
	}
	slices.SortStableFunc(all, func(a, b row) int { return cmp.Compare(place[a.Bench], place[b.Bench]) })
	r.Rows = all
}

// of returns the rows of these benches.
func (r *record) of(names []string) (rows []row) {
	for _, row := range r.Rows {
		if slices.Contains(names, row.Bench) {
			rows = append(rows, row)
		}
	}
	return rows
}

// machine says where this runs: the ratios of two records can be compared if
// their machines differ, the figures cannot.
func machine() string {
	model := runtime.GOARCH
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if m := regexp.MustCompile(`(?m)^model name\s*: (.*)$`).FindSubmatch(b); m != nil {
			model = string(m[1])
		}
	}
	var fs unix.Statfs_t
	_ = unix.Statfs(os.TempDir(), &fs)
	name, ok := map[int64]string{unix.EXT4_SUPER_MAGIC: "ext4", unix.TMPFS_MAGIC: "tmpfs", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs"}[int64(fs.Type)]
	if !ok {
		name = fmt.Sprintf("filesystem %#x", fs.Type)
	}
	return fmt.Sprintf("%d × %s, Linux %s, %s", runtime.NumCPU(), model, kernelRelease(), name)
}

func kernelRelease() string {
	var u unix.Utsname
	_ = unix.Uname(&u)
	return unix.ByteSliceToString(u.Release[:])
}

func versionOf(ctx context.Context, binary string) string {
	out, _ := exec.CommandContext(ctx, binary, "version").Output()
	first, _, _ := strings.Cut(string(out), "\n")
	return first
}

// records are all records, the oldest first.
func records(root string) (all []record) {
	for _, path := range must(filepath.Glob(filepath.Join(historyDir(root), "*.json"))) {
		var r record
		as(path, func() { check(json.Unmarshal(must(os.ReadFile(path)), &r)) })
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.Date, b.Date), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// drawn are the documents with tables of figures.
var drawn = []string{"docs/performance.md", "docs/durability.md"}

// drawDocuments puts the newest record, and the history, between the marks of
// the documents.
func drawDocuments() {
	root := must(testbin.Root())
	all := records(root)
	for _, name := range drawn {
		path := filepath.Join(root, name)
		as(name, func() {
			text := must(os.ReadFile(path))
			if want := must(draw(text, all)); !bytes.Equal(text, want) {
				check(os.WriteFile(path, want, 0o644))
			}
		})
	}
}

// mark is a place for a table of the benches that it names, or for the plot.
var mark = regexp.MustCompile(`(?s)(<!-- (bench|history):?([a-z0-9 -]*?) -->\n).*?(<!-- end -->)`)

// draw returns the text of a document with its tables made again.
func draw(text []byte, all []record) ([]byte, error) {
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no record in %s", historyDir(""))
	}
	var missing error
	text = mark.ReplaceAllFunc(text, func(found []byte) []byte {
		m := mark.FindSubmatch(found)
		var b bytes.Buffer
		b.Write(m[1])
		b.WriteByte('\n')
		if string(m[2]) == "history" {
			missing = errors.Join(missing, plot(&b, all))
		} else {
			names := strings.Fields(string(m[3]))
			newest, err := whole(all, names)
			missing = errors.Join(missing, err)
			rows := newest.of(names)
			fmt.Fprintf(&b, "Record `%s`: %s", newest.Name, newest.Machine)
			if newest.Others >= 0 {
				fmt.Fprintf(&b, "; other programs used %.0f %% of a core as it began", 100*newest.Others)
			}
			fmt.Fprintf(&b, ".%s\n\n", beforeOf(newest, rows))
			_ = printMarkdown(&b, rows)
		}
		b.WriteByte('\n')
		b.Write(m[4])
		return b.Bytes()
	})
	return text, missing
}

// whole returns the newest record that has all of these benches.
func whole(all []record, names []string) (record, error) {
	for _, r := range slices.Backward(all) {
		if !slices.ContainsFunc(names, func(name string) bool { return len(r.of([]string{name})) == 0 }) {
			return r, nil
		}
	}
	return record{}, fmt.Errorf("no record has all of %v", names)
}

func beforeOf(r record, rows []row) string {
	if r.Before == "" || !slices.ContainsFunc(rows, func(r row) bool { return r.Beside > 0 }) {
		return ""
	}
	return " Before is " + r.Before + "."
}

// plotted are the benches of an ordinary client that have a bare limit.
var plotted = []string{"ordinary-pty", "ordinary-true", "ordinary-at-once", "ordinary-output", "ordinary-input", "long"}

// plot draws a bar for each record of each figure that has a bare limit and that
// an ordinary client gets: ratios alone can be compared over time and machines.
func plot(b *bytes.Buffer, all []record) error {
	newest, err := whole(all, plotted)
	if err != nil {
		return err
	}
	const width = 40
	ratios, longest, wide := make([]map[string]float64, len(all)), map[string]float64{}, 0
	for i, r := range all {
		ratios[i] = map[string]float64{}
		wide = max(wide, utf8.RuneCountInString(r.Name))
		for _, row := range named(r.of(plotted)) {
			ratios[i][row.Name] = row.Ratio
			longest[row.Name] = max(longest[row.Name], row.Ratio)
		}
	}
	b.WriteString("```\n")
	for _, row := range named(newest.of(plotted)) {
		if row.Bare == 0 {
			continue
		}
		better := "less"
		if strings.HasSuffix(row.Unit, "/s") {
			better = "more"
		}
		fmt.Fprintf(b, "%s: tend : bare, %s is better\n", row.Name, better)
		for i, r := range all {
			if v := ratios[i][row.Name]; v > 0 {
				fmt.Fprintf(b, "  %-*s  %5.2f× %s\n", wide, r.Name, v, strings.Repeat("█", max(1, int(v/longest[row.Name]*width+0.5))))
			}
		}
	}
	b.WriteString("```\n")
	return nil
}

// named returns the rows with full names: those of indented ones begin with the
// name of the row that they belong to.
func named(rows []row) []row {
	rows = slices.Clone(rows)
	parent := ""
	for i := range rows {
		if rest, ok := strings.CutPrefix(rows[i].Name, "  "); ok {
			parentless, _, _ := strings.Cut(parent, ", p50")
			rows[i].Name = parentless + ", " + rest
		} else {
			rows[i].Name = strings.TrimPrefix(rows[i].Name, "Ordinary client: ")
			parent = rows[i].Name
		}
	}
	return rows
}
