package cli

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tend-run/tend/internal/support/proctest"
	"github.com/tend-run/tend/sdk/go"
)

// slow gives a mebibyte each half second.
type slow struct{ left int }

func (s *slow) Read(b []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	s.left--
	time.Sleep(500 * time.Millisecond)
	return copy(b, make([]byte, 1<<20)), nil
}

// What takes long is told in a line now and then where there is no terminal, and in place on one; what is quick is not told.
func TestProgressOfWhatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := func(live bool, mebibytes int, total int64) string {
			var errs bytes.Buffer
			b := (&invocation{errs: &errs, flags: &globals{}}).fetching("copy x", false)
			b.live, b.lines = live, !live
			proctest.Value(io.CopyBuffer(struct{ io.Writer }{io.Discard}, &counted{bar: b, Reader: &slow{mebibytes}, total: total}, make([]byte, 1<<20)))(t)
			b.end()
			return errs.String()
		}
		if got := told(false, 15, 15<<20); got != "" {
			t.Errorf("what takes 7 s says %q", got)
		}
		want := "tend: copy x: 21.0M of 60.0M, 2.0M/s, 20s left\ntend: copy x: 41.0M of 60.0M, 2.0M/s, 10s left\n"
		if got := told(false, 60, 60<<20); got != want {
			t.Errorf("it says %q; want %q", got, want)
		}
		if got := told(false, 25, 0); got != "tend: copy x: 21.0M, 2.0M/s\n" {
			t.Errorf("without a total it says %q", got)
		}
		got := told(true, 60, 60<<20)
		if !strings.HasPrefix(got, "\r\x1b[K\x1b[2mtend: copy x: 1.0M of 60.0M\x1b[0m\r") || !strings.Contains(got, "30.0M of 60.0M, 2.0M/s, 15s left") ||
			!strings.HasSuffix(got, "60.0M of 60.0M, 2.0M/s\x1b[0m\r\x1b[K") {
			t.Errorf("a terminal has %q", got)
		}
	})
}

// A command of a repair has a line on a terminal in place, and elsewhere now and then: how long it runs, and what it wrote last.
func TestProgressOfACommandOfARepair(t *testing.T) {
	for _, live := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var errs bytes.Buffer
			c := commandBar{inv: &invocation{errs: &errs, flags: &globals{}}}
			for _, r := range []*tend.HealCommand{{Command: "npm ci", Begun: time.Now()},
				{Command: "go mod download", Begun: time.Now().Add(time.Minute), Line: "go: \x1b]0;x"}} {
				for range 48 {
					c.show(r)
					c.bar.live, c.bar.lines = live, !live
					time.Sleep(episodePace)
				}
			}
			c.show(nil)
			want := "tend: npm ci (10s)\ntend: go mod download (10s): go: \\x1b]0;x\n"
			got := errs.String()
			if live {
				if want = "tend: npm ci (11s)\x1b[0m\r\x1b[K\r\x1b[K\x1b[2mtend: go mod download (0s): go: "; strings.Contains(got, want) &&
					strings.HasSuffix(got, "\x1b[K") {
					return
				}
			}
			if got != want {
				t.Errorf("terminal: %v; it says %q, and not %q", live, got, want)
			}
		})
	}
}

// What has no bytes, or none yet, shows on a terminal how long it takes.
func TestProgressIsAskedFor(t *testing.T) {
	for _, live := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var errs bytes.Buffer
			b := (&invocation{errs: &errs, flags: &globals{}}).fetching("snapshot of x", false)
			b.live, b.lines = live, !live
			began := time.Now()
			end := b.during(t.Context(), func(context.Context) (done, total int64) {
				if s := int64(time.Since(began) / time.Second); s >= 3 {
					return (s - 3) << 20, 20 << 20
				}
				return 0, 0
			})
			time.Sleep(15*time.Second + time.Millisecond)
			end()
			end() // a second time does nothing
			want := []string{"tend: snapshot of x: 7.0M of 20.0M, 1.0M/s, 13s left\n"}
			if live {
				want = []string{"\r\x1b[K\x1b[2mtend: snapshot of x (0s)\x1b[0m", "x (2s)\x1b[0m\r", "x: 0 of 20.0M\x1b", "x: 12.0M of 20.0M, 1.0M/s, 8s left\x1b[0m\r\x1b[K"}
			}
			got := errs.String()
			for _, part := range want {
				if !strings.Contains(got, part) || live != strings.HasSuffix(got, "\x1b[K") || !live && got != part {
					t.Errorf("terminal: %v; it says %q, and not %q", live, got, part)
				}
			}
		})
	}
}
