package interpreter

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tend-run/tend/internal/lib/budget"
	"github.com/tend-run/tend/process"
)

// MaxLine bounds one event in bytes. Kernels keep to less.
const MaxLine = 40 << 20

// Cell is code to run.
type Cell struct {
	Code string
	// ID is of the caller, and no other cell's; "": one is made. Again: it may have been given before, and is then found.
	ID    string
	Again bool
	// Context is the ID of one; "": the one of Language for cells that name none.
	Context, Language string
	// Env are variables for this cell alone.
	Env map[string]string
}

// Execution is a cell that was given to its kernel, and a position in its events.
type Execution struct {
	// ID finds it again: [Service.Follow].
	ID      string
	sandbox Sandbox
	cell    string
	p       process.Process
	r       process.Reader
	// held is what was read of a line, or of lines, and is not returned yet.
	held   []byte
	charge *budget.Charge // of what is held beyond freeLine
	// skips: the beginning of the line was freed, or was too long.
	skips bool
	// said are events of the Execution's own, to be returned next.
	said  [][]byte
	ended bool
	all   bool // lines of all cells, each with the name of its cell
}

// Run gives a cell to its kernel, and starts one if the context has none. The cell runs after those
// that were given before, whatever becomes of the Execution: see [Execution.Cancel]. Close the Execution.
// Errors: *ContextError, *LanguageError, *KernelError, process.ErrInputFull.
func (s *Service) Run(ctx context.Context, sandbox Sandbox, c Cell) (*Execution, error) {
	in, err := s.find(ctx, sandbox, c.Context, c.Language)
	if err != nil {
		return nil, err
	}
	if c.Again {
		if e, err := s.Follow(ctx, sandbox, in.ID+"."+c.ID); !errors.Is(err, ErrNoExecution) {
			return e, err
		}
	}
	for again := false; ; again = true {
		p, warm, err := s.kernel(ctx, sandbox, in)
		if err != nil {
			return nil, err
		}
		var env map[string]string // of the sandbox
		if warm {
			if env, err = sandbox.env(ctx); err != nil {
				return nil, err
			}
		}
		e, err := give(ctx, sandbox, p, in.ID, c, env)
		if errors.Is(err, process.ErrStdinClosed) || errors.Is(err, process.ErrExited) || errors.Is(err, process.ErrNotFound) {
			if !again {
				continue // it has just ended
			}
			err = &KernelError{Why: "it has ended at once"}
		}
		return e, err
	}
}

func give(ctx context.Context, sandbox Sandbox, p process.Process, in string, c Cell, base map[string]string) (*Execution, error) {
	cell := cmp.Or(c.ID, strings.ToLower(rand.Text()))
	line, err := json.Marshal(struct {
		Cell string            `json:"cell"`
		Code string            `json:"code"`
		Env  map[string]string `json:"env"`
		Base map[string]string `json:"base,omitempty"`
	}{cell, c.Code, c.Env, base})
	if err != nil { // impossible: strings
		return nil, err
	}
	from := process.FromNow
	if c.Again { // it may begin at this moment
		from = 0
	}
	r, err := p.Read(ctx, process.ReadOptions{Streams: []process.Stream{process.Stdout}, Unordered: true,
		From: [4]int64{process.Stdout: from}})
	if err != nil {
		return nil, err
	}
	if _, err := p.Write(ctx, process.Input{Data: command(line), Writer: cell, Offset: new(int64), NoWait: true}); err != nil {
		r.Close()
		return nil, err
	}
	return &Execution{ID: in + "." + cell, sandbox: sandbox, cell: cell, p: p, r: r}, nil
}

// command is a line of a kernel's input. A writer before it may have been killed in the middle of a line.
func command(line []byte) []byte { return fmt.Appendf(nil, "\n%s\n", line) }

