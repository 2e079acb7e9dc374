package distant

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"strings"

	"github.com/tend-run/tend/process"
)

// tagPrefix begins the tag of a process; its number follows.
const tagPrefix = "distant-"

func tagOf(id uint32) string { return fmt.Sprint(tagPrefix, id) }

// numberOf is the number by which clients know a process. It comes from the
// id, so that the same request gives the same number when it is repeated.
func numberOf(id process.ID) uint32 {
	sum := sha256.Sum256([]byte(id))
	return binary.BigEndian.Uint32(sum[:])
}

func (c *client) procSpawn(ctx context.Context, call call, f *fields) (message, func(), error) {
	spec, err := c.spawnSpec(f)
	if err != nil {
		return nil, nil, err
	}
	if st := c.again(call.key); st != nil {
		return idMessage("proc_spawned", st.id), nil, nil
	}
	st := &stream{origin: call.origin, pty: spec.PTY != nil}
	spec.ID = c.freeID(call.key)
	st.id = numberOf(spec.ID)
	spec.Tag = tagOf(st.id)
	st.proc, err = c.face.manager.Start(ctx, spec)
	if errors.Is(err, process.ErrExists) && call.key != "" {
		// It was started before the server died, with another environment.
		st.proc, err = c.face.manager.Get(ctx, process.Selector{ID: spec.ID})
	}
	if err != nil {
		return nil, nil, err
	}
	return c.follow(st, call, true)
}

// follow makes st a source that begins once its number is sent.
func (c *client) follow(st *stream, call call, own bool) (message, func(), error) {
	c.mu.Lock()
	c.slots++
	st.slot = c.slots
	if own {
		c.streams[st.id] = st
	}
	c.mu.Unlock()
	if c.keys != nil {
		c.keys.started(st, call, own)
	}
	return idMessage("proc_spawned", st.id), func() { c.add(st) }, nil
}

// again returns the stream of a request that comes once more.
func (c *client) again(key string) *stream {
	if key == "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if st := c.streams[numberOf(process.ID(key))]; st != nil && st.proc != nil && st.proc.ID() == process.ID(key) {
		return st
	}
	return nil
}

// freeID returns an id whose number no other process of this client has.
func (c *client) freeID(key string) process.ID {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := 0; ; n++ {
		id := process.ID(key)
		switch {
		case key == "":
			id = process.NewID()
		case n > 0:
			id = process.ID(fmt.Sprint(key, "-", n))
		}
		if _, taken := c.streams[numberOf(id)]; !taken {
			return id
		}
	}
}

// spawnSpec translates proc_spawn.
func (c *client) spawnSpec(f *fields) (process.Spec, error) {
	cmd := f.str("cmd")
	given := map[string]string{}
	if v := f.get("environment"); v != nil {
		if env := f.inside("environment", v); env.err == nil {
			for _, e := range env.all {
				value, err := e.Value.Str()
				if err != nil {
					f.fail("environment."+e.Name, err)
					break
				}
				given[e.Name] = value
			}
		}
	}
	dir := f.optStr("current_dir")
	var size *process.Size
	if pty := f.object("pty"); pty != nil {
		size = sizeOf(f, pty)
	}
	if err := f.end(); err != nil {
		return process.Spec{}, err
	}
	argv, err := split(cmd)
	if err != nil {
		return process.Spec{}, &fault{kindInvalidInput, err.Error()}
	}
	face := c.face
	env := given
	if face.environ != nil {
		env = maps.Clone(face.environ)
		maps.Copy(env, given)
	}
	spec := process.Spec{Argv: argv, Env: env, Inherit: face.inherit, Dir: face.workdir(dir), User: face.account, PTY: size}
	if size == nil {
		spec.Stdin = process.StdinPipe
	}
	return spec, nil
}

// workdir is the directory of a process: a relative one starts at the server's.
func (f *Face) workdir(dir string) string {
	switch {
	case dir == "":
		return f.dir
	case filepath.IsAbs(dir), f.dir == "":
		return dir // relative to another machine's directory: the daemon refuses it
	}
	return strings.TrimSuffix(f.dir, "/") + "/" + dir
}

// sizeOf reads the size of a terminal. The sizes in pixels are checked and not
// used: no program that tend starts has a terminal with pixels.
func sizeOf(f, pty *fields) *process.Size {
	rows, cols := pty.uint("rows", process.MaxTermSide), pty.uint("cols", process.MaxTermSide)
	pty.optUint("pixel_width", 0, math.MaxUint16)
	pty.optUint("pixel_height", 0, math.MaxUint16)
	if err := pty.end(); err != nil && f.err == nil {
		f.err = err
	}
	return &process.Size{Cols: uint16(cols), Rows: uint16(rows)}
}

