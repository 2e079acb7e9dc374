package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/tend-run/tend/process"
)

// wantsInput: with -i always; with -t alone when a person sits there; else where stdin is a
// pipe or a file, as of a program that the shell starts. With -d a file alone, for a pipe may
// never come to its end.
func (c *runFlags) wantsInput(inv *invocation) bool {
	if _, person := terminalOf(inv.in); c.Input || c.TTY {
		return c.Input || person
	}
	if inv.in == nil {
		return false
	}
	info, err := inv.in.Stat()
	if err != nil || !info.Mode().IsRegular() && info.Mode()&os.ModeNamedPipe == 0 {
		return false
	}
	if c.Detach && !info.Mode().IsRegular() {
		if waits(inv.in) {
			inv.note("with -d what is piped in is not passed on; give a file, or use -i and then tend input")
		}
		return false
	}
	return true
}

// pass writes a file to the input of a process, to its end.
func pass(ctx context.Context, p process.Process, from io.Reader) error {
	write := func(in process.Input) error {
		_, err := p.Write(ctx, in)
		return err
	}
	err := feed(from, func(piece []byte) error { return write(process.Input{Data: piece}) })
	if err == nil {
		err = write(process.Input{EOF: true})
	}
	if errors.Is(err, process.ErrStdinClosed) || errors.Is(err, process.ErrExited) {
		return nil // it wants no more of it
	}
	return err
}

// feed gives a file to write, in pieces, to its end.
func feed(from io.Reader, write func(piece []byte) error) error {
	buf := make([]byte, 256<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if err := write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read stdin: %w", err)
		}
	}
}