// Follow finds a cell that has begun by the ID of its execution, and returns it at its first event,
// whether it has ended or not. ErrNoExecution.
func (s *Service) Follow(ctx context.Context, sandbox Sandbox, id string) (*Execution, error) {
	in, cell, ok := strings.Cut(id, ".")
	if !ok {
		return nil, ErrNoExecution
	}
	kernels, err := s.kernels(ctx, sandbox, in)
	if err != nil {
		return nil, err
	}
	for i := len(kernels) - 1; i >= 0; i-- {
		p, err := sandbox.Processes().Get(ctx, process.Selector{ID: kernels[i].Spec.ID})
		if errors.Is(err, process.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		e, err := followIn(ctx, sandbox, p, id, cell)
		if e != nil || err != nil {
			return e, err
		}
	}
	return nil, ErrNoExecution
}

// Watch returns what is kept of the output of a context's kernel, and what follows: [Execution.Next] returns lines of all
// its cells, each as the kernel's "CELL EVENT", until the kernel has ended. ErrNoExecution: there is no kernel. *ContextError.
func (s *Service) Watch(ctx context.Context, sandbox Sandbox, id string) (*Execution, error) {
	if _, err := s.find(ctx, sandbox, id, ""); err != nil {
		return nil, err
	}
	p, err := s.newest(ctx, sandbox, id)
	if err != nil {
		return nil, err
	}
	r, err := p.Read(ctx, process.ReadOptions{Streams: []process.Stream{process.Stdout}, Unordered: true})
	if err != nil {
		return nil, err
	}
	return &Execution{sandbox: sandbox, p: p, r: r, all: true}, nil
}

// Cancel is [Execution.Cancel] of a cell by the ID of its execution, whether it has begun or not. ErrNoExecution.
func (s *Service) Cancel(ctx context.Context, sandbox Sandbox, id string) error {
	in, cell, ok := strings.Cut(id, ".")
	if !ok {
		return ErrNoExecution
	}
	p, err := s.newest(ctx, sandbox, in)
	if err != nil {
		return err
	}
	return (&Execution{p: p, cell: cell}).Cancel(ctx)
}

// newest returns the newest kernel of a context, which may have ended. ErrNoExecution.
func (s *Service) newest(ctx context.Context, sandbox Sandbox, context string) (process.Process, error) {
	all, err := s.kernels(ctx, sandbox, context)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, ErrNoExecution
	}
	p, err := sandbox.Processes().Get(ctx, process.Selector{ID: all[len(all)-1].Spec.ID})
	if errors.Is(err, process.ErrNotFound) {
		return nil, ErrNoExecution
	}
	return p, err
}

// followIn looks for the first line of a cell in the output of a kernel.
func followIn(ctx context.Context, sandbox Sandbox, p process.Process, id, cell string) (*Execution, error) {
	begin, fresh := []byte(cell+" "), true // fresh: the next byte begins a line
	var at int64
	var line []byte // as much of the beginning of a line as is needed
	from := process.ReadOptions{Streams: []process.Stream{process.Stdout}, Unordered: true, NoFollow: true}
	for ev, err := range process.Events(ctx, p, from) {
		if err != nil {
			return nil, err
		}
		if ev.Kind == process.EventGap {
			fresh, line = false, nil
		}
		if ev.Kind != process.EventOutput {
			continue
		}
		for rest, from := ev.Data, ev.Offset; len(rest) > 0; {
			if len(line) == 0 {
				at = from
			}
			part, next, ends := bytes.Cut(rest, []byte("\n"))
			from, rest = from+int64(len(rest)-len(next)), next
			if len(line) < len(begin) {
				line = append(line, part[:min(len(part), len(begin)-len(line))]...)
			}
			if fresh && bytes.Equal(line, begin) {
				r, err := p.Read(ctx, process.ReadOptions{Streams: []process.Stream{process.Stdout}, Unordered: true,
					From: [4]int64{process.Stdout: at}})
				if err != nil {
					return nil, err
				}
				return &Execution{ID: id, sandbox: sandbox, cell: cell, p: p, r: r}, nil
			}
			if ends {
				fresh, line = true, nil
			}
		}
	}
	return nil, nil
}

// Charge sets what the memory of lines of more than 64 KiB is charged to.
func (e *Execution) Charge(c *budget.Charge) { e.charge = c }

// Close releases what the Execution holds. The cell runs on.
func (e *Execution) Close() error { return e.r.Close() }