// only ends the fields of a request, and finds the running process with this id.
func (c *client) only(ctx context.Context, f *fields, id uint32) (process.Process, error) {
	if err := f.end(); err != nil {
		return nil, err
	}
	return c.find(ctx, id)
}

// find returns a running process of this client, or one that another
// connection has started.
func (c *client) find(ctx context.Context, id uint32) (process.Process, error) {
	c.mu.Lock()
	st := c.streams[id]
	c.mu.Unlock()
	if st != nil && st.proc != nil {
		return st.proc, nil
	}
	p, _, err := c.lookUp(ctx, id)
	return p, err
}

// lookUp finds a running process by its tag.
func (c *client) lookUp(ctx context.Context, id uint32) (process.Process, process.Info, error) {
	p, err := c.face.manager.Get(ctx, process.Selector{Tag: tagOf(id)})
	if err == nil {
		var info process.Info
		if info, err = p.Info(ctx); err == nil && info.Exit == nil {
			return p, info, nil
		}
	}
	if err == nil || errors.Is(err, process.ErrNotFound) {
		err = unknownProcess(id)
	}
	return nil, process.Info{}, err
}

// gone words the errors of a process that has ended as the original does.
func gone(id uint32, err error) error {
	if errors.Is(err, process.ErrExited) || errors.Is(err, process.ErrNotFound) {
		return unknownProcess(id)
	}
	return err
}

// procKill ends the process and all its descendants.
func (c *client) procKill(ctx context.Context, f *fields) (message, error) {
	id := f.id()
	p, err := c.only(ctx, f, id)
	if err != nil {
		return nil, err
	}
	if _, err := p.Kill(ctx); err != nil {
		return nil, gone(id, err)
	}
	return okMessage, nil
}

func (c *client) procStdin(ctx context.Context, call call, f *fields, t *ticket) (message, error) {
	id, data := f.id(), f.bytes("data")
	if err := f.end(); err != nil {
		return nil, err
	}
	if t == nil { // it was not seen to be input
		return nil, faultf(kindInvalidInput, "the request names no process")
	}
	if err := t.wait(ctx, call, len(data)); err != nil {
		return nil, err
	}
	p, err := c.find(ctx, id)
	if err != nil {
		return nil, err
	}
	// Input for which there is room is accepted at once and outlives this server. Behind
	// it a request waits for its process alone.
	in := process.Input{Data: data, NoWait: true}
	err = c.write(ctx, p, call, id, &in)
	if errors.Is(err, process.ErrInputFull) {
		if err := t.queue(call, len(data)); err != nil {
			return nil, err
		}
		in.NoWait = false
		_, err = p.Write(ctx, in)
	}
	if err != nil {
		return nil, gone(id, err)
	}
	return okMessage, nil
}

// write writes input, once if the request may come again.
func (c *client) write(ctx context.Context, p process.Process, call call, id uint32, in *process.Input) error {
	if c.keys == nil || len(in.Data) == 0 {
		_, err := p.Write(ctx, *in)
		return err
	}
	at, done, err := c.keys.inputAt(call, id, len(in.Data))
	for try := 0; err == nil && !done; try++ {
		at.put(in)
		var acc process.Accepted
		acc, err = p.Write(ctx, *in)
		forgotten := errors.Is(err, process.ErrWriterForgotten)
		if try > 0 || at.again || !forgotten && !errors.Is(err, process.ErrOffset) {
			return err
		}
		at, err = c.keys.inputAnew(call, id, len(in.Data), acc.Written, forgotten)
	}
	return err
}

// inputPlace says where the input of one request goes.
type inputPlace struct {
	writer string // ""; then a former version noted the offset in all input
	offset int64
	again  bool // it was tried before
}

func (at *inputPlace) put(in *process.Input) {
	in.Writer, in.Offset, in.Again = at.writer, &at.offset, at.again && at.writer != ""
}

func (c *client) procResize(ctx context.Context, f *fields) (message, error) {
	id := f.id()
	size := sizeOf(f, f.needObject("size"))
	p, err := c.only(ctx, f, id)
	if err != nil {
		return nil, err
	}
	switch _, err := p.Resize(ctx, process.Resize{To: *size}); {
	case errors.Is(err, process.ErrNoPTY):
		return nil, &fault{kindOther, "Process does not use pty"} // the original's words
	case err != nil:
		return nil, gone(id, err)
	}
	return okMessage, nil
}
