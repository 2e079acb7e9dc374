package project

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"time"
)

// Serve works on a project for a [Remote], with the rights of this process, until the input
// ends or ctx does. It is the whole of a process: nothing that it runs gets more rights than
// it has. env is the environment of this process.
func Serve(ctx context.Context, env []string, in io.Reader, out io.Writer) error {
	if err := keepRights(env); err != nil {
		return err
	}
	return serve(ctx, in, out)
}

func serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := &server{out: out, running: make(chan running)}
	requests := make(chan request)
	read := make(chan error, 1)
	go func() {
		err := s.read(ctx, in, requests)
		stop() // nobody hears the answer to what is under way
		read <- err
	}()
	defer s.close()
	for {
		select {
		case req := <-requests:
			if err := s.answer(ctx, req); err != nil {
				return err
			}
		case err := <-read:
			return err
		case <-ctx.Done():
			return <-read
		}
	}
}

type server struct {
	out     io.Writer
	local   *Local
	running chan running // to the reader: what it may cancel
	unlock  func()
}

// running is the request that is under way; no cancel: none is.
type running struct {
	id     int64
	cancel context.CancelFunc
}

// read reads requests, and cancels what is under way.
func (s *server) read(ctx context.Context, in io.Reader, to chan<- request) error {
	lines := make(chan []byte)
	failed := make(chan error, 1)
	go func() {
		r := bufio.NewReaderSize(in, 64<<10)
		for {
			line, err := readLine(r)
			if err != nil {
				failed <- err
				return
			}
			select {
			case lines <- line:
			case <-ctx.Done():
				return
			}
		}
	}()
	var now running
	var waiting []request
	for {
		var next chan<- request
		var first request
		if len(waiting) > 0 {
			next, first = to, waiting[0]
		}
		select {
		case next <- first:
			waiting = waiting[1:]
		case now = <-s.running:
		case line := <-lines:
			var req request
			if err := json.Unmarshal(line, &req); err != nil {
				return fmt.Errorf("a request: %w", err)
			}
			switch {
			case req.Method != cancel:
				waiting = append(waiting, req)
			case now.cancel != nil && now.id == req.ID:
				now.cancel()
			default: // it was answered, or is not begun
				waiting = slices.DeleteFunc(waiting, func(w request) bool { return w.ID == req.ID })
			}
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readLine reads a line of at most maxLine bytes.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine:
			return nil, fmt.Errorf("it is longer than %d MiB", maxLine>>20)
		case err == nil:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err // a line that was only begun is none
		}
	}
}

// answer does what is asked for.
func (s *server) answer(ctx context.Context, req request) error {
	turn, cancel := context.WithCancel(ctx)
	defer cancel()
	tell := func(r running) bool {
		select {
		case s.running <- r:
			return true
		case <-ctx.Done():
			return false
		}
	}
	if !tell(running{req.ID, cancel}) {
		return nil
	}
	quiet := s.beats(turn)
	result, err := s.do(turn, req)
	quiet()
	if !tell(running{}) {
		return nil
	}
	out := answer{ID: req.ID}
	if err != nil {
		out.Error = toFault(err)
	}
	if result != nil {
		if out.Result, err = json.Marshal(result); err != nil {
			return err
		}
	}
	line, err := json.Marshal(out)
	if err != nil {
		return err
	}
	if len(line) >= maxLine {
		line, err = json.Marshal(answer{ID: req.ID, Error: &fault{Text: fmt.Sprintf("the answer would be longer than %d MiB", maxLine>>20)}})
		if err != nil {
			return err
		}
	}
	_, err = s.out.Write(append(line, '\n'))
	debug.FreeOSMemory() // a checkpoint is large, and the next request may be far away
	return err
}

// beats says again and again that a request is being worked on, by the answer to none,
// until it is told to be quiet.
func (s *server) beats(ctx context.Context) (quiet func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for beat := time.NewTicker(beatEvery); ; {
			select {
			case <-beat.C:
				_, _ = s.out.Write([]byte("{\"id\":0}\n")) // the answer says why it cannot
			case <-ctx.Done():
				beat.Stop()
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (s *server) do(ctx context.Context, req request) (any, error) {
	do := methods[req.Method]
	switch {
	case s.local == nil && req.Method == "open":
		var c Config
		if err := json.Unmarshal(req.Args, &c); err != nil {
			return nil, err
		}
		return s.open(ctx, c)
	case s.local == nil:
		return nil, errors.New("no project is open")
	case do == nil:
		return nil, fmt.Errorf("there is no method %.40q", req.Method)
	}
	return do(ctx, s.local, req.Args)
}

// open opens the project. One process works on it at a time: one before this one may still be
// ending.
func (s *server) open(ctx context.Context, c Config) (opened Opened, err error) {
	self, err := os.Executable()
	if err != nil {
		return opened, err
	}
	if c.Copied {
		_ = os.Remove(self) // it is only there for this process; else the next one replaces it
	}
	l, opened, err := Open(c)
	if err != nil {
		return opened, err
	}
	if s.unlock, err = l.lock(ctx); err == nil {
		err = l.makeDir()
	}
	if err != nil {
		return opened, errors.Join(err, l.Close())
	}
	s.local = l
	return opened, nil
}

func (s *server) close() {
	if s.local != nil {
		s.local.dropDir()
		_ = s.local.Close() // what is on the disk stays
	}
	if s.unlock != nil {
		s.unlock()
	}
}
