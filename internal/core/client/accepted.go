//go:build linux

package client

import (
	"github.com/tend-run/tend/internal/core/board"
	"github.com/tend-run/tend/internal/core/spool"
	"github.com/tend-run/tend/process"
	"slices"
)

// accepted reports how many bytes were accepted: in all, and of one writer.
func (p *proc) accepted(writer string) process.Accepted {
	a := process.Accepted{Offset: p.slot.End(process.Stdin)}
	if writer != "" {
		p.input.mu.Lock()
		defer p.input.mu.Unlock()
		if t := p.input.table; t != nil {
			a.Written, _ = t.Taken(writer)
		}
	}
	return a
}

// untaken returns the part of a write that was not accepted before. The caller has
// the turn.
func (p *proc) untaken(in *process.Input) ([]byte, error) {
	q := &p.input
	q.mu.Lock()
	defer q.mu.Unlock()
	accepted := p.slot.End(process.Stdin)
	size := int64(len(in.Data))
	switch {
	case in.Offset == nil:
		return in.Data, nil
	case in.Writer == "":
		at := *in.Offset
		if at > accepted {
			return nil, process.ErrOffset
		}
		return in.Data[min(size, accepted-at):], nil
	}
	taken, known := q.table.Taken(in.Writer)
	switch {
	case !known && (*in.Offset > 0 || in.Again && q.table.Forgot()):
		return nil, process.ErrWriterForgotten
	case *in.Offset > taken:
		return nil, process.ErrOffset
	}
	rest := in.Data[min(size, taken-*in.Offset):]
	if len(rest) > 0 && (slices.Contains(q.over, in.Writer) || q.table.Interrupted(in.Writer, accepted)) {
		return nil, process.ErrWriterForgotten
	}
	return rest, nil
}

// repeated acknowledges a write that was applied before stdin was closed, or
// before the process ended.
func (p *proc) repeated(in process.Input, err error) (process.Accepted, error) {
	if in.Offset == nil {
		return process.Accepted{}, err
	}
	took := p.took.Load()
	if took == nil {
		took = p.inputTaken()
		if p.slot.Gen() != p.ref.Gen {
			return process.Accepted{}, err
		}
	}
	acc := process.Accepted{Offset: took.Accepted}
	mine := took.Accepted
	if in.Writer != "" {
		taken, known := p.takenOf(in.Writer)
		if !known && (*in.Offset > 0 || len(in.Data) > 0) {
			return process.Accepted{}, err
		}
		acc.Written, mine = taken, taken
	}
	if *in.Offset > mine-int64(len(in.Data)) || in.EOF && !took.EOF || len(in.Data) == 0 && !in.EOF {
		return process.Accepted{}, err
	}
	return acc, nil
}

// takenOf returns how many bytes of one writer were accepted, of an input that is
// closed.
func (p *proc) takenOf(writer string) (taken int64, known bool) {
	p.input.mu.Lock()
	table := p.input.table
	if table != nil {
		taken, known = table.Taken(writer)
	}
	p.input.mu.Unlock()
	if table != nil {
		return taken, known
	}
	if j, err := spool.ReadJournal(p.dir); err == nil {
		taken, known = j.Writers.Taken[writer]
	}
	return taken, known
}

// inputTaken returns how much input a process on the board has accepted.
func (p *proc) inputTaken() *spool.Input {
	return &spool.Input{Accepted: p.slot.End(process.Stdin), EOF: p.slot.Wishes()&board.StdinEOF != 0}
}