// cancelTime bounds how long it takes to say that a cell is to be interrupted.
const cancelTime = 5 * time.Second

// Cancel interrupts the cell, as by Ctrl-C, or takes it back if it has not begun. Its kernel stays.
func (e *Execution) Cancel(ctx context.Context) error {
	if e.ended {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cancelTime)
	defer cancel()
	line := command(fmt.Appendf(nil, "{\"cancel\": %q}", e.cell))
	_, err := e.p.Write(ctx, process.Input{Data: line, Writer: "x" + e.cell, Offset: new(int64)})
	if errors.Is(err, process.ErrStdinClosed) || errors.Is(err, process.ErrExited) || errors.Is(err, process.ErrNotFound) {
		return nil
	}
	return err
}

const (
	endLine       = `{"type": "end_of_execution"}`
	restartedLine = `{"type": "error", "name": "ContextRestarting", "value": "Context was restarted", "traceback": ""}`
)

// Next returns the next event of the cell, as JSON without a newline, valid until the next call. It waits until ctx is over,
// and may be called again then. The last one is end_of_execution; then the error is io.EOF. driver.ErrNotFound: the sandbox has ended.
func (e *Execution) Next(ctx context.Context) ([]byte, error) {
	for {
		if len(e.said) > 0 {
			line := e.said[0]
			e.said = e.said[1:]
			return line, nil
		}
		if line, ok := e.line(); ok {
			return line, nil
		}
		if e.ended {
			return nil, io.EOF
		}
		ev, ok, err := e.r.Next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, process.ErrNotFound):
			if err := e.sandbox.gone(ctx); err != nil {
				return nil, err
			}
			e.over()
		case err != nil:
			return nil, err
		case !ok:
			select {
			case <-e.r.Ready():
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		case ev.Kind == process.EventGap:
			e.drop()
			e.skips = true
			e.say("stderr", fmt.Sprintf("[%d bytes of output were not read in time, and are not kept any more]\n", ev.Gap.To-ev.Gap.From))
		case ev.Kind == process.EventOutput:
			if err := e.take(ev.Data); err != nil {
				return nil, err
			}
		}
	}
}

func (e *Execution) over() {
	e.ended = true
	e.drop()
	if e.all {
		return
	}
	e.said = append(e.said, []byte(restartedLine), []byte(endLine))
}

func (e *Execution) say(kind, text string) {
	line, err := json.Marshal(map[string]string{"type": kind, "text": text, "timestamp": time.Now().UTC().Format(time.RFC3339Nano)})
	if err == nil && !e.all { // err is never one: strings
		e.said = append(e.said, line)
	}
}

const freeLine = 64 << 10

// take keeps output for line. e.held has no whole line then.
func (e *Execution) take(data []byte) error {
	if e.skips {
		end := bytes.IndexByte(data, '\n')
		if end < 0 {
			return nil
		}
		e.skips, data = false, data[end+1:]
	}
	if len(e.held)+len(data) > MaxLine && bytes.IndexByte(data, '\n') < 0 {
		e.drop()
		e.skips = true
		e.say("stderr", fmt.Sprintf("[an event of more than %d MiB is left out]\n", MaxLine>>20))
		return nil
	}
	if err := e.charge.Add(int64(len(e.held)+len(data)-freeLine) - e.charge.Held()); err != nil {
		return err
	}
	e.held = append(e.held, data...)
	return nil
}

func (e *Execution) drop() {
	e.held = nil
	e.charge.Release()
}

// line takes the next line of the cell from what is held.
func (e *Execution) line() ([]byte, bool) {
	for {
		end := bytes.IndexByte(e.held, '\n')
		if end < 0 {
			e.charge.Keep(max(0, int64(len(e.held)-freeLine)))
			return nil, false
		}
		whole := e.held[:end]
		e.held = e.held[end+1:]
		cell, event, _ := bytes.Cut(whole, []byte(" "))
		if e.all && !e.ended {
			return whole, true
		}
		if e.ended || string(cell) != e.cell {
			continue
		}
		e.ended = string(event) == endLine
		return event, true
	}
}
