package work

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tend-run/tend/internal/heal/healer"
	"github.com/tend-run/tend/internal/heal/view"
	"github.com/tend-run/tend/internal/lib/atomicfile"
	"github.com/tend-run/tend/internal/lib/backoff"
	"github.com/tend-run/tend/process"
)

// runningEvery is the time between two looks at what a command has written.
const runningEvery = time.Second

// maxLine bounds a line of it, in bytes.
const maxLine = 200

// running has a file say which command of a playbook runs, and what it has written last, until
// stop. It is for whoever looks on, and nothing depends on it.
func (w *worker) running(ctx context.Context, argv []string, p process.Process) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		name := w.order.Path(healer.RunningFile)
		defer os.Remove(name)
		is := healer.Command{Command: short(w.redact.Text(strings.Join(argv, " "))), Begun: time.Now()}
		for said := "-"; ; { // at first it is written in any case
			if out, err := view.Output(ctx, p, logBytes); err == nil {
				is.Line = short(lastLine(w.redact.Begun(out)))
			}
			if said != is.Line {
				said = is.Line
				if data, err := json.Marshal(is); err == nil {
					_ = atomicfile.File(name, data, 0o600)
				}
			}
			if !backoff.Wait(ctx, runningEvery) {
				return
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// lastLine is the last one that is not empty; a bar of progress begins its line again.
func lastLine(text string) string {
	text = strings.TrimRight(text, "\r\n\t ")
	return text[strings.LastIndexAny(text, "\r\n")+1:]
}

func short(s string) string {
	if len(s) <= maxLine {
		return s
	}
	return strings.ToValidUTF8(s[:maxLine], "") + "\u2026"
}
